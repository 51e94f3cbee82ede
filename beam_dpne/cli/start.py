"""The start of the program `beam-dpne`, as the whole of a process."""

import gc
import os
import sys
from collections.abc import Callable, Sequence

_INTERRUPTED, _TERMINATED = 130, 143


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `beam-dpne` with these arguments (those of the process by default)."""

    def program() -> int:
        from beam_dpne.cli.main import main

        return main(arguments)

    return run(program)


def run(program: Callable[[], int]) -> int:
    """Runs a program, and returns the exit status; Ctrl-C and SIGTERM end it with one line."""
    # What modules make stays until the end; a command looks for garbage when they are loaded.
    gc.disable()
    try:
        status = program()
    except KeyboardInterrupt:
        status = _INTERRUPTED
    if status in (_INTERRUPTED, _TERMINATED):
        # Threads of a runner may still be running, and the interpreter would wait for them.
        sys.stdout.flush()
        os._exit(status)
    return status
