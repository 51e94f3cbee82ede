"""python -m pipelines.experiments.cost FILE OPTION…: runs `beam-dpne`, and writes its cost."""

import json
import os
import pathlib
import resource
import sys
from collections.abc import Mapping, Sequence

from beam_dpne.cli.main import main

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_STATUS = pathlib.Path("/proc/self/status")
_UNIT = 1 if sys.platform == "darwin" else 1024


def run(arguments: Sequence[str]) -> int:
    """Runs a program in this process and writes its cost to a file, which the first argument names."""
    cost_file, *rest = arguments
    status = main(rest)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cost = {"peak_bytes": peak_bytes(), "cpu_seconds": usage.ru_utime + usage.ru_stime}
    pathlib.Path(cost_file).write_text(json.dumps(cost), encoding="utf-8")
    return status


def environment() -> Mapping[str, str]:
    """Returns an environment with the repository, in which another process finds this module."""
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def peak_bytes() -> int:
    """Returns the peak of this process's resident memory.

    On Linux it is read from the process's status, because `ru_maxrss` begins with the peak of the
    parent, which may hold a corpus.
    """
    if _STATUS.is_file():
        for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
