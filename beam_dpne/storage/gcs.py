"""Objects on Google Cloud Storage, written and deleted only if their generation is the one named.

Beam's file system has no such requests, and its errors are pages long. This module needs the extra
`gcp` and is imported for paths that begin with gs:// only.
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

# Checks before a run do not wait for storage that fails now.
_AT_ONCE: dict[str, Any] = {"retry": None, "timeout": 5}
_LONGEST_MESSAGE = 300


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
        said = str(error).partition("\n")[0][:_LONGEST_MESSAGE]
        cause = f"Google Cloud Storage did not do it ({kind_of(error)}: {said})"
        raise OSError(errno.EIO, cause) from None


@_brief_errors()
def generations(folder: str) -> dict[str, int]:
    """Returns the generations of the objects in a folder by name."""
    bucket, prefix = parse_gcs_path(f"{folder.rstrip('/')}/", object_optional=True)
    found = _client().list_blobs(bucket, prefix=prefix, delimiter="/")
    return {blob.name[len(prefix) :]: blob.generation for blob in found if blob.name != prefix}


@_brief_errors()
def download(path: str) -> tuple[bytes | None, int]:
    """Returns an object's bytes and generation, or None and 0 if there is no such object."""
    bucket, name = parse_gcs_path(path)
    blob = _client().bucket(bucket).get_blob(name)
    if blob is None:
        return None, 0
    # A download replaces the object's properties by headers, which may lack it.
    generation = int(blob.generation or 0)
    return blob.download_as_bytes(if_generation_match=generation), generation


@_brief_errors()
def upload(path: str, data: bytes, generation: int | None = None) -> int:
    """Writes an object, and returns its generation.

    Args:
      path: The object's path.
      data: Its bytes.
      generation: The generation that it must still have, 0 if there must be none, or None.

    Raises:
      FileExistsError: It has another generation.
    """
    blob = _blob(path)
    kind = "application/octet-stream"
    settings: dict[str, Any] = {"if_generation_match": generation, "retry": DEFAULT_RETRY}
    blob.upload_from_string(data, content_type=kind, **settings)
    return int(blob.generation or 0)


@_brief_errors()
def delete(path: str, generation: int) -> None:
    """Deletes an object unless it is gone or has another generation."""
    with contextlib.suppress(exceptions.NotFound, exceptions.PreconditionFailed):
        _blob(path).delete(if_generation_match=generation)


@_brief_errors()
def check_writable(path: str) -> None:
    """Writes and deletes an object; raises OSError if that is not possible."""
    blob = _blob(path)
    blob.upload_from_string(b"?", **_AT_ONCE)
    blob.delete(**_AT_ONCE)


@_brief_errors()
def check_readable(path: str) -> None:
    """Lists the objects at a path or glob; raises OSError if the account may not."""
    bucket, name = parse_gcs_path(path, object_optional=True)
    prefix = name.translate(str.maketrans("*?[", "***")).partition("*")[0]
    found = _client().list_blobs(bucket, prefix=prefix, max_results=1, **_AT_ONCE)
    next(iter(found), None)


@_brief_errors()
def open_object(path: str, buffer_bytes: int) -> BinaryIO:
    """Opens an object as it is stored; a request fetches at least `buffer_bytes`."""
    return cast(BinaryIO, _beam_gcs().open(path, "r", read_buffer_size=buffer_bytes))


def check_credentials() -> None:
    """Raises AccessError if Google's library finds no credentials."""
    try:
        google.auth.default()
    except GoogleAuthError:
        raise AccessError(
            "gs:// paths need Google's credentials, and none were found that can be used. Run gcloud "
            "auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS to the path of a "
            "service account's key file."
        ) from None


def _beam_gcs() -> GcsIO:
    """Returns the client of Beam's file system, with its options and credentials."""
    return cast(GCSFileSystem, FileSystems.get_filesystem("gs://"))._gcsIO()


def _client() -> Any:
    return _beam_gcs().client


def _blob(path: str) -> Any:
    bucket, name = parse_gcs_path(path)
    return _client().bucket(bucket).blob(name)
