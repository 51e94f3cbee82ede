"""What is given as public must not be the private input."""

from collections.abc import Sequence

from beam_dpne import reading
from beam_dpne.errors import UsageError
from beam_dpne.release.public import same_file


def check_public(name: str, path: str, files: Sequence[reading.InputFile]) -> None:
    """Raises UsageError if a public file is one of the private ones, or has the same text.

    Args:
      name: of the option.
      path: its value.
      files: the private input.
    """
    for file in files:
        if same_file(path, file.path):
            raise UsageError(
                f"{name} must not be private data, got {name}={path}, which is the same as an input, "
                f"{file.path}. Give data that anybody may see."
            )
