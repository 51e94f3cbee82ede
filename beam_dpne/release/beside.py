"""Files that are made from a release, such as reports and exports, and stay outside of it."""

import contextlib
import dataclasses
import re
from collections.abc import Iterator

from beam_dpne.errors import UsageError
from beam_dpne.release.files import (
    LEDGER_NAME,
    is_inside,
    is_local,
    release_around,
    release_folder,
)
from beam_dpne.release.parts import PART_NAME
from beam_dpne.storage.access import check_access, directory_at
from beam_dpne.storage.directories import Directory, reason


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputFile:
    """A file that is written once all of it is known.

    Attributes:
      directory: Its directory, which is made if it is missing.
      name: Its name there.
    """

    directory: Directory
    name: str

    @classmethod
    def at(
        cls, output: str, *, release: str, overwrite: bool, may_be_inside: bool = False
    ) -> "OutputFile":
        """Returns the file of a path, before anything is read.

        Args:
          output: Its path, local or on any Beam file system.
          release: Path of the release from which it is made.
          overwrite: Whether a file that exists is replaced.
          may_be_inside: Whether it may be in the directory of a release.

        Raises:
          UsageError: The path names no file, one of a release, one in a release, or one that exists.
        """
        name = re.split(r"[/\\]" if is_local(output) else "/", output)[-1]
        if name in ("", ".", "..") or (not is_local(output) and output.endswith(f"://{name}")):
            raise UsageError(f"output must be the path of a file, got output={output}.")
        if name == LEDGER_NAME or PART_NAME.fullmatch(name):
            raise UsageError(
                f"output must not have the name of a file of a release, got output={output}. Choose "
                "another name."
            )
        folder = output[: -len(name)] or "."
        check_access([], [folder])
        if not may_be_inside:
            check_outside(folder, release)
        directory = directory_at(folder)
        with writing_to(output):
            if name in directory.names() and not overwrite:
                raise UsageError(
                    f"output must be a new file, got output={output}. Choose another name, or give "
                    "--overwrite."
                )
        return cls(directory=directory, name=name)

    def write(self, data: bytes) -> None:
        """Writes the whole file, or nothing.

        Raises:
          UsageError: It cannot be written.
        """
        with writing_to(self.directory.path_of(self.name)), self.directory.locked():
            self.directory.put(self.name, data)


def check_outside(output: str, release: str) -> None:
    """Checks that a directory is neither a release nor inside one; links are followed.

    Args:
      output: The directory, local or on any Beam file system; it may be missing.
      release: Path of the release from which files are made for this directory.

    Raises:
      UsageError: It is a release, or inside one.
    """
    with writing_to(output):
        inside = is_inside(output, release_folder(release)) or release_around(output) is not None
    if inside:
        raise UsageError(
            f"output must be outside every release, got output={output}: what is in the directory of "
            "a release is published with it, and a later release there would have files of an earlier "
            "one beside it."
        )


@contextlib.contextmanager
def writing_to(output: str) -> Iterator[None]:
    """Replaces errors of storage by a UsageError that names the output."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"output must be where a file can be written, got output={output}: {reason(error)}."
        ) from None
