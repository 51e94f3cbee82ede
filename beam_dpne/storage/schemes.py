"""Which of Beam's file systems are installed, and how to get one that is not."""

import os

from apache_beam.io.filesystems import FileSystems

from beam_dpne.errors import AccessError
from beam_dpne.storage.import_messages import is_installed

# Of each scheme: the module that Beam's file system needs, and how to get it.
_NEEDED = {
    "gs": ("google.cloud.storage", "pip install 'beam-dpne[gcp]'"),
    "s3": ("boto3", "pip install 'apache-beam[aws]'"),
    "azfs": ("azure.storage.blob", "pip install 'apache-beam[azure]'"),
    "hdfs": ("hdfs", "pip install 'apache-beam[hadoop]'"),
}


def require_file_system(path: str) -> None:
    """Checks that Beam has a file system for a path; every Python has one for local paths.

    Raises:
      AccessError: It has none; the message names the package to install.

    >>> require_file_system("/data/notes.jsonl")
    >>> require_file_system("ftp://host/notes.jsonl")
    Traceback (most recent call last):
    beam_dpne.errors.AccessError: paths must be local or begin with gs://, s3://, azfs:// or \
    hdfs://, got ftp://host/notes.jsonl.
    """
    scheme = FileSystems.get_scheme(path)
    if scheme is None:
        return
    module, remedy = _NEEDED.get(scheme, (None, ""))
    missing = f"{scheme}:// needs a package that is not here, got {path}: {remedy}."
    if module and not is_installed(module):
        raise AccessError(missing)
    try:
        FileSystems.get_filesystem(path)
    except ValueError:
        if module:
            raise AccessError(missing) from None
        *others, last = (f"{known}://" for known in _NEEDED)
        raise AccessError(
            f"paths must be local or begin with {', '.join(others)} or {last}, got {path}."
        ) from None


def emulator() -> str | None:
    """The address of an emulator of Google Cloud Storage that stands in for it, if any."""
    return os.environ.get("STORAGE_EMULATOR_HOST")


def connect_anonymously_to_emulators() -> None:
    """Spares a process that talks to an emulator Beam's search for credentials, about 24 s.

    Beam has no option for it; where a future Beam keeps its credentials elsewhere, it searches.
    """
    if emulator():
        from apache_beam.internal.gcp import auth

        credentials = getattr(auth, "_Credentials", None)
        if credentials is not None:
            credentials._credentials_init = True
