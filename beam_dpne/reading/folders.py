"""Folders as input: which of their files are data, and that these have one format."""

from collections.abc import Mapping

from beam_dpne.errors import InputError
from beam_dpne.reading.options import extension_of, format_of

_NOT_DATA = (".", "_")
_SHOWN = 5


def require_one_format(files: Mapping[str, int], given: str, input_format: str) -> dict[str, int]:
    """Returns the files of a folder that are data.

    Args:
      files: Paths of the files in the folder, and their sizes.
      given: The folder, as it was named.
      input_format: Of the files; `auto`: by extension.

    Raises:
      InputError: No file is left, or the extensions are not those of one known format.

    >>> require_one_format({"d/a.csv": 3, "d/b.csv.gz": 2, "d/_SUCCESS": 0}, "d", "auto")
    {'d/a.csv': 3, 'd/b.csv.gz': 2}
    """
    data = {path: size for path, size in files.items() if not _name(path).startswith(_NOT_DATA)}
    if not data:
        raise InputError(
            f"input must name files or a folder with files in it, got {given}, which has none. Names "
            "that begin with . or _ and folders within it do not count; for files in folders within, "
            f"use a glob such as {given.rstrip('/')}/*/*.jsonl."
        )
    if input_format == "auto":
        _require_one_extension(data, given)
    return data


def _name(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]


def _require_one_extension(paths: Mapping[str, int], given: str) -> None:
    formats: dict[str, str] = {}
    for path in sorted(paths):
        extension = extension_of(path)
        try:
            formats.setdefault(extension, format_of(path))
        except InputError as error:
            raise InputError(
                f"input must be a folder of files of one format, got {given}, which has a file with "
                f"{f'the extension {extension}' if extension else 'no extension'}. Name the files "
                f"by a glob such as {given.rstrip('/')}/*.jsonl, or their format with --input_format. "
                f"({error})"
            ) from None
    if len(set(formats.values())) > 1:
        found = ", ".join(list(formats)[:_SHOWN])
        raise InputError(
            f"input must be a folder of files of one format, got {given}, which has files with the "
            f"extensions {found}. Name those of one format by a glob such as "
            f"{given.rstrip('/')}/*{next(iter(formats))}."
        )
