"""Objects on Azure Blob Storage; their versions are ETags, of which each write makes a new one.

This module needs the extra `azure`, and has the functions of `objects.ObjectStore`.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from apache_beam.io.azure import blobstorageio
from apache_beam.options.pipeline_options import AzureOptions
from azure.core import MatchConditions
from azure.core.exceptions import (
    AzureError,
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from azure.storage.blob import BlobPrefix, BlobServiceClient

from beam_dpne.errors import AccessError, kind_of
from beam_dpne.storage.objects import ABSENT, prefix_before_glob, said_by
from beam_dpne.storage.paths import file_system_options

# Checks before a run do not wait for storage that fails now.
_AT_ONCE: dict[str, Any] = {"retry_total": 0, "connection_timeout": 3, "read_timeout": 5}
_CONNECTION = "AZURE_STORAGE_CONNECTION_STRING"


@contextlib.contextmanager
def _brief_errors() -> Iterator[None]:
    """Replaces the client's errors by an OSError of one line with the service's own sentence.

    A request whose version is not that of the blob ends with FileExistsError.
    """
    try:
        yield
    except (ResourceExistsError, ResourceModifiedError):
        raise FileExistsError(errno.EEXIST, "the blob has changed") from None
    except HttpResponseError as error:
        code = getattr(error, "error_code", None) or kind_of(error)
        cause = said_by("Azure Blob Storage", str(code), error.message)
        raise OSError(errno.EIO, cause) from None
    except (OSError, AzureError, ValueError) as error:
        cause = said_by("Azure Blob Storage", type(error).__name__, error)
        raise OSError(errno.EIO, cause) from None


@_brief_errors()
def versions(folder: str) -> dict[str, str]:
    """Returns the versions of the blobs in a folder by name."""
    container, prefix = _parts(f"{folder.rstrip('/')}/")
    found = {}
    blobs = _service().get_container_client(container)
    for blob in blobs.walk_blobs(name_starts_with=prefix, delimiter="/"):
        if not isinstance(blob, BlobPrefix) and blob.name != prefix:
            found[blob.name[len(prefix) :]] = _quoted(blob.etag)
    return found


@_brief_errors()
def has(path: str) -> bool:
    """Returns whether there is a blob at a path."""
    return bool(_blob(path).exists())


@_brief_errors()
def download(path: str) -> tuple[bytes | None, str]:
    """Returns a blob's bytes and version, or None and ABSENT if there is no such blob."""
    try:
        found = _blob(path).download_blob()
        return found.readall(), _quoted(found.properties.etag)
    except ResourceNotFoundError as error:
        if getattr(error, "error_code", None) == "ContainerNotFound":
            raise
        return None, ABSENT


@_brief_errors()
def upload(path: str, data: bytes, version: str | None = None) -> str:
    """Writes a blob, and returns its version; see `objects.ObjectStore.upload`."""
    blob = _blob(path)
    if version is None:
        written = blob.upload_blob(data, overwrite=True)
    elif version == ABSENT:
        written = blob.upload_blob(data, overwrite=False)
    else:
        unchanged = MatchConditions.IfNotModified
        written = blob.upload_blob(data, overwrite=True, etag=version, match_condition=unchanged)
    return _quoted(written["etag"])


@_brief_errors()
def delete(path: str, version: str) -> None:
    """Deletes a blob unless it is gone or has another version."""
    with contextlib.suppress(ResourceNotFoundError, ResourceModifiedError):
        _blob(path).delete_blob(etag=version, match_condition=MatchConditions.IfNotModified)


@_brief_errors()
def check_writable(path: str) -> None:
    """Writes and deletes a blob; raises OSError if that is not possible."""
    blob = _service(at_once=True).get_blob_client(*_parts(path))
    blob.upload_blob(b"?", overwrite=True)
    blob.delete_blob()


@_brief_errors()
def check_readable(path: str) -> None:
    """Lists the blobs at a path or glob; raises OSError if that is not allowed."""
    container, name = _parts(path)
    blobs = _service(at_once=True).get_container_client(container)
    found = blobs.list_blobs(name_starts_with=prefix_before_glob(name), results_per_page=1)
    next(iter(found), None)


@_brief_errors()
def open_object(path: str, buffer_bytes: int) -> BinaryIO:
    """Opens a blob as it is stored; a request fetches at least `buffer_bytes`."""
    store = blobstorageio.BlobStorageIO(pipeline_options=file_system_options())
    return cast(BinaryIO, store.open(path, "r", read_buffer_size=buffer_bytes))


def check_credentials(path: str) -> None:
    """Raises AccessError if there is no address of the account, or it is another account's."""
    options = file_system_options().view_as(AzureOptions)
    account = blobstorageio.parse_azfs_path(path, blob_optional=True, get_account=True)[0]
    connection = options.azure_connection_string or os.environ.get(_CONNECTION)
    if not connection and not options.blob_service_endpoint:
        address = f"https://{account}.blob.core.windows.net"
        raise AccessError(
            f"{path} needs the address of its account. Give --blob_service_endpoint {address} and sign "
            f"in by az login, or set {_CONNECTION}."
        )
    try:
        connected = _service().account_name
    except ValueError as error:
        raise AccessError(f"{path} cannot be used: {error}") from None
    # Beam's file system takes the account from the connection, whatever the path says.
    if connected and connected != account:
        raise AccessError(
            f"{path} is of the account {account}, and the connection is to the account {connected}."
        )


def _parts(path: str) -> tuple[str, str]:
    """Returns the container and the name of a blob or of a folder."""
    container, name = blobstorageio.parse_azfs_path(path, blob_optional=True)[:2]
    return container, name


def _quoted(etag: str) -> str:
    """Returns an ETag in quotes, which lists of blobs leave out and conditions need."""
    return etag if etag.startswith('"') else f'"{etag}"'


def _service(*, at_once: bool = False) -> BlobServiceClient:
    """Returns a client as Beam's own makes one."""
    options = file_system_options()
    limits = _AT_ONCE if at_once else {}
    given = options.view_as(AzureOptions)
    connection = given.azure_connection_string or os.environ.get(_CONNECTION)
    if connection:
        return BlobServiceClient.from_connection_string(connection, **limits)
    credential = blobstorageio.auth.get_service_credentials(options)
    return BlobServiceClient(given.blob_service_endpoint, credential=credential, **limits)


def _blob(path: str) -> Any:
    return _service().get_blob_client(*_parts(path))
