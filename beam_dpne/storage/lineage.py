"""Lineage: the inputs and the output of a run, which Beam reports to catalogues through its metrics.

Catalogues of data are read by more people than the data are. So only names that the operator chose are
reported: inputs as they were given, as Beam's own file sources report them, and the directory of a
release. The files that match a pattern are not reported, since there may be one for each user, named
after the user. Files of the run itself, such as keys and temporary files, are not reported either.
"""

import logging
import os
from collections.abc import Callable, Iterable

from apache_beam.io.filesystems import FileSystems

from beam_dpne.storage.directories import reason

_log = logging.getLogger(__name__)


def report_sources(patterns: Iterable[str]) -> None:
    """Reports paths or patterns of files as inputs of the run; has no effect outside of a pipeline.

    Beam adds them to the metrics of the bundle that a worker is processing in this thread.
    """
    for pattern in patterns:
        _report(FileSystems.report_source_lineage, pattern)


def report_sink(path: str) -> None:
    """Reports a file or directory as an output of the run; has no effect outside of a pipeline."""
    _report(FileSystems.report_sink_lineage, path)


def absolute_path(path: str) -> str:
    """Makes local paths absolute, so that each file has one name."""
    if FileSystems.get_scheme(path) is not None:
        return path
    return os.path.abspath(os.path.expanduser(path))


def _report(report: Callable[[str], None], path: str) -> None:
    """Reports a path; a failure is logged and does not fail the run, which needs no lineage."""
    try:
        report(absolute_path(path).rstrip("/"))
    except Exception as error:
        _log.warning("The lineage of %s could not be reported: %s.", path, reason(error))
