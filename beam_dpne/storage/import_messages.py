"""Beam's messages about missing packages of Google Cloud, which most users neither have nor need.

Beam logs two warnings while it is imported without its extra `gcp`. They are left out if this package
is imported before Beam. Users of gs:// without the extra get an error that names it (`io.schemes`).
"""

import importlib.util
import logging
import sys

# Of each message: the logger (None: the root), how it begins, and the package that is missing then.
_EXPECTED = (
    (None, "apitools not found", "apitools"),
    ("apache_beam.io.filesystems", "Failed to import GCSFileSystem", "google.cloud.storage"),
)


class _LeaveOut(logging.Filter):
    """Leaves out one message, once, and is gone; all other messages pass."""

    def __init__(self, logger: logging.Logger, beginning: str, package: str):
        super().__init__()
        self._logger = logger
        self._beginning = beginning
        self._package = package

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record passes: a package that is there and fails is worth its message."""
        if not str(record.msg).startswith(self._beginning) or is_installed(self._package):
            return True
        self._logger.removeFilter(self)
        return False


def leave_out_expected() -> None:
    """Waits for the messages that will come, unless Beam has been imported already."""
    if "apache_beam" in sys.modules:
        return
    for name, beginning, package in _EXPECTED:
        # To look for a package inside another one imports that.
        if "." in package or not is_installed(package):
            logger = logging.getLogger(name)
            logger.addFilter(_LeaveOut(logger, beginning, package))


def is_installed(module: str) -> bool:
    """Whether a module is there, without importing it (its parents are imported)."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ModuleNotFoundError, ValueError):
        return False
