"""Directories on Google Cloud Storage, whose writes name the generation of the object they replace.

Beam's file system has no such writes, and its errors are pages long. This module needs the extra `gcp`
and is imported for paths that begin with gs:// only.
"""

import contextlib
import errno
import uuid
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

import google.auth
from apache_beam.io.filesystems import FileSystems
from apache_beam.io.gcp.gcsfilesystem import GCSFileSystem
from apache_beam.io.gcp.gcsio import GcsIO
from google.api_core import exceptions
from google.auth.exceptions import GoogleAuthError
from google.cloud.storage.retry import DEFAULT_RETRY

from beam_dpne.errors import AccessError
from beam_dpne.storage.directories import Directory, overtaken

# Mark of an object that another attempt may have written, which this one must not delete.
_NOT_OURS = -1
# Checks before a run do not wait for storage that fails now.
_AT_ONCE: dict[str, Any] = {"retry": None, "timeout": 5}
_REASONS: tuple[tuple[type[Exception], int, str], ...] = (
    (
        exceptions.Forbidden,
        errno.EACCES,
        "permission denied; the account that runs this needs a role on bucket {}, "
        "roles/storage.objectViewer to read or roles/storage.objectUser to write",
    ),
    (exceptions.NotFound, errno.ENOENT, "bucket {} or the object does not exist"),
    (exceptions.Unauthorized, errno.EACCES, "Google's credentials were refused; renew them"),
    (GoogleAuthError, errno.EACCES, "Google's credentials were refused; renew them"),
)


class GcsDirectory(Directory):
    """A prefix of a bucket, as one attempt to publish sees it.

    Each write and each delete names the generation of the object that it expects. So one of several
    simultaneous attempts wins, and its release stays whole: the new ledger replaces only the ledger
    that this attempt has read, and an attempt deletes only objects that it wrote or that it found
    when it began. A part that exists is written again, though its bytes are the same, because
    another attempt may delete the old generation.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        bucket, prefix = split_path(path)
        self._bucket = _beam_gcs().client.bucket(bucket)
        self._prefix = f"{prefix.rstrip('/')}/" if prefix else ""
        self._generations: dict[str, int] = {}

    def path_of(self, name: str) -> str:
        """Returns the path of a file in this directory."""
        return f"gs://{self._bucket.name}/{self._prefix}{name}"

    def names(self) -> list[str]:
        """Returns the names of the files in the directory."""
        with _brief_errors(self.path):
            found = self._bucket.list_blobs(prefix=self._prefix, delimiter="/")
            generations = {blob.name[len(self._prefix) :]: blob.generation for blob in found}
        generations.pop("", None)
        self._generations = generations | self._generations
        # An object with which another attempt tries whether it may write is no file of the directory.
        return [name for name in generations if not name.startswith(".probe.tmp-")]

    def read(self, name: str) -> bytes | None:
        """Returns a file's bytes, or None if there is no such file."""
        with _brief_errors(self.path_of(name)):
            blob = self._bucket.get_blob(self._prefix + name)
            self._generations[name] = int(blob.generation or 0) if blob else 0
            return blob and blob.download_as_bytes(if_generation_match=blob.generation)

    def put(self, name: str, data: bytes) -> None:
        """Writes a whole file or nothing, and replaces a file of the same name."""
        is_new = name not in self._generations
        self._generations[name] = _NOT_OURS
        with _brief_errors(self.path_of(name)):
            if is_new:
                with contextlib.suppress(exceptions.PreconditionFailed):
                    self._generations[name] = self._upload(name, data, generation=0)
                    return
            self._upload(name, data)

    def replace(self, name: str, data: bytes, *, seen: bytes | None) -> None:
        """Replaces a file if its generation is still the one that was read last."""
        if data == seen:
            return
        with _brief_errors(self.path_of(name)):
            try:
                self._upload(name, data, self._generations.get(name, 0))
            except exceptions.PreconditionFailed:
                if self.read(name) != data:
                    raise overtaken(self.path) from None

    def probe(self) -> None:
        """Raises an error if no file can be written and deleted here."""
        blob = self._bucket.blob(f"{self._prefix}.probe.tmp-{uuid.uuid4().hex}")
        with _brief_errors(self.path):
            blob.upload_from_string(b"?", **_AT_ONCE)
            blob.delete(**_AT_ONCE)

    def _delete(self, name: str) -> None:
        generation = self._generations.get(name, _NOT_OURS)
        if generation == _NOT_OURS:
            return
        gone_or_replaced = (exceptions.NotFound, exceptions.PreconditionFailed)
        with _brief_errors(self.path_of(name)), contextlib.suppress(*gone_or_replaced):
            self._bucket.delete_blob(self._prefix + name, if_generation_match=generation)

    def _upload(self, name: str, data: bytes, generation: int | None = None) -> int:
        """Writes an object, if `generation` is None or still its generation; returns the new one."""
        blob = self._bucket.blob(self._prefix + name)
        blob.upload_from_string(
            data,
            content_type="application/octet-stream",
            if_generation_match=generation,
            retry=DEFAULT_RETRY,
        )
        return int(blob.generation or 0)


def split_path(path: str) -> tuple[str, str]:
    """Returns the bucket of a path, and the object's name or the prefix.

    Raises:
      AccessError: The path has no bucket.

    >>> split_path("gs://bucket/a/b"), split_path("gs://bucket")
    (('bucket', 'a/b'), ('bucket', ''))
    """
    bucket, _, name = path.removeprefix("gs://").partition("/")
    if not bucket:
        raise AccessError(f"gs:// paths must be gs://BUCKET/NAME, got {path}.")
    return bucket, name


def open_object(path: str, buffer_bytes: int) -> BinaryIO:
    """Opens an object as it is stored; a request fetches at least `buffer_bytes`.

    Raises:
      OSError: The object does not exist or cannot be read.
    """
    with _brief_errors(path):
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


def check_readable(path: str) -> None:
    """Checks that the objects at a path or glob can be listed.

    Raises:
      OSError: The bucket does not exist, or the account may not read it.
    """
    bucket, name = split_path(path)
    prefix = name.translate(str.maketrans("*?[", "***")).partition("*")[0]
    with _brief_errors(path):
        found = _beam_gcs().client.list_blobs(bucket, prefix=prefix, max_results=1, **_AT_ONCE)
        next(iter(found), None)


def _beam_gcs() -> GcsIO:
    """Returns the client of Beam's file system, with its options and credentials."""
    return cast(GCSFileSystem, FileSystems.get_filesystem("gs://"))._gcsIO()


@contextlib.contextmanager
def _brief_errors(path: str) -> Iterator[None]:
    """Replaces the client's errors, which are pages long, by an OSError of one sentence."""
    try:
        yield
    except (OSError, exceptions.GoogleAPIError, GoogleAuthError) as error:
        bucket = split_path(path)[0]
        for kind, number, sentence in _REASONS:
            if isinstance(error, kind):
                raise OSError(number, sentence.format(bucket)) from None
        cause = f"Google Cloud Storage gave no answer ({type(error).__name__})"
        raise OSError(errno.EIO, cause) from None
