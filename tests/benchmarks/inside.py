"""Running a program inside this process, to look at it from within."""

import contextlib
import io
import runpy
import sys
import tempfile
from collections.abc import Sequence
from unittest import mock


def run_program(command: Sequence[str]) -> None:
    """Runs a script as `python` would, with a fresh --output; what it prints is dropped."""
    with tempfile.TemporaryDirectory() as work, contextlib.redirect_stdout(io.StringIO()):
        arguments = [*command, "--output", f"{work}/output"]
        with mock.patch.object(sys, "argv", arguments):
            try:
                runpy.run_path(command[0], run_name="__main__")
            except SystemExit as stop:
                if stop.code:
                    raise RuntimeError(f"{arguments} exited with {stop.code}.") from None
