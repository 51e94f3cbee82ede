"""Objects on S3 and on stores that speak its protocol.

The version of an object has its ETag, a hash of its bytes, and the mark that each upload of ours puts
into the object's metadata, or else the second of its last change: two attempts under one run key write
equal bytes, and must not delete each other's objects. S3 deletes whatever is there, so the version is
looked up just before. Between the two requests there is a moment in which another attempt's object of
this name may be deleted. A write depends on the ETag (If-Match, If-None-Match) without such a moment.
This module needs the extra `aws`, and has the functions of `objects.ObjectStore`.
"""

import contextlib
import errno
import functools
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, cast

from apache_beam.io.aws import s3io
from apache_beam.io.aws.clients.s3.messages import S3ClientError
from apache_beam.options.pipeline_options import S3Options
from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from beam_dpne.errors import AccessError
from beam_dpne.storage.objects import ABSENT, prefix_before_glob, said_by
from beam_dpne.storage.paths import file_system_options

# Checks before a run do not wait for storage that fails now.
_AT_ONCE = Config(connect_timeout=3, read_timeout=5, retries={"total_max_attempts": 1})
_PATIENT = Config(retries={"total_max_attempts": 8, "mode": "standard"})
# The metadata of an object that has the mark of its upload.
_MARK = "beam-dpne-upload"
_CHANGED = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
_MISSING = ("NoSuchKey", "404")


@contextlib.contextmanager
def _brief_errors() -> Iterator[None]:
    """Replaces the client's errors by an OSError of one line with the service's own sentence.

    A request whose version is not that of the object ends with FileExistsError.
    """
    try:
        yield
    except ClientError as error:
        code = _code(error)
        if code in _CHANGED:
            raise FileExistsError(errno.EEXIST, "the object has changed") from None
        said = error.response.get("Error", {}).get("Message") or error
        raise OSError(errno.EIO, said_by("S3", code, said)) from None
    except (OSError, BotoCoreError, S3ClientError) as error:
        raise OSError(errno.EIO, said_by("S3", type(error).__name__, error)) from None


@_brief_errors()
def versions(folder: str) -> dict[str, str]:
    """Returns the versions of the objects in a folder by name."""
    bucket, prefix = s3io.parse_s3_path(f"{folder.rstrip('/')}/", object_optional=True)
    client = _client()
    found = {}
    for page in client.get_paginator("list_objects_v2").paginate(
        Bucket=bucket, Prefix=prefix, Delimiter="/"
    ):
        for item in page.get("Contents", ()):
            key = item["Key"]
            if key != prefix and (head := _head(client, bucket, key)):
                found[key[len(prefix) :]] = _version(head)
    return found


@_brief_errors()
def has(path: str) -> bool:
    """Returns whether there is an object at a path."""
    bucket, key = s3io.parse_s3_path(path)
    return _head(_client(), bucket, key) is not None


@_brief_errors()
def download(path: str) -> tuple[bytes | None, str]:
    """Returns an object's bytes and version, or None and ABSENT if there is no such object."""
    bucket, key = s3io.parse_s3_path(path)
    try:
        found = _client().get_object(Bucket=bucket, Key=key)
    except ClientError as error:
        if _code(error) in _MISSING:
            return None, ABSENT
        raise
    return found["Body"].read(), _version(found)


@_brief_errors()
def upload(path: str, data: bytes, version: str | None = None) -> str:
    """Writes an object, and returns its version; see `objects.ObjectStore.upload`."""
    bucket, key = s3io.parse_s3_path(path)
    written: dict[str, Any] = {"Bucket": bucket, "Key": key, "Body": data}
    written["Metadata"] = {_MARK: uuid.uuid4().hex}
    if version == ABSENT:
        written["IfNoneMatch"] = "*"
    elif version is not None:
        written["IfMatch"] = version.partition(" ")[0]
    answer = _client().put_object(**written)
    return _version({**written, "ETag": answer["ETag"]})


@_brief_errors()
def delete(path: str, version: str) -> None:
    """Deletes an object unless it is gone or has another version."""
    bucket, key = s3io.parse_s3_path(path)
    client = _client()
    head = _head(client, bucket, key)
    if head is not None and _version(head) == version:
        client.delete_object(Bucket=bucket, Key=key)


@_brief_errors()
def check_writable(path: str) -> None:
    """Writes and deletes an object; raises OSError if that is not possible."""
    bucket, key = s3io.parse_s3_path(path)
    client = _client(_AT_ONCE)
    client.put_object(Bucket=bucket, Key=key, Body=b"?")
    client.delete_object(Bucket=bucket, Key=key)


@_brief_errors()
def check_readable(path: str) -> None:
    """Lists the objects at a path or glob; raises OSError if that is not allowed."""
    bucket, key = s3io.parse_s3_path(path, object_optional=True)
    prefix = prefix_before_glob(key)
    _client(_AT_ONCE).list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=1)


@_brief_errors()
def open_object(path: str, buffer_bytes: int) -> BinaryIO:
    """Opens an object as it is stored; a request fetches at least `buffer_bytes`."""
    store = s3io.S3IO(options=file_system_options())
    return cast(BinaryIO, store.open(path, "r", read_buffer_size=buffer_bytes))


def check_credentials(path: str) -> None:
    """Raises AccessError if the client finds no credentials."""
    options = file_system_options().view_as(S3Options)
    if options.s3_access_key_id is None and Session().get_credentials() is None:
        raise AccessError(
            f"{path} needs credentials of AWS, and none were found. Run aws configure, or set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. For a store of another address set "
            "AWS_ENDPOINT_URL, too."
        )


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", "ClientError"))


def _head(client: Any, bucket: str, key: str) -> Mapping[str, Any] | None:
    """Returns the properties of an object, or None if there is no such object."""
    try:
        return cast(Mapping[str, Any], client.head_object(Bucket=bucket, Key=key))
    except ClientError as error:
        if _code(error) in _MISSING:
            return None
        raise


def _version(found: Mapping[str, Any]) -> str:
    """Returns the version of an object of these properties."""
    mark = found.get("Metadata", {}).get(_MARK)
    return f"{found['ETag']} {mark or found['LastModified'].isoformat(timespec='seconds')}"


def _client(config: Config = _PATIENT) -> Any:
    given = file_system_options().view_as(S3Options)
    settings = {
        "region_name": given.s3_region_name,
        "use_ssl": not given.s3_disable_ssl,
        "verify": given.s3_verify,
        "endpoint_url": given.s3_endpoint_url,
        "aws_access_key_id": given.s3_access_key_id,
        "aws_secret_access_key": given.s3_secret_access_key,
        "aws_session_token": given.s3_session_token,
    }
    return _client_of(tuple(settings.items()), config)


@functools.lru_cache(maxsize=4)
def _client_of(settings: tuple[tuple[str, Any], ...], config: Config) -> Any:
    """Returns a client as Beam's own makes one; it is kept, since making one takes long."""
    return Session().client("s3", config=config, **dict(settings))
