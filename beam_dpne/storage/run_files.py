"""Files that the launcher and the workers of one run share: the run key, and markers of its state."""

import dataclasses
import functools
import hashlib
import os

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_dpne.errors import RunKeyError, SharedStorageError
from beam_dpne.mechanism.randomness import RunKey

# Bytes of a key file that are read; a key has 64 digits, and white space may follow it.
_LONGEST = 1024


class RunKeyFile(RunKey):
    """A run key that workers read from a file, so that the job graph holds only the file's path.

    Noise of two keys in one release would void the guarantee. So a worker that finds another key
    than the launcher raises an error. For this check the job graph also holds a fingerprint of the
    key, which does not reveal a random key.

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
        """Returns the 32 secret bytes, which this process reads from the file once."""
        return _key_in(self._path, self._fingerprint, self._contexts)

    def __reduce__(self):
        return RunKeyFile, (self._path, self._fingerprint, self._contexts)


@functools.lru_cache(maxsize=64)
def _key_in(path: str, fingerprint: str | None, contexts: tuple[str, ...]) -> bytes:
    """Reads a key, compares its fingerprint, and binds it to the contexts in turn."""
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
    """Returns 8 bytes derived from a key, which do not reveal a random key."""
    return hashlib.blake2b(key.sub_key("fingerprint"), digest_size=8).hexdigest()


def _read(path: str) -> RunKey:
    """Reads a key; errors quote nothing of the file."""
    try:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            text = file.read(_LONGEST).decode("ascii")
    except (OSError, ValueError, BeamIOError) as error:
        raise RunKeyError(
            f"run_key_file cannot be read, got {path} ({type(error).__name__}). The launcher and "
            "every worker read it, so it must be on storage that they share."
        ) from None
    return RunKey.from_hex(text)


@dataclasses.dataclass(frozen=True)
class Markers:
    """Marker files in a run's temporary folder, by which launcher and workers signal each other.

    The launcher makes the file `wanted` before it submits a job, and deletes it when it gives the run
    up. The first step of the job makes the file `started`. Both are needed because an engine keeps a
    job whose workers cannot start (with a wrong Python, for example) in the state RUNNING for ever, and
    may run a job that was cancelled. Such a job must not publish.

    Attributes:
      folder: The run's temporary folder.
    """

    folder: str

    @property
    def wanted(self) -> str:
        """Path of the file that exists as long as the launcher wants the release."""
        return FileSystems.join(self.folder, "wanted")

    @property
    def started(self) -> str:
        """Path of the file that exists once a worker has done the first step."""
        return FileSystems.join(self.folder, "started")

    def require_wanted(self) -> None:
        """Raises SharedStorageError unless this process finds the launcher's marker."""
        if not FileSystems.exists(self.wanted):
            raise SharedStorageError(
                f"temp_location must be shared by launcher and workers, got {self.folder}, where a "
                "worker does not find the launcher's marker. It is also missing if the launcher gave "
                "this run up. Nothing is published."
            )

    def report_start(self) -> None:
        """Makes the marker of a worker's start.

        Raises:
          SharedStorageError: The marker cannot be made, or the run is not wanted any more.
        """
        self.require_wanted()
        make_marker(self.started)


def make_marker(path: str) -> None:
    """Makes a marker file and, on a local file system, its folder.

    Raises:
      SharedStorageError: The file cannot be made.
    """
    try:
        if FileSystems.get_scheme(path) is None:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            file.write(b"1\n")
    except (OSError, BeamIOError) as error:
        raise SharedStorageError(
            f"temp_location must be writable by launcher and workers, got {os.path.dirname(path)} "
            f"({type(error).__name__})."
        ) from None
