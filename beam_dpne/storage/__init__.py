"""Files and directories, local and remote: access, locks, run keys and markers of runs.

This module itself is imported before Beam and must not import it. While Beam is imported without its
extra `gcp`, it logs two warnings about packages of Google Cloud, which most users do not need. They are
suppressed here. Users of gs:// without the extra get an error that names it (`directories`).
"""

import importlib.util
import logging
import sys

# For each message: its logger (None is the root), its beginning, and the package that is missing.
_EXPECTED = (
    (None, "apitools not found", "apitools"),
    ("apache_beam.io.filesystems", "Failed to import GCSFileSystem", "google.cloud.storage"),
)


class _LeaveOut(logging.Filter):
    """A filter that suppresses one message once and then removes itself; other messages pass."""

    def __init__(self, logger: logging.Logger, beginning: str, package: str):
        super().__init__()
        self._logger = logger
        self._beginning = beginning
        self._package = package

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns whether a record passes; an installed package that fails is worth its message."""
        if not str(record.msg).startswith(self._beginning) or is_installed(self._package):
            return True
        self._logger.removeFilter(self)
        return False


def leave_out_expected() -> None:
    """Installs filters for the messages to come, unless Beam has been imported already."""
    if "apache_beam" in sys.modules:
        return
    for name, beginning, package in _EXPECTED:
        # find_spec of a package inside another one would import the outer one, so it is not looked for.
        if "." in package or not is_installed(package):
            logger = logging.getLogger(name)
            logger.addFilter(_LeaveOut(logger, beginning, package))


def is_installed(module: str) -> bool:
    """Returns whether a module can be found, without importing it; its parents are imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ModuleNotFoundError, ValueError):
        return False
