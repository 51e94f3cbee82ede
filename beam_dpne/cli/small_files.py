"""Small public files: local, or on any Beam file system, which is loaded only for those."""

import pathlib
from typing import Any

from beam_dpne.errors import UsageError


def read_text(path: str, name: str, wanted: str) -> str:
    """Returns the text of a file.

    Args:
      path: path of the file.
      name: name of the option that gives it, for errors.
      wanted: description of the file that should be named, for errors.

    Raises:
      UsageError: if it cannot be read, or is no UTF-8.
    """
    systems = _file_systems(path)
    try:
        if systems is None:
            return pathlib.Path(path).read_bytes().decode("utf-8")
        with systems.open(path, compression_type="uncompressed") as file:
            return file.read().decode("utf-8")
    except Exception as error:
        raise UsageError(
            f"{name} cannot be read, got {path} ({type(error).__name__}). Name {wanted}."
        ) from None


def write_text(path: str, text: str) -> None:
    """Writes the file of the option `output`.

    Raises:
      UsageError: if it cannot be written.
    """
    systems = _file_systems(path)
    try:
        if systems is None:
            pathlib.Path(path).write_bytes(text.encode("utf-8"))
            return
        with systems.create(path, compression_type="uncompressed") as file:
            file.write(text.encode("utf-8"))
    except Exception as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise UsageError(f"output cannot be written, got {path} ({why}).") from None


def _file_systems(path: str) -> Any:
    """Returns Beam's file systems for a path on one of them, else None.

    Raises:
      AccessError: if the file system cannot be used.
    """
    if "://" not in path:
        return None
    from apache_beam.io.filesystems import FileSystems

    from beam_dpne.storage.access import check_access
    from beam_dpne.storage.directories import connect_anonymously_to_emulators

    connect_anonymously_to_emulators()
    check_access([path], [])
    return FileSystems
