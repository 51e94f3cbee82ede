"""Files by their paths: the operating system has local ones, and Beam's file systems all others.

Beam is loaded when a remote path is used, and not before, so that work on local files does without it.
"""

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, cast

if TYPE_CHECKING:
    from apache_beam.io.filesystem import FileMetadata
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import PipelineOptions

# What Beam takes as a path with a scheme.
_WITH_SCHEME = re.compile(r"([a-zA-Z][-a-zA-Z0-9+.]*)://.*")
# What stands above all folders: a scheme, and an account of Azure, which is no folder.
_ROOT = re.compile(r"[^/]+:/|azfs://[^/]+")


def scheme_of(path: str) -> str | None:
    """Returns the scheme of a remote path, such as "gs", or None if the path is local.

    >>> scheme_of("gs://bucket/notes.jsonl"), scheme_of("/data/notes.jsonl")
    ('gs', None)
    """
    found = _WITH_SCHEME.match(path.strip())
    return found[1] if found else None


def around(path: str) -> Iterator[str]:
    """Yields a path and the folders around it, below the root of its file system, account or bucket.

    >>> list(around("azfs://account/container/notes.jsonl"))
    ['azfs://account/container/notes.jsonl', 'azfs://account/container']
    """
    while path and not _ROOT.fullmatch(path):
        yield path
        path = path.rpartition("/")[0]


def is_local(path: str) -> bool:
    """Returns whether a path is on this machine, instead of on another Beam file system."""
    return scheme_of(path) is None


def is_pipe(path: str) -> bool:
    """Returns whether something on this machine can be read only once, as a pipe or a device."""
    if not is_local(path) or not os.path.exists(path):
        return False
    return not (os.path.isfile(path) or os.path.isdir(path))


def file_systems() -> "type[FileSystems]":
    """Returns Beam's file systems, and loads Beam for it."""
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.value_provider import RuntimeValueProvider

    # The file systems of S3 and Azure do not work without options.
    if FileSystems._pipeline_options is None and RuntimeValueProvider.runtime_options is None:
        from apache_beam.options.pipeline_options import PipelineOptions

        FileSystems.set_options(PipelineOptions([]))
    return FileSystems


def file_system_options() -> "PipelineOptions":
    """Returns the options that Beam's file systems use: those of the run, or on a worker of its job."""
    from apache_beam.options.value_provider import RuntimeValueProvider

    options = file_systems()._pipeline_options or RuntimeValueProvider.runtime_options
    return cast("PipelineOptions", options)


def join(folder: str, name: str) -> str:
    """Returns the path of a file in a folder."""
    return os.path.join(folder, name) if is_local(folder) else file_systems().join(folder, name)


def split(path: str) -> tuple[str, str]:
    """Returns the folder of a file, which is absolute if it is local, and the file's name in it."""
    return os.path.split(os.path.abspath(path)) if is_local(path) else file_systems().split(path)


def open_file(path: str) -> BinaryIO:
    """Opens a file for reading its bytes as they are stored, whatever its extension."""
    if is_local(path):
        return open(path, "rb")
    from apache_beam.io.filesystem import CompressionTypes

    return file_systems().open(path, compression_type=CompressionTypes.UNCOMPRESSED)


def create_file(path: str) -> BinaryIO:
    """Opens a file for writing its bytes, whatever its extension; local folders that miss are made."""
    if is_local(path):
        if folder := os.path.dirname(path):
            os.makedirs(folder, exist_ok=True)
        return open(path, "wb")
    from apache_beam.io.filesystem import CompressionTypes

    return file_systems().create(path, compression_type=CompressionTypes.UNCOMPRESSED)


def matching(pattern: str) -> "list[FileMetadata]":
    """Returns the path and the size of each remote file that matches a pattern."""
    return file_systems().match([pattern])[0].metadata_list


def has_folders(path: str) -> bool:
    """Returns whether the file system of a remote path has folders, as object stores have not."""
    return file_systems().get_filesystem(path).has_dirs()
