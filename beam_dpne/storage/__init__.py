"""Directories, local and remote, and access to them.

This module itself is imported before Beam and must not import it. While Beam is imported without its
extra `gcp`, it logs two warnings about packages of Google Cloud, which most users do not need. They are
suppressed here. Users of gs:// without the extra get an error that names it (`directories`).
"""

import logging
import sys

# The beginning of each message, and its logger; None is the root.
_EXPECTED = {
    "apitools not found": None,
    "Failed to import GCSFileSystem": "apache_beam.io.filesystems",
}


def leave_out_expected() -> None:
    """Suppresses the messages to come, unless Beam has been imported already."""
    for beginning, name in {} if "apache_beam" in sys.modules else _EXPECTED.items():
        logging.getLogger(name).addFilter(
            lambda record, beginning=beginning: not str(record.msg).startswith(beginning)
        )
