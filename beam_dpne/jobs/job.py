"""A job: what is read, released and published, whoever runs it."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from beam_dpne.documents.private_run import PrivateRun
from beam_dpne.reading.files import InputFile
from beam_dpne.reading.options import ReadOptions
from beam_dpne.release.schema import ReleaseNotes


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Job:
    """What is read, released and published.

    Attributes:
      private: the parameters of the program.
      files: the files of the input.
      reading: how they are read.
      output: the directory of the release.
      output_format: the format of the files of rows.
      overwrite: whether a release that is there is replaced.
      notes: the operator's notes on the release.
      rejects: the operator's directory for the list of rejected records, or None.
      max_rejected: the largest share of the records that may be rejected.
      earlier: the ledgers of releases with the noise of this one that the run's budget or series has
        when the job is made.
    """

    private: PrivateRun
    files: Sequence[InputFile]
    reading: ReadOptions
    output: str
    output_format: str
    overwrite: bool
    notes: ReleaseNotes
    rejects: str | None
    max_rejected: float
    earlier: Sequence[bytes] = dataclasses.field(default=(), repr=False)


class ReadRecords(NamedTuple):
    """What is known of the records that a job has read; it is as secret as the data.

    Attributes:
      rejected: the number of records that could not be used.
      are_none: whether the input had no record, or none for which the conditions hold.
    """

    rejected: int
    are_none: bool

    def told(self, directory: str | None, option: str, *, quiet: bool) -> list[str]:
        """Returns what the operator is told: that there were no records, or how many were left out.

        Args:
          directory: where the rejected records are listed, or None.
          option: what would list them, as the face calls it.
          quiet: whether the operator wants no advice.
        """
        told: list[str] = []
        if self.are_none:
            told.append(
                "the input has no records, or --where holds for none, so nothing can be released"
            )
        if self.rejected and not quiet:
            where = f"see {directory}" if directory else f"{option} lists them with their reasons"
            noun = "record was" if self.rejected == 1 else "records were"
            told.append(f"{self.rejected:,} {noun} rejected ({where})")
        return told
