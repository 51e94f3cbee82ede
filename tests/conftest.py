"""Programs run in this process, or in one of their own; what they print is kept."""

import contextlib
import gc
import io
import logging
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import hypothesis
import pytest

from tests.support import pipelines

# A machine may be busy; how long an example takes says nothing about whether it is true.
hypothesis.settings.register_profile("same", deadline=None, derandomize=True)
hypothesis.settings.register_profile("random", deadline=None)
hypothesis.settings.load_profile("same")

# A background shell ignores Ctrl-C, and so do all processes that it starts; tests send it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = pathlib.Path(__file__).resolve().parents[1]


pipelines.install()


def pytest_collection_finish() -> None:
    """Leaves the imported modules out of garbage collections, and has fewer of them."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


class Ended(NamedTuple):
    """How a program ended."""

    status: int
    out: str
    err: str


def _run_cli(*arguments: object) -> Ended:
    from beam_dpne.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main([str(argument) for argument in arguments])
    return Ended(status, out.getvalue(), err.getvalue())


class Program:
    """`beam-dpne` as a process, with a temporary directory of its own."""

    def __init__(self, temporary: pathlib.Path):
        self.temporary = temporary

    def command(self, *arguments: object) -> list[str]:
        return [sys.executable, "-m", "beam_dpne", *map(str, arguments)]

    def environment(self, **others: str) -> Mapping[str, str]:
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        ours = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "TMPDIR": str(self.temporary)}
        return {**os.environ, **ours, **others}

    def start(self, *arguments: object, **settings) -> subprocess.Popen:
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        settings = {**piped, "env": self.environment(), **settings}
        return subprocess.Popen(self.command(*arguments), **settings)

    def run_python(self, script: str) -> Ended:
        ended = subprocess.run(
            [sys.executable, "-c", script],
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    def run(self, *arguments: object, timeout: float = 120, **settings) -> Ended:
        with self.start(*arguments, **settings) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                _, err = process.communicate()
                raise AssertionError(f"Not done after {timeout} s; it said:\n{err}") from None
        return Ended(process.returncode, out, err)


@pytest.fixture(scope="session")
def cli() -> Callable[..., Ended]:
    """Runs `beam_dpne.cli.main.main` on its arguments."""
    return _run_cli


@pytest.fixture
def program(tmp_path_factory) -> Program:
    """Starts `beam-dpne` as a process."""
    return Program(tmp_path_factory.mktemp("temporary"))


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """What a handler gets that the caller of a run has for all that is logged."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield text
    root.setLevel(level)
    root.removeHandler(handler)


def pytest_configure(config: pytest.Config) -> None:
    """Makes warnings errors in the plain tests; engines and their clients warn of their own affairs.

    Plain tests run in a random order that is the same in each run, unless `--randomly-seed` is given.
    Those of an engine share it, and some kill a part of it: they run in the order of their files.
    """
    if getattr(config.option, "randomly_seed", None) == "default":
        config.option.randomly_seed = 20261126
    if "not engines" in (config.option.markexpr or ""):
        config.getini("filterwarnings").insert(0, "error")
    else:
        config.option.randomly_reorganize = False
