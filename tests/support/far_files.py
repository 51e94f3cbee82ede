"""A Beam file system of another scheme: `far:///path` is the local file `/path`.

Workers fetch what is on it, as from an object store.
"""

import os

from apache_beam.io.localfilesystem import LocalFileSystem

_SCHEME = "far://"


def far(path: object) -> str:
    """Returns a local path as one that has to be fetched."""
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
