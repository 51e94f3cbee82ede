"""Applies planted mistakes, one after the other, to copies of the repository, and runs the tests there.

Each worker has a copy in a temporary folder; the repository itself is only read. A mistake is noticed
if its tests fail, and survives if they pass. Before the first one the tests must pass without any.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence

from tests.privacy.mutants.mutant import Mutant

KILLED, SURVIVED, TIMEOUT, BROKEN = "killed", "SURVIVED", "TIMEOUT", "BROKEN"
_PASSED, _FAILED = 0, 1
_ENDED = 100
_FIRST = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_SERVER = pathlib.Path(__file__).with_name("server.py")
_IGNORED = shutil.ignore_patterns("__pycache__", ".hypothesis", ".pytest_cache")


class BaselineError(RuntimeError):
    """Without any mistake the tests do not pass, or do not test the copy."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Suite:
    """What is copied, and how pytest runs in the copy.

    Attributes:
      root: of the repository.
      copied: files and folders under it that the tests need.
      package: the package that the mistakes are in.
      options: of pytest, beyond those of the runner.
      preloaded: modules outside the repository that are imported once for all runs.
      timeout: seconds for the tests of one mistake.
    """

    root: pathlib.Path
    copied: tuple[str, ...]
    package: str
    options: tuple[str, ...] = ()
    preloaded: tuple[str, ...] = ()
    timeout: float = 180


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What came of one mistake.

    Attributes:
      mutant: the mistake.
      outcome: KILLED, SURVIVED, TIMEOUT, or BROKEN: the tests could not run.
      seconds: what it took.
      by: the first test that failed, or what is wrong.
    """

    mutant: Mutant
    outcome: str
    seconds: float
    by: str = ""

    @property
    def is_fine(self) -> bool:
        """Whether the mistake was noticed, or is argued to be harmless and was not noticed."""
        if self.mutant.harmless is not None:
            return self.outcome == SURVIVED
        return self.outcome == KILLED or (self.outcome == TIMEOUT and self.mutant.may_hang)


def run(
    suite: Suite,
    mutants: Sequence[Mutant],
    *,
    jobs: int = 1,
    report: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Runs the tests of each mistake in copies; returns what came of each, in the order given.

    Args:
      suite: what is copied, and how tests run.
      mutants: the mistakes.
      jobs: copies that work at the same time.
      report: is called with each result as it comes, from one thread at a time.

    Raises:
      BaselineError: if the tests do not pass without a mistake.
    """
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(len(mutants)):
        waiting.put(number)
    results: dict[int, Result] = {}
    reporting = threading.Lock()

    def work(copy: "_Copy") -> None:
        while True:
            try:
                number = waiting.get_nowait()
            except queue.Empty:
                return
            result = copy.try_mutant(mutants[number])
            with reporting:
                results[number] = result
                report(result)

    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies = [_Copy(suite, pathlib.Path(folder, str(i))) for i in range(max(1, jobs))]
        try:
            copies[0].check_import()
            tests = sorted({test for mutant in mutants for test in mutant.tests})
            _at_once(lambda c: c.check_passes(tests[copies.index(c) :: len(copies)]), copies)
            _at_once(work, copies)
        finally:
            for copy in copies:
                copy.close()
    return [results[number] for number in sorted(results)]


def _at_once(work: Callable[["_Copy"], None], copies: Sequence["_Copy"]) -> None:
    """Runs a function on all copies in threads; raises the first error."""
    errors: list[BaseException] = []

    def guarded(copy: "_Copy") -> None:
        try:
            work(copy)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(copy,)) for copy in copies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class _Copy:
    """A copy of the repository, in which one mistake at a time is made and taken back."""

    def __init__(self, suite: Suite, folder: pathlib.Path):
        self._suite = suite
        self._folder = folder
        for name in suite.copied:
            source, target = suite.root / name, folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=_IGNORED)
            else:
                shutil.copy2(source, target)
        self._server = _Server(folder, suite.preloaded)

    def close(self) -> None:
        """Ends the process that runs the tests."""
        self._server.close()

    def check_import(self) -> None:
        """Raises unless Python finds the package in the copy."""
        code = f"import {self._suite.package} as package; print(package.__file__)"
        found = subprocess.run(
            [sys.executable, "-c", code],
            cwd=self._folder,
            env={**os.environ, "PYTHONPATH": str(self._folder)},
            capture_output=True,
            text=True,
            check=False,
        )
        place = pathlib.Path(found.stdout.strip() or os.sep).resolve()
        if not place.is_relative_to(self._folder.resolve()):
            raise BaselineError(
                f"{self._suite.package} is not imported from the copy: {found.stderr}"
            )

    def check_passes(self, tests: Sequence[str]) -> None:
        """Raises unless tests pass without a mistake; compiles the modules that they import."""
        if tests:
            status, said = self._pytest(tests, timeout=None, compiles=True)
            if status != _PASSED:
                raise BaselineError(f"Without a mistake the tests do not pass:\n{said}")

    def try_mutant(self, mutant: Mutant) -> Result:
        """Makes the mistake, runs its tests, and takes it back."""
        start = time.monotonic()
        path = self._folder / mutant.file
        try:
            source = path.read_text(encoding="utf-8")
            mutated = mutant.applied(source)
            compile(mutated, mutant.file, "exec")
        except (OSError, ValueError, SyntaxError) as error:
            return Result(mutant=mutant, outcome=BROKEN, seconds=0.0, by=str(error))
        times = path.stat()
        try:
            path.write_text(mutated, encoding="utf-8")
            # Bytecode is told by seconds and size, which the mistake may leave as they were.
            os.utime(path, (times.st_atime + 1000, times.st_mtime + 1000))
            outcome, by = self._outcome(mutant)
        finally:
            path.write_text(source, encoding="utf-8")
            os.utime(path, (times.st_atime, times.st_mtime))
        return Result(mutant=mutant, outcome=outcome, seconds=time.monotonic() - start, by=by)

    def _outcome(self, mutant: Mutant) -> tuple[str, str]:
        try:
            status, said = self._pytest(mutant.tests, timeout=self._suite.timeout, compiles=False)
        except TimeoutError:
            return TIMEOUT, f"not done after {self._suite.timeout:g} s"
        first = _FIRST.search(said)
        by = first.group(1) if first else ""
        if status == _PASSED:
            return SURVIVED, ""
        # A module that cannot be imported has no name of a test.
        if status == _FAILED and "::" in by:
            return KILLED, by
        last = said.strip().splitlines()[-1:]
        return BROKEN, by or f"pytest ended with {status}: {' '.join(last)}"

    def _pytest(
        self, tests: Sequence[str], *, timeout: float | None, compiles: bool
    ) -> tuple[int, str]:
        """Runs tests until one fails; returns the exit status and what pytest said.

        Raises:
          TimeoutError: if they are not done in time; they have been ended then.
        """
        options = ["-x", "-q", "--tb=no", "-rfE", "--no-header", "-p", "no:cacheprovider"]
        output = self._folder / "pytest.out"
        status = self._server.run(
            [*options, *self._suite.options, *tests], output, timeout, compiles
        )
        return status - _ENDED, output.read_text(encoding="utf-8", errors="replace")


class _Server:
    """A process that runs pytest in forks of itself; see `server`."""

    def __init__(self, folder: pathlib.Path, preloaded: Sequence[str]):
        kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVER.read_text(encoding="utf-8"), *preloaded],
            cwd=folder,
            env={**kept, "PYTHONPATH": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self, arguments: Sequence[str], output: pathlib.Path, timeout: float | None, compiles: bool
    ) -> int:
        """Runs pytest; returns its exit status, negative for a signal."""
        request = {"arguments": list(arguments), "output": str(output), "compiles": compiles}
        self._say(json.dumps(request))
        child = int(self._answer())
        late = threading.Event()

        def end() -> None:
            late.set()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)

        timer = threading.Timer(timeout or 10**6, end)
        timer.daemon = True
        timer.start()
        status = int(self._answer())
        timer.cancel()
        if late.is_set():
            raise TimeoutError
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        return status

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BaselineError("The process that runs the tests has ended.")
        return line
