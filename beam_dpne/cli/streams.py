"""The standard streams of a process. Its caller may have closed them, and they may be full."""

import contextlib
import errno
import io
import os
import sys

from beam_dpne.jobs.showing import is_whole


def prepare() -> None:
    """Opens the streams that the caller has closed, and lets stdout and stderr take every text.

    Otherwise a file of a release could get the number of a closed stream, and a letter that the
    encoding of a stream lacks would fail the command.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            # Processes that this one starts have the stream too.
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def drop_output() -> None:
    """Lets what this process prints on stdout from now on, or has not written yet, go nowhere."""
    if sys.stdout is not sys.__stdout__:
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def say(text: str) -> None:
    """Prints a line of the program on stderr; nothing fails if it cannot be written."""
    _print(f"beam-dpne: {text}")


def say_whole(what: str) -> None:
    """Says that a release is published although something has gone wrong after that."""
    say(is_whole(what))


def say_published(output: str) -> None:
    """Prints the last line of a run, which says that its release is published."""
    _print(f"published: {output}")


def _print(line: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


def is_about_output(error: BaseException) -> bool:
    """Whether an error says that nobody takes what is printed: a pipe has ended, or a disk is full."""
    is_full = isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None
    return is_full or isinstance(error, BrokenPipeError)
