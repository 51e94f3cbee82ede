"""Runs pytest in forks of a process that has imported the large libraries once.

It is started by its text, `python -c`, in the folder of a copy, so that it imports nothing of the
repository itself. Each line on stdin is a JSON object with the `arguments` of pytest, a file for its
`output`, and whether it `compiles`; each answer is a line with the fork's number, then one with its
exit status: 100 more than that of pytest.
"""

import contextlib
import importlib
import json
import os
import sys

_ENDED = 100


def main() -> None:
    """Imports what the command line names, then serves until stdin ends."""
    for name in sys.argv[1:]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _run(**request)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _run(arguments: list[str], output: str, compiles: bool) -> None:
    """Runs pytest, and ends the process."""
    os.setsid()
    place = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(place, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if not compiles:
        sys.dont_write_bytecode = True
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    import pytest

    status = 3
    with contextlib.suppress(BaseException):
        status = int(pytest.main(arguments))
    sys.stdout.flush()
    sys.stderr.flush()
    # Code under test that ends the process by itself does not look like tests that pass.
    os._exit(_ENDED + status)


if __name__ == "__main__":
    main()
