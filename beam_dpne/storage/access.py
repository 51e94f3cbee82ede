"""What a run reaches by path: directories, a check that they can be used, and the run key's file."""

import functools
import hashlib
import os
from collections.abc import Sequence

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from beam_dpne.errors import AccessError, RunKeyError
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.storage.directories import Directory, LocalDirectory, reason, require_file_system

# Bytes of a key file that are read; a key has 64 digits, and white space may follow it.
_LONGEST = 1024


def directory_at(path: str) -> Directory:
    """Returns the directory at a path, local or on any Beam file system.

    Raises:
      AccessError: Beam has no file system for the path.
    """
    require_file_system(path)
    scheme = FileSystems.get_scheme(path)
    if scheme == "gs":
        from beam_dpne.storage.gcs import GcsDirectory

        return GcsDirectory(path)
    return Directory(path) if scheme else LocalDirectory(os.path.abspath(path))


def check_access(
    reading: Sequence[str], writing: Sequence[str], options: PipelineOptions | None = None
) -> None:
    """Checks remote paths, so that a run that would fail for lack of access does not start.

    For gs:// it looks for credentials (Beam itself would search for about 24 s and then go on without
    any), asks for one object at each path that will be read, and writes and deletes a small object in
    each directory that will be written. For other remote paths it checks only that Beam has a file
    system for them, and local paths are not checked. Reading needs the permissions storage.objects.get
    and storage.objects.list. Writing needs storage.objects.create and storage.objects.delete. No
    permission on the bucket itself is needed.

    Args:
      reading: Paths or globs that will be read.
      writing: Directories that will be written.
      options: Beam's options for its file systems (project, impersonation).

    Raises:
      AccessError: A file system, credentials or a bucket are missing, access is denied, or the
        storage does not answer.
    """
    remote = [path for path in (*reading, *writing) if FileSystems.get_scheme(path)]
    for path in remote:
        require_file_system(path)
    remote = [path for path in remote if FileSystems.get_scheme(path) == "gs"]
    if not remote:
        return
    from beam_dpne.storage import gcs

    if options is not None:
        FileSystems.set_options(options)
    gcs.check_credentials()
    for path in remote:
        try:
            if path in reading:
                gcs.check_readable(path)
            if path in writing:
                directory_at(path).probe()
        except OSError as error:
            raise AccessError(f"{path} cannot be used: {reason(error)}.") from None


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
