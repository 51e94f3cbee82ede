"""Marks in the run's temporary location, by which a launcher and its workers know of each other.

The launcher makes `wanted` before it submits a job, and deletes it when it gives the run up. The first
step makes `started`. An engine keeps a job whose workers cannot start (a wrong Python, say) in the
state RUNNING for ever, and may run on a job that was cancelled: such a run must not publish.
"""

import dataclasses
import os
from typing import Any

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_dpne.errors import SharedStorageError


@dataclasses.dataclass(frozen=True)
class Marks:
    """The marks of one run.

    Attributes:
      folder: the run's temporary location.
    """

    folder: str

    @property
    def wanted(self) -> str:
        """File that is there as long as the launcher wants the release."""
        return FileSystems.join(self.folder, "wanted")

    @property
    def started(self) -> str:
        """File that is there when a worker has done the first step."""
        return FileSystems.join(self.folder, "started")

    def require_wanted(self) -> None:
        """Raises SharedStorageError if the launcher's mark is not to be seen from here."""
        if not FileSystems.exists(self.wanted):
            raise SharedStorageError(
                f"temp_location must be shared by launcher and workers, got {self.folder}, which a "
                "worker does not see; or the launcher gave this run up, and nothing is published."
            )


def mark_started(element: Any, marks: Marks) -> Any:
    """Makes the mark and returns the element as it came; to be mapped over the first, single one.

    Raises:
      SharedStorageError: if the mark cannot be made, or the run is not wanted any more.
    """
    marks.require_wanted()
    make_mark(marks.started)
    return element


def make_mark(path: str) -> None:
    """Makes a mark, and its folder on a local file system.

    Raises:
      SharedStorageError: if that cannot be done.
    """
    try:
        if FileSystems.get_scheme(path) is None:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            file.write(b"1\n")
    except (OSError, BeamIOError) as error:
        raise SharedStorageError(
            f"temp_location must be writable by launcher and workers, got {os.path.dirname(path)} "
            f"({type(error).__name__})."
        ) from None
