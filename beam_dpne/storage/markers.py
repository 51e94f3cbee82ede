"""Marker files in a run's temporary folder, by which its launcher and its workers signal each other.

The launcher makes the file `wanted` before it submits a job, and deletes it when it gives the run up.
The first step of the job makes the file `started`. Both are needed because an engine keeps a job whose
workers cannot start (with a wrong Python, for example) in the state RUNNING for ever, and may run on a
job that was cancelled. Such a job must not publish.
"""

import dataclasses
import os

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_dpne.errors import SharedStorageError


@dataclasses.dataclass(frozen=True)
class Markers:
    """The marker files of one run.

    Attributes:
      folder: The run's temporary folder.
    """

    folder: str

    @property
    def wanted(self) -> str:
        """Path of the file that exists as long as the launcher wants the release."""
        return FileSystems.join(self.folder, "wanted")

    @property
    def started(self) -> str:
        """Path of the file that exists once a worker has done the first step."""
        return FileSystems.join(self.folder, "started")

    def require_wanted(self) -> None:
        """Raises SharedStorageError unless the launcher's marker can be seen from here."""
        if not FileSystems.exists(self.wanted):
            raise SharedStorageError(
                f"temp_location must be shared by launcher and workers, got {self.folder}, which a "
                "worker does not see; or the launcher gave this run up, and nothing is published."
            )

    def report_start(self) -> None:
        """Makes the marker of a worker's start.

        Raises:
          SharedStorageError: The marker cannot be made, or the run is not wanted any more.
        """
        self.require_wanted()
        make_marker(self.started)


def make_marker(path: str) -> None:
    """Makes a marker file and, on a local file system, its folder.

    Raises:
      SharedStorageError: The file cannot be made.
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
