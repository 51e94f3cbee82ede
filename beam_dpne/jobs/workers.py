"""The number of processes of the local driver: by the cores, the memory and the size of the input."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from beam_dpne.elements.processes import can_fork
from beam_dpne.errors import UsageError
from beam_dpne.jobs import limits
from beam_dpne.jobs.made import Made
from beam_dpne.jobs.parameters import MOST_WORKERS, Running
from beam_dpne.jobs.showing import Showing
from beam_dpne.reading.files import InputFile, text_bytes
from beam_dpne.reading.options import ReadOptions

if TYPE_CHECKING:
    from beam_dpne.jobs.engine import BeamOptions

# Bytes of text for each process, unless their number is given, and of sequences of numbers, which have
# more tokens. On two cores two processes took longer than one for 9 MB of titles, and a fifth less than
# one for the 12 MB of MSNBC's sequences.
_SHARE_BYTES = 8 * 2**20
_SHARE_OF_SEQUENCES = 2 * 2**20


def check_workers(made: Made, options: "BeamOptions | None") -> None:
    """Raises UsageError if a number of processes is given, and Beam runs the job."""
    given = made[Running].workers
    if given is not None and _is_on_runner(options):
        raise UsageError(
            f"`workers` must be left out with --runner, got `workers={given}`: it is the number of "
            "processes on this machine. An engine has options of its own for its workers, such as "
            "--max_num_workers of Dataflow and --parallelism of Flink."
        )


def _is_on_runner(options: "BeamOptions | None") -> bool:
    return options is not None and options.runner is not None


def workers_of(
    made: Made,
    options: "BeamOptions | None",
    files: Sequence[InputFile],
    reading: ReadOptions,
    showing: Showing,
) -> int | None:
    """Returns the number of processes of the local driver; None if Beam runs the job."""
    if _is_on_runner(options):
        return None
    given = made[Running].workers
    wanted = given or min(limits.cores(), MOST_WORKERS, _shares(files, reading))
    if wanted > 1 and sys.platform == "linux" and not can_fork():
        showing.advise(
            "one process does all the work, since this system gives no memory without a name "
            "(memfd_create), in which several would share the data."
        )
        return 1
    return given or _within_memory(wanted, showing)


def _shares(files: Sequence[InputFile], reading: ReadOptions) -> int:
    """Returns for how many processes an input has so much text that each saves more than it costs."""
    are_numbers = reading.input_format == "sequences"
    share = _SHARE_OF_SEQUENCES if are_numbers else _SHARE_BYTES
    return max(1, text_bytes(files) // share)


def _within_memory(wanted: int, showing: Showing) -> int:
    """Returns the number of processes that the memory of this run allows; tells if it is smaller."""
    available = limits.memory()
    if available is None:
        return wanted
    fitting = max(1, available // limits.MEMORY_OF_PROCESS)
    if fitting < wanted:
        showing.advise(
            f"not all cores work, since this run may use {available / 2**20:,.0f} MiB of memory; "
            "workers sets another number of processes."
        )
    return min(wanted, fitting)
