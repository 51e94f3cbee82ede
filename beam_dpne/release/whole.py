"""A release and all that can be made of it: files, a report, a comparison with an earlier one."""

import dataclasses
import os
from collections.abc import Mapping, Sequence

import pyarrow as pa

from beam_dpne.errors import UsageError
from beam_dpne.reading.options import names_of
from beam_dpne.release import reading
from beam_dpne.release.changes import compare_releases
from beam_dpne.release.places import LEDGER_NAME
from beam_dpne.release.publishing import write_release
from beam_dpne.release.reading import IN_MEMORY, described_release
from beam_dpne.release.report import PARTS
from beam_dpne.validation import check_choice, check_integer


@dataclasses.dataclass(frozen=True, eq=False)
class Release(reading.Release):
    """A complete release: what its ledger says, and its rows, which are read when they are asked for.

    `read_release` opens one from its files, and the calls that release something from a frame give one
    in memory. Any library that takes Arrow's streams reads its rows (`pyarrow.table(release)`,
    `polars.DataFrame(release)`), those of one file after the other.

    Attributes:
      path: Directory of the release; "(in memory)" if its files are in memory.
      ledger: The whole ledger as JSON types, in reading order.
      ledger_sha256: SHA-256 of the ledger's bytes, hexadecimal.
      files: The bytes of its files by name, if they are in memory; None in a directory.
    """

    def _repr_html_(self) -> str:
        """Returns a first look at the release, which a notebook shows."""
        from beam_dpne.release.first_look import FIRST_ROWS, Choice, as_html, first_look

        return as_html(first_look(self, Choice(top=FIRST_ROWS)))

    def write(
        self, path: str | os.PathLike[str], output_format: str = "jsonl", *, overwrite: bool = False
    ) -> "Release":
        """Writes the release as files, with the bytes that a run of the command line writes.

        Args:
          path: New directory, local or e.g. gs://bucket/releases/2025-01.
          output_format: Format of the files of rows: jsonl, csv, tsv or parquet.
          overwrite: Whether a release in the directory is replaced.

        Returns:
          The release that is there now.

        Raises:
          ReleaseError: The directory cannot be written, or is not empty.
        """
        output = _as_path(path)
        write_release(self, output, output_format, overwrite=overwrite)
        return read_release(output)

    def report(
        self,
        *,
        since: reading.Release | None = None,
        output_format: str = "html",
        leave_out: Sequence[str] = (),
        at_least: float | None = None,
        top: int = 20,
    ) -> str:
        """Returns the report of the release for readers, as `beam-dpne report` writes it.

        Args:
          since: An earlier release, with which it is compared.
          output_format: html or markdown.
          leave_out: Names of parts that are left out, as of the option of that name.
          at_least: Least users of a row, or least score or probability of one without numbers of users.
          top: Number of rows of each length in the tables of top rows.

        Raises:
          ValueError: There is no such format, or no such part, or `since` is no release.
        """
        # Its templates take time to load.
        from beam_dpne.release.report.document import render_report

        check_choice("output_format", output_format, ("html", "markdown"))
        check_integer("top", top, 0)
        for part in names_of(leave_out):
            check_choice("leave_out", part, tuple(PARTS))
        page = render_report(
            self,
            since=since,
            output_format=output_format,
            left_out=names_of(leave_out),
            top_rows=top,
            at_least=at_least,
        )
        return page.decode()

    def compare(self, old: reading.Release) -> pa.Table:
        """Returns what is new, risen, fallen or gone since an earlier release.

        The columns are those of the file that `beam-dpne compare` writes.

        Raises:
          UsageError: The releases cannot be compared.
        """
        return compare_releases(old, self)


def read_release(path: str | os.PathLike[str]) -> Release:
    """Opens a release; the parts are those that the ledger lists, and each must be there.

    Their bytes are read and checked by the methods of the release.

    Args:
      path: Path of the release's directory, or of its `ledger.json`; local or on any Beam file system.

    Raises:
      ReleaseError: The release is incomplete, or its ledger is damaged.

    Example:
      >>> from beam_dpne import read_release
      >>> read_release("no/such/folder")
      Traceback (most recent call last):
      beam_dpne.errors.ReleaseError: no/such/folder/ledger.json does not exist: there is no release, \
or its publication was not completed.
    """
    return _whole(reading.read_release(_as_path(path)))


def _as_path(given: object) -> str:
    if not isinstance(given, str | os.PathLike):
        raise UsageError(
            f"`path` must be the path of a release's directory, got {type(given).__name__}."
        )
    return os.fspath(given)


def release_in_memory(files: Mapping[str, bytes]) -> Release:
    """Returns the release whose files are given by name.

    Raises:
      ReleaseError: There is no whole ledger among them.
    """
    ledger = files[LEDGER_NAME]
    release = described_release(ledger, LEDGER_NAME, folder=IN_MEMORY)
    return _whole(dataclasses.replace(release, files=files))


def _whole(release: reading.Release) -> Release:
    return Release(
        path=release.path,
        ledger=release.ledger,
        ledger_sha256=release.ledger_sha256,
        files=release.files,
    )
