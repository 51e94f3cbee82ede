"""Publishing a release: parts first, then the ledger in one step; and writing files made from one.

The files are a function of the released rows, the ledger and versions, and of nothing else that is
known about the data. Names of parts are derived from their content, so that a repeated bundle writes
the same files again.
"""

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
from msgspec import UNSET

from beam_dpne.elements import progress
from beam_dpne.elements.rows import Rows
from beam_dpne.errors import ReleaseError
from beam_dpne.release.ledger import ledger_bytes
from beam_dpne.release.parts import (
    OUTPUT_FORMATS,
    PART_NAME,
    content_sha256,
    program_of,
    render_parts,
)
from beam_dpne.release.places import LEDGER_NAME, check_outside
from beam_dpne.release.reading import (
    Release,
    decode_ledger,
    is_ledger,
    released_in,
)
from beam_dpne.release.schema import AnyLedger, Part
from beam_dpne.storage.directories import (
    Directory,
    as_release_error,
    check_access,
    directory_at,
    reason,
    require_file_system,
)
from beam_dpne.storage.paths import split
from beam_dpne.validation import check_choice

ROWS_PER_PART = 1_000_000
# What a killed run leaves of a file that it was writing.
_TEMPORARY_NAME = re.compile(
    rf"\.({PART_NAME.pattern}|{re.escape(LEDGER_NAME)}|probe)\.tmp-[0-9a-f]{{32}}"
)


def check_output(output: str, *, overwrite: bool, name: str = "output") -> None:
    """Checks, before a run, that a release can be published; leaves no file there.

    Args:
      output: Directory of the release; it may be missing.
      overwrite: Whether the directory may have a release, or other files, already.
      name: What the caller calls the output.

    Raises:
      ReleaseError: The path is a file, or the directory is not empty or cannot be written.
    """
    if not output:
        raise ReleaseError(f"`{name}` must be the path of a directory, got `{name}=''`.")
    directory = directory_at(output)
    with as_release_error(
        f"`{name}` must be a directory that can be written, got `{name}={output}`"
    ):
        names = directory.names()
        ledger = directory.read(LEDGER_NAME)
        if ledger is not None and not is_ledger(ledger):
            raise ReleaseError(
                f"`{name}` has a {LEDGER_NAME} that beam_dpne did not write, got `{name}={output}`. "
                "Choose another directory."
            )
        if names and not overwrite:
            state = "is not empty" if ledger is None else "is a release already"
            raise ReleaseError(
                f"`{name}` must be an empty or new directory, got `{name}={output}`, which {state}. "
                "Choose another directory, or set `overwrite`, which deletes only files of a release."
            )
        directory.probe()


def rendered(
    rows: Rows,
    ledger: AnyLedger,
    output_format: str = "jsonl",
    rows_per_part: int = ROWS_PER_PART,
) -> Iterator[tuple[str, bytes]]:
    """Yields name and bytes of each file of a release: the parts, and last the ledger.

    Args:
      rows: All rows, in order.
      ledger: The ledger, before files or of other files.
      output_format: Format of the parts.
      rows_per_part: Largest number of rows of a part.
    """
    program = program_of(ledger)
    listed: list[Part] = []
    for part, data in render_parts(program, rows, output_format, rows_per_part):
        listed.append(part)
        yield part.name, data
    whole = msgspec.structs.replace(ledger, rows=UNSET, content=content_sha256(rows), parts=listed)
    yield LEDGER_NAME, ledger_bytes(whole)


def publish_release(
    rows: Rows,
    ledger: AnyLedger,
    *,
    output: str,
    output_format: str = "jsonl",
    overwrite: bool = False,
    rows_per_part: int = ROWS_PER_PART,
    earlier: Callable[[], Sequence[bytes]] = tuple,
) -> str:
    """Publishes a release as files that a ledger lists.

    Args:
      rows: All rows, in order.
      ledger: The ledger before files.
      output: As in `WriteRelease`, which calls this function in a pipeline.
      output_format: As there.
      overwrite: As there.
      rows_per_part: As there.
      earlier: Returns what is `earlier` there; it is called when the output is locked, and once more
        before the ledger is put there, since other runs may have ended meanwhile.

    Returns:
      The path of the ledger.

    Raises:
      ReleaseError: A release exists and overwrite is off; or it, or an earlier one, has the noise of
        this one and is of another input; or the output cannot be written. The existing release stays
        as it was.
    """
    directory = directory_at(output)
    parts: list[str] = []
    with as_release_error(f"The release cannot be published in {output}"), directory.locked():
        # The ledger is read first. If another attempt publishes after that, this attempt is refused;
        # in the other order, parts that it wrote after the listing would stay for ever.
        current = directory.read(LEDGER_NAME)
        before = directory.names()
        is_writing = current is None or overwrite
        files = rendered(rows, ledger, output_format, rows_per_part)

        def with_one_noise() -> list[bytes]:
            there = () if current is None else (current,)
            return [each for each in (*there, *earlier()) if _have_one_noise(each, ledger)]

        if alike := with_one_noise():
            files = [*files]
            refuse_other_input(alike, files[-1][1])
        try:
            for name, data in files:
                if name == LEDGER_NAME:
                    refuse_other_input(with_one_noise(), data)
                    _put_last(directory, data, current, is_writing=is_writing)
                    continue
                parts.append(name)
                if is_writing:
                    directory.put(name, data)
        except BaseException:
            if is_writing:
                _withdraw(directory, parts)
            raise
        progress.enter(progress.PUBLISHED)
        # Files that came later may belong to another attempt.
        directory.remove(
            name
            for name in before
            if is_writing
            and (_TEMPORARY_NAME.fullmatch(name) or (overwrite and PART_NAME.fullmatch(name)))
            and name not in parts
        )
    # Names of parts are hashes of released rows, so the directory names the release.
    return directory.path_of(LEDGER_NAME)


def write_release(
    release: Release, output: str, output_format: str = "jsonl", *, overwrite: bool = False
) -> None:
    """Publishes a release that exists, in any format; its rows are checked against its ledger.

    Raises:
      ValueError: There is no such format.
      ReleaseError: The output cannot be written, or has a release or other files.
    """
    check_choice("output_format", output_format, OUTPUT_FORMATS)
    check_access([], [output])
    check_output(output, overwrite=overwrite, name="path")
    ledger = decode_ledger(json.dumps(release.ledger).encode(), release.path)
    publish_release(
        release.rows, ledger, output=output, output_format=output_format, overwrite=overwrite
    )


def _have_one_noise(current: bytes, ledger: AnyLedger) -> bool:
    """Whether the release that is there was made under the run key and the parameters of a new one."""
    own = ledger.run_key
    if not own.given or own.bound_commitment is UNSET:
        return False
    with contextlib.suppress(ReleaseError):  # Older versions drew other noise.
        return decode_ledger(current, LEDGER_NAME).run_key.bound_commitment == own.bound_commitment
    return False


def refuse_other_input(earlier: Iterable[bytes], ledger: bytes) -> None:
    """Checks that releases with the noise of a new one are the same release.

    Args:
      earlier: Their ledgers.
      ledger: The ledger of the new one.

    Raises:
      ReleaseError: One is of another input.
    """
    own = released_in(json.loads(ledger))
    if any(released_in(json.loads(each)) != own for each in earlier):
        raise ReleaseError(
            "the run key must be a fresh one for each input, but there is a release of another input "
            "under this key and these parameters. The difference of the two would be free of noise, "
            "so that this one is withheld. Take a fresh run key. Only if the input is the same, "
            "and versions of packages differ, the two are one release, which is there already."
        )


def _put_last(
    directory: Directory, ledger: bytes, current: bytes | None, *, is_writing: bool
) -> None:
    """Publishes by the ledger; one that is there and must stay is refused unless it is equal."""
    if is_writing:
        _put_ledger(directory, ledger, seen=current)
    elif ledger != current:
        raise ReleaseError(
            f"{directory.path} is a release already; choose another directory or set `overwrite`."
        )


def _put_ledger(directory: Directory, ledger: bytes, *, seen: bytes | None) -> None:
    """Writes the ledger, which publishes the release.

    Raises:
      ReleaseError: Another run has published there, or it is not known whether this one has.
    """
    try:
        directory.replace(LEDGER_NAME, ledger, seen=seen)
    except ReleaseError:
        raise
    except Exception as error:
        # The answer of an object store may be lost when it has done what it was asked to do.
        try:
            now = directory.read(LEDGER_NAME)
        except Exception:
            raise ReleaseError(
                f"it is not known whether the release in {directory.path} is published, since its "
                f"{LEDGER_NAME} was written, and the storage has not said that it has it "
                f"({reason(error)}). Look for that file before you run again: if it is there, the "
                "release is complete, and its budget is spent."
            ) from None
        if now != ledger:
            raise


def _withdraw(directory: Directory, written: Iterable[str]) -> None:
    """Deletes the parts of a failed attempt, unless the ledger that is there lists them."""
    with contextlib.suppress(Exception):
        ledger = directory.read(LEDGER_NAME) or b""
        names = directory.names()
        new = [name for name in written if name.encode() not in ledger]
        directory.remove(name for name in new if name in names)


def write_file(
    output: str,
    data: bytes,
    *,
    release: str | None = None,
    overwrite: bool,
    may_be_inside: bool = False,
) -> None:
    """Writes a file that is made from a release, such as a report: all of it, or nothing.

    Args:
      output: Its path, local or on any Beam file system; folders that are missing are made.
      data: Its bytes.
      release: Path of the release from which it is made, or None.
      overwrite: Whether a file that exists is replaced.
      may_be_inside: Whether it may be in the directory of a release.

    Raises:
      UsageError: The path is in a release.
      ReleaseError: The path names no file or one that exists, or it cannot be written.
    """
    require_file_system(output)
    if not may_be_inside:
        check_outside("output", output, release)
    folder, name = split(output)
    check_access([], [folder])
    directory = directory_at(folder)
    with as_release_error(f"`output` must be where a file can be written, got `output={output}`"):
        is_file = output[-1:] not in ("", "/") and name not in ("", LEDGER_NAME)
        if not is_file or (name in directory.names() and not overwrite):
            raise ReleaseError(
                f"`output` must be a new file, got `output={output}`. Choose another name, or set "
                "`overwrite`."
            )
        with directory.locked():
            directory.put(name, data)
