"""A run key that stays in its file: workers read it, and the job graph only names it."""

import functools
import hashlib

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_dpne.errors import RunKeyError
from beam_dpne.mechanism.randomness import RunKey

_LONGEST = 1024


class RunKeyFile(RunKey):
    """The run key in a file, read where it is used; pickled, it is the file's path.

    A worker that finds another key than the launcher did raises, since noise of two keys in one
    release would void the guarantee; the job graph holds a fingerprint of the key for that, from
    which a random key cannot be told.

    >>> import pathlib, pickle, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "run.key")
    ...     _ = path.write_text("5eed" * 16)
    ...     key = RunKeyFile.checked(str(path))
    ...     print(bytes.fromhex("5eed") in pickle.dumps(key), key == RunKey.from_hex("5eed" * 16))
    False True
    """

    __slots__ = ("_contexts", "_fingerprint", "_path")

    def __init__(self, path: str, fingerprint: str | None, contexts: tuple[str, ...] = ()):
        """Names a key without reading it.

        Args:
          path: of a file with 64 hexadecimal digits, local or on any Beam file system.
          fingerprint: of the key that must be there; None in a template, whose file may be given
            another key before each launch.
          contexts: what the key is bound to, see `RunKey.bound_to`.
        """
        self._path = path
        self._fingerprint = fingerprint
        self._contexts = contexts

    @classmethod
    def checked(cls, path: str, *, pinned: bool = True) -> "RunKeyFile":
        """Reads the file once and returns the key in it.

        Args:
          path: as in the constructor.
          pinned: whether workers must find this very key.

        Raises:
          ValueError: if it cannot be read or is no key; the error names the file, never what is in
            it.
        """
        key = _read(path)
        return cls(path, _fingerprint(key) if pinned else None)

    def bound_to(self, context: str) -> "RunKeyFile":
        """Returns the key of one run, still in its file: bound when it is read."""
        return RunKeyFile(self._path, self._fingerprint, (*self._contexts, context))

    def _key(self) -> bytes:
        return _key_in(self._path, self._fingerprint, self._contexts)

    def __reduce__(self):
        return RunKeyFile, (self._path, self._fingerprint, self._contexts)


@functools.lru_cache(maxsize=64)
def _key_in(path: str, fingerprint: str | None, contexts: tuple[str, ...]) -> bytes:
    """Reads a key once in each process, checks that it is the one meant, and binds it."""
    key = _read(path)
    if fingerprint is not None and _fingerprint(key) != fingerprint:
        raise RunKeyError(
            f"run_key_file must hold one key during a run, got {path}, where a worker found another "
            "key than the launcher."
        )
    for context in contexts:
        key = key.bound_to(context)
    return key._key()


def _fingerprint(key: RunKey) -> str:
    return hashlib.blake2b(key.sub_key("fingerprint"), digest_size=8).hexdigest()


def _read(path: str) -> RunKey:
    try:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            text = file.read(_LONGEST).decode("ascii")
    except (OSError, ValueError, BeamIOError) as error:
        raise RunKeyError(
            f"run_key_file cannot be read, got {path} ({type(error).__name__}). The launcher and "
            "every worker read it: it must be on storage that they share."
        ) from None
    return RunKey.from_hex(text)
