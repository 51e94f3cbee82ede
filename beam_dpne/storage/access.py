"""Access to directories by path, and a check before a run that remote paths can be used."""

import functools
import os
import threading
from collections.abc import Callable, Sequence

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from beam_dpne.errors import AccessError
from beam_dpne.storage.directories import (
    Directory,
    LocalDirectory,
    emulator,
    reason,
    require_file_system,
)

_LONGEST_SECONDS = 5.0
_CREDENTIALS = "Google's credentials"
_NO_CREDENTIALS = (
    "gs:// paths need Google's credentials, and none were found. Run gcloud auth application-default "
    "login, or set GOOGLE_APPLICATION_CREDENTIALS to the path of a service account's key file."
)

_Step = tuple[str, Callable[[], None]]


def directory_at(path: str) -> Directory:
    """Returns the directory at a path, local or on any Beam file system.

    Raises:
      AccessError: Beam has no file system for the path.
    """
    if FileSystems.get_scheme(path) is None:
        return LocalDirectory(os.path.abspath(path))
    require_file_system(path)
    if FileSystems.get_scheme(path) == "gs":
        from beam_dpne.storage.gcs import GcsDirectory

        return GcsDirectory(path)
    return Directory(path)


def check_access(
    reading: Sequence[str], writing: Sequence[str], options: PipelineOptions | None = None
) -> None:
    """Checks remote paths, so that a run that would fail for lack of access does not start.

    For gs:// it looks for credentials (Beam itself would search for about 24 s and then go on without
    any), asks for one object of each bucket that will be read, and writes and deletes a small object
    in each directory that will be written. For other remote paths it checks only that Beam has a file
    system for them, and local paths are not checked. Reading needs the permissions storage.objects.get
    and storage.objects.list. Writing needs storage.objects.create and storage.objects.delete. No
    permission on the bucket itself is needed.

    Args:
      reading: Paths or globs that will be read.
      writing: Directories that will be written.
      options: Beam's options for its file systems (project, impersonation).

    Raises:
      AccessError: A file system, credentials or a bucket are missing, access is denied, or the
        storage did not answer within five seconds.
    """
    for path in (*reading, *writing):
        require_file_system(path)
    reading, writing = _on_gcs(reading), _on_gcs(writing)
    if not reading and not writing:
        return
    if options is not None:
        FileSystems.set_options(options)
    _take_in_time(_steps(reading, writing))


def _on_gcs(paths: Sequence[str]) -> list[str]:
    return [path for path in paths if FileSystems.get_scheme(path) == "gs"]


def _steps(reading: Sequence[str], writing: Sequence[str]) -> list[_Step]:
    """Returns the steps of the check, each with the name that an error reports."""
    from beam_dpne.storage.gcs import check_readable, split_path

    first_of_buckets = {split_path(path)[0]: path for path in reversed(reading)}
    steps: list[_Step] = [] if emulator() else [(_CREDENTIALS, _find_credentials)]
    steps += [(path, functools.partial(check_readable, path)) for path in first_of_buckets.values()]
    steps += [(path, lambda path=path: directory_at(path).probe()) for path in writing]
    return steps


def _find_credentials() -> None:
    """Raises AccessError if Google's library finds no credentials."""
    import google.auth
    from google.auth.exceptions import GoogleAuthError

    try:
        google.auth.default()
    except GoogleAuthError:
        configured = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
        if configured:
            raise AccessError(
                "GOOGLE_APPLICATION_CREDENTIALS must name a file with Google's credentials, got "
                f"{configured}, which cannot be used."
            ) from None
        raise AccessError(_NO_CREDENTIALS) from None


def _take_in_time(steps: Sequence[_Step]) -> None:
    """Takes the steps in a thread, because libraries wait and retry for minutes."""
    current, failure = [""], list[Exception]()

    def work() -> None:
        try:
            for current[0], step in steps:
                step()
        except Exception as error:
            failure.append(error)

    # The thread is a daemon, so that the program may end while it still waits.
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(_LONGEST_SECONDS)
    path = current[0]
    if failure:
        error = failure[0]
        if isinstance(error, AccessError):
            raise error
        raise AccessError(f"{path} cannot be used: {reason(error)}.") from None
    if thread.is_alive():
        if path == _CREDENTIALS:
            raise AccessError(_NO_CREDENTIALS)
        remedy = f"STORAGE_EMULATOR_HOST={address}" if (address := emulator()) else "the network"
        raise AccessError(
            f"{path} cannot be used: there was no answer from its storage in {_LONGEST_SECONDS:g} s. "
            f"Check {remedy}."
        )
