"""Writing an export: a whole file or nothing, and beside it a small file with the ledger's hash.

The formats ARPA, CSV, NDJSON and tokenizer.json have no place for the hash. Their exports get a second
file, NAME.source.json, with the hashes of the ledger and of the export. It is written first, so that
there is never an export without it.
"""

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator, Mapping

from beam_dpne.errors import ExportError, ReleaseError
from beam_dpne.exports.kinds import Kind, Settings, check_program, check_settings, kind_named
from beam_dpne.exports.source import Rendered, Source
from beam_dpne.release.files import (
    LEDGER_NAME,
    PART_NAME,
    is_inside,
    is_local,
    read_ledger,
    release_around,
    release_folder,
)
from beam_dpne.storage.access import check_access, directory_at
from beam_dpne.storage.directories import Directory, reason

BESIDE = ".source.json"


def export(
    release: str,
    to: str,
    output: str,
    *,
    settings: Settings | None = None,
    overwrite: bool = False,
) -> Rendered:
    """Exports a release to one file.

    It reads the release alone and costs no privacy budget.

    Args:
      release: Path of the release's directory, or of its `ledger.json`; local or on any Beam file
        system.
      to: Name of the kind, see `KINDS`.
      output: Path of the file; folders that are missing are made.
      settings: The choices that some kinds need; None for none.
      overwrite: Whether a file that exists is replaced.

    Returns:
      The bytes of the file, and how many rows the format could not hold, by reason.

    Raises:
      ReleaseError: The release is incomplete or damaged.
      ExportError: The kind is unknown or cannot take this release, a setting is wrong, or the output
        exists, cannot be written, or is in a release, where only "card" may be. Nothing was written
        then.

    >>> export("release/titles", "parquet", "titles.parquet")
    Traceback (most recent call last):
    beam_dpne.errors.ExportError: to must be one of tokenizers, arpa, aosp, elasticsearch, csv, \
    duckdb, card, got to=parquet.
    """
    kind, settings = kind_named(to), settings or Settings()
    check_settings(kind, settings)
    folder, name = _split(output)
    check_access([release], [folder])
    check_program(kind, read_ledger(release)["program"])
    names = (name,) if kind.has_hash else (name + BESIDE, name)
    if not kind.beside_release:
        _check_outside(output, folder, release)
    directory = directory_at(folder)
    with _writing_to(output):
        seen = {each: directory.read(each) for each in names}
    _check_new(seen, directory, overwrite=overwrite)
    source = Source.read(release)
    rendered = kind.render(source, settings)
    files = {name: rendered.data}
    if not kind.has_hash:
        files = {name + BESIDE: _beside(source, kind, rendered.data), name: rendered.data}
    with _writing_to(output), directory.locked():
        _write(directory, files, seen)
    return rendered


def _split(output: str) -> tuple[str, str]:
    """Returns the folder and the name of a file that may be written.

    Raises:
      ExportError: The path names no file, or a file of a release.
    """
    separators = r"[/\\]" if is_local(output) else "/"
    name = re.split(separators, output)[-1]
    if not name or name in (".", "..") or (not is_local(output) and output.endswith(f"://{name}")):
        raise ExportError(f"output must be the path of a file, got output={output!r}.")
    if name == LEDGER_NAME or PART_NAME.fullmatch(name):
        raise ExportError(
            f"output must not have the name of a file of a release, got output={output}. Choose "
            "another name."
        )
    return output[: -len(name)] or ".", name


def _check_outside(output: str, folder: str, release: str) -> None:
    with _writing_to(output):
        inside = is_inside(output, release_folder(release)) or release_around(folder) is not None
    if inside:
        raise ExportError(
            f"output must be outside every release, got output={output}: a later release in the same "
            "directory would have an export of an earlier one beside it."
        )


def _check_new(seen: Mapping[str, bytes | None], directory: Directory, *, overwrite: bool) -> None:
    for name, data in seen.items():
        if data is not None and not overwrite:
            raise ExportError(
                f"output must be a new file, got {directory.path_of(name)}, which exists. Choose "
                "another name, or --overwrite."
            )


def _beside(source: Source, kind: Kind, data: bytes) -> bytes:
    """Returns the small file that says from which release an export was made."""
    facts = {
        "what": f"The source of an export as {kind.name}: a release of beam-dpne {source.program}.",
        "title": source.title,
        "epsilon": source.ledger["plan"]["epsilon"],
        "delta": source.ledger["plan"]["delta"],
        "ledger_sha256": source.ledger_sha256,
        "export_sha256": hashlib.sha256(data).hexdigest(),
    }
    return (json.dumps(facts, indent=2, ensure_ascii=False) + "\n").encode()


def _write(
    directory: Directory, files: Mapping[str, bytes], seen: Mapping[str, bytes | None]
) -> None:
    """Writes the files in order; if one fails, new files that were written before it are deleted."""
    written = []
    try:
        for name, data in files.items():
            directory.replace(name, data, seen=seen[name])
            written.append(name)
    except BaseException:
        with contextlib.suppress(Exception):
            new = [name for name in written if seen[name] is None]
            # On gs:// only an object that was read can be deleted.
            directory.remove([name for name in new if directory.read(name) == files[name]])
        raise


@contextlib.contextmanager
def _writing_to(output: str) -> Iterator[None]:
    try:
        yield
    except ReleaseError:
        raise ExportError(
            f"output must be a file that nobody else writes, got output={output}, which has changed "
            "meanwhile. Run again."
        ) from None
    except OSError as error:
        raise ExportError(
            f"output must be a file that can be written, got output={output}: {reason(error)}."
        ) from None
