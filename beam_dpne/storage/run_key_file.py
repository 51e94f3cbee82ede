"""A run key that stays in its file: workers read the file, and the job graph holds only its path."""

import functools
import hashlib

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_dpne.errors import RunKeyError
from beam_dpne.mechanism.randomness import RunKey

_LONGEST = 1024


class RunKeyFile(RunKey):
    """A run key that is read from a file where it is used, and is pickled as the file's path.

    Noise of two keys in one release would void the guarantee. So a worker that finds another key
    than the launcher raises an error. For this check the job graph holds a fingerprint of the key,
    which does not reveal a random key.

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
        """Refers to a key without reading it.

        Args:
          path: Path of a file with 64 hexadecimal digits, local or on any Beam file system.
          fingerprint: Fingerprint of the key that must be in the file; None in a template, whose file
            may hold another key at each launch.
          contexts: Texts that the key is bound to, see `RunKey.bound_to`.
        """
        self._path = path
        self._fingerprint = fingerprint
        self._contexts = contexts

    @classmethod
    def checked(cls, path: str, *, pinned: bool = True) -> "RunKeyFile":
        """Reads the file once and returns the key in it.

        Args:
          path: As in the constructor.
          pinned: Whether workers must find the same key.

        Raises:
          ValueError: The file cannot be read or holds no key. The error names the file and never
            quotes it.
        """
        key = _read(path)
        return cls(path, _fingerprint(key) if pinned else None)

    def bound_to(self, context: str) -> "RunKeyFile":
        """Returns the key of one run, which stays in its file and is bound when it is read."""
        return RunKeyFile(self._path, self._fingerprint, (*self._contexts, context))

    def _key(self) -> bytes:
        return _key_in(self._path, self._fingerprint, self._contexts)

    def __reduce__(self):
        return RunKeyFile, (self._path, self._fingerprint, self._contexts)


@functools.lru_cache(maxsize=64)
def _key_in(path: str, fingerprint: str | None, contexts: tuple[str, ...]) -> bytes:
    """Reads a key once in each process, compares its fingerprint, and binds it."""
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
