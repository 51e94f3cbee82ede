"""Files of tests: permissions as they bind users, and a Beam file system of another scheme."""

import contextlib
import os
from collections.abc import Iterator

from apache_beam.io.localfilesystem import LocalFileSystem

_NOBODY = 65534
_SCHEME = "far://"


@contextlib.contextmanager
def without_privileges() -> Iterator[None]:
    """Gives up the rights of root, also where `os.access` asks for the real user, for a while."""
    is_root = os.getuid() == os.geteuid() == 0
    if is_root:
        os.setresuid(_NOBODY, _NOBODY, 0)
    try:
        yield
    finally:
        if is_root:
            os.setresuid(0, 0, 0)


def far(path: object) -> str:
    """Returns a local path as one that workers fetch, as from an object store."""
    return f"{_SCHEME}{path}"


class FarFileSystem(LocalFileSystem):
    """Local files under paths with a scheme, as far as sets are written, fetched and deleted there."""

    @classmethod
    def scheme(cls):
        return "far"

    def join(self, basepath, *paths):
        return os.path.join(basepath, *paths)

    def create(self, path, mime_type="", compression_type="auto"):
        os.makedirs(os.path.dirname(_local(path)), exist_ok=True)
        return super().create(_local(path), compression_type=compression_type)

    def open(self, path, mime_type="", compression_type="auto"):
        return super().open(_local(path), compression_type=compression_type)

    def exists(self, path):
        return super().exists(_local(path))


def _local(path: str) -> str:
    return path.removeprefix(_SCHEME)
