"""Objects on Google Cloud Storage; their versions are generations.

Beam's file system has no requests that depend on a generation, and its errors are pages long. This
module needs the extra `gcp`, and has the functions of `objects.ObjectStore`.
"""

import contextlib
import errno
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

import google.auth
from apache_beam.io.filesystems import FileSystems
from apache_beam.io.gcp.gcsfilesystem import GCSFileSystem
from apache_beam.io.gcp.gcsio import GcsIO, parse_gcs_path
from google.api_core import exceptions
from google.auth.exceptions import GoogleAuthError
from google.cloud.storage.retry import DEFAULT_RETRY

from beam_dpne.errors import AccessError, kind_of
from beam_dpne.storage.objects import ABSENT, prefix_before_glob, said_by

# Checks before a run do not wait for storage that fails now.
_SECONDS = 5


@contextlib.contextmanager
def _brief_errors() -> Iterator[None]:
    """Replaces the client's errors, which are pages long, by an OSError of one line.

    It has the service's own sentence, which names the missing permission, bucket or object. A request
    whose generation is not that of the object ends with FileExistsError.
    """
    try:
        yield
    except exceptions.PreconditionFailed:
        raise FileExistsError(errno.EEXIST, "the object has changed") from None
    except (OSError, exceptions.GoogleAPIError, GoogleAuthError) as error:
        cause = said_by("Google Cloud Storage", kind_of(error), error)
        raise OSError(errno.EIO, cause) from None


@_brief_errors()
def versions(folder: str) -> dict[str, str]:
    """Returns the versions of the objects in a folder by name."""
    bucket, prefix = parse_gcs_path(f"{folder.rstrip('/')}/", object_optional=True)
    found = _client().list_blobs(bucket, prefix=prefix, delimiter="/")
    return {blob.name[len(prefix) :]: str(blob.generation) for blob in found if blob.name != prefix}


@_brief_errors()
def has(path: str) -> bool:
    """Returns whether there is an object at a path."""
    return bool(_blob(path).exists())


@_brief_errors()
def download(path: str) -> tuple[bytes | None, str]:
    """Returns an object's bytes and version, or None and ABSENT if there is no such object."""
    bucket, name = parse_gcs_path(path)
    blob = _client().bucket(bucket).get_blob(name)
    if blob is None:
        return None, ABSENT
    # A download replaces the object's properties by headers, which may lack it.
    generation = int(blob.generation or 0)
    return blob.download_as_bytes(if_generation_match=generation), str(generation)


@_brief_errors()
def upload(path: str, data: bytes, version: str | None = None) -> str:
    """Writes an object, and returns its version; see `objects.ObjectStore.upload`."""
    blob = _blob(path)
    kind = "application/octet-stream"
    settings: dict[str, Any] = {"if_generation_match": _generation(version), "retry": DEFAULT_RETRY}
    blob.upload_from_string(data, content_type=kind, **settings)
    return str(blob.generation or 0)


@_brief_errors()
def delete(path: str, version: str) -> None:
    """Deletes an object unless it is gone or has another version."""
    with contextlib.suppress(exceptions.NotFound, exceptions.PreconditionFailed):
        _blob(path).delete(if_generation_match=_generation(version))


@_brief_errors()
def check_writable(path: str) -> None:
    """Writes and deletes an object; raises OSError if that is not possible."""
    blob = _blob(path)
    blob.upload_from_string(b"?", retry=None, timeout=_SECONDS)
    blob.delete(retry=None, timeout=_SECONDS)


@_brief_errors()
def check_readable(path: str) -> None:
    """Lists the objects at a path or glob; raises OSError if the account may not."""
    bucket, name = parse_gcs_path(path, object_optional=True)
    prefix = prefix_before_glob(name)
    blobs = _client().list_blobs(bucket, prefix=prefix, max_results=1, retry=None, timeout=_SECONDS)
    next(iter(blobs), None)


@_brief_errors()
def open_object(path: str, buffer_bytes: int) -> BinaryIO:
    """Opens an object as it is stored; a request fetches at least `buffer_bytes`."""
    return cast(BinaryIO, _beam_gcs().open(path, "r", read_buffer_size=buffer_bytes))


def check_credentials(path: str) -> None:
    """Raises AccessError if Google's library finds no credentials."""
    try:
        google.auth.default()
    except GoogleAuthError:
        raise AccessError(
            f"{path} needs Google's credentials, and none were found that can be used. Run gcloud "
            "auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS to the path of a "
            "service account's key file."
        ) from None


def _generation(version: str | None) -> int | None:
    """Returns the generation of a version; a generation of 0 stands for no object."""
    if version is None:
        return None
    return 0 if version == ABSENT else int(version)


def _beam_gcs() -> GcsIO:
    """Returns the client of Beam's file system, with its options and credentials."""
    return cast(GCSFileSystem, FileSystems.get_filesystem("gs://"))._gcsIO()


def _client() -> Any:
    return _beam_gcs().client


def _blob(path: str) -> Any:
    bucket, name = parse_gcs_path(path)
    return _client().bucket(bucket).blob(name)
