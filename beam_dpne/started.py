"""A mark that a run's first step leaves: by it a launcher knows that workers start and share storage.

An engine keeps a job whose workers cannot start (a wrong Python, say) in the state RUNNING for ever.
"""

import os
from typing import Any

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems


def mark_started(element: Any, path: str) -> Any:
    """Makes the mark and returns the element as it came; to be mapped over the first, single one.

    Raises:
      ValueError: if the mark cannot be made.
    """
    try:
        if FileSystems.get_scheme(path) is None:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            file.write(b"started\n")
    except (OSError, BeamIOError) as error:
        raise ValueError(
            f"temp_location must be writable by the workers, got {os.path.dirname(path)} "
            f"({type(error).__name__})."
        ) from None
    return element


def has_started(path: str) -> bool:
    """Whether the mark is there; raises if its storage does not answer."""
    return FileSystems.exists(path)
