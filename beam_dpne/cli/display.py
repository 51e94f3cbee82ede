"""The display of a run: a progress line on stderr, and tables on stdout."""

import contextlib
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.status import Status
from rich.table import Table

from beam_dpne.elements import progress
from beam_dpne.ngrams.adaptive import BUDGET_UNITS
from beam_dpne.ngrams.plan import PrivacyPlan

_REFRESH_SECONDS = 0.2
_PHRASES = {
    "": "starting",
    "engine": "running on the engine",
    "read": "reading and tokenizing",
    "users": "adding up contributions of users",
    "decide": "adding noise",
    "count": "counting users of the released rows",
    "released": "sorting the released rows",
    "publish": "writing the release",
}


@contextlib.contextmanager
def progress_line(*, max_length: int | None, input_bytes: int, quiet: bool) -> Iterator[None]:
    """Shows the progress of an embedded run on stderr: a live line on a terminal, else log lines.

    It shows the stage, the length, the time and the share of the input's bytes. Users and n-grams
    are never shown.

    Args:
      max_length: T, or None for programs that have no lengths.
      input_bytes: size in bytes of the input files as they are stored.
      quiet: whether nothing is shown.
    """
    progress.reset()
    if quiet:
        yield
        return
    console, done = _console(sys.stderr), threading.Event()
    start = time.monotonic()

    def shown() -> tuple[str, str]:
        """Returns the stage, and how far it is."""
        snapshot = progress.snapshot()
        text = _PHRASES.get(snapshot.stage, snapshot.stage)
        if max_length is not None and snapshot.length is not None:
            return f"length {snapshot.length} of {max_length}", f": {text}"
        if snapshot.stage == "read" and input_bytes:
            return text, f", {min(1.0, snapshot.bytes_read / input_bytes):.0%} of the input"
        return text, ""

    watch = _watch_terminal if console.is_terminal else _watch_log
    thread = threading.Thread(target=watch, args=(console, done, shown, start), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _watch_terminal(
    console: Console, done: threading.Event, shown: Callable[[], tuple[str, str]], start: float
) -> None:
    """Keeps one live line up to date until the run is done."""
    with Status("starting", console=console) as status:
        while not done.wait(_REFRESH_SECONDS):
            status.update(f"{''.join(shown())}, {time.monotonic() - start:.0f} s")


def _watch_log(
    console: Console, done: threading.Event, shown: Callable[[], tuple[str, str]], start: float
) -> None:
    """Prints one line for each length, and for each stage without a length, until the run is done."""
    last = _PHRASES[""]
    while not done.wait(_REFRESH_SECONDS):
        stage, _ = shown()
        if stage != last:
            last = stage
            console.print(f"beam-dpne: {time.monotonic() - start:6.1f} s  {stage}", soft_wrap=True)


def print_budget(plan: PrivacyPlan) -> None:
    """Prints the budget and the noise of a plan."""
    print_line(f"The plan has ε = {plan.epsilon:g}, δ = {plan.delta:g}.")
    if plan.is_adaptive:
        each = "at each length" if plan.user_budgets == "even" else "on all lengths together"
        print_line(
            f"Each user may spend μ² = {plan.allotment / BUDGET_UNITS:.4f} {each}: the sum of the "
            "squares of the user's weights, in rounds with noise 1."
        )
    else:
        noise = ", ".join(f"{length.noise_stddev:.4f}" for length in plan.lengths)
        print_line(f"Noise σ of lengths 1 to {plan.max_length}, in units of weight: {noise}.")
    if plan.count_noise is not None:
        print_line(
            f"Numbers of users have {plan.count_share:g} of the budget: the noise is "
            f"{plan.count_noise.row_stddev:.4f} on the sum of each n-gram, to which one user adds at "
            "most 1, divided among the n-grams that the user has."
        )
    print_line(
        f"Everything together: σ = {plan.noise_stddev:.5f}; δ for the noise "
        f"{plan.gaussian_delta:.3g}, for words of one user {plan.vocabulary_delta:.3g}; 1/1000 of "
        "ε and δ is kept for the imperfections of noise."
    )


@contextlib.contextmanager
def published(output: str) -> Iterator[None]:
    """Reports a failure to print the tables of a release as a notice, since the release is complete."""
    try:
        yield
    except (OSError, SystemExit):
        print_notice(f"beam-dpne: the release in {output} is complete; its table was not printed.")


def print_release(ledger: Mapping[str, Any], output: str, seconds: float) -> None:
    """Prints how many n-grams of each length a run released, from its ledger, and the directory."""
    times = _seconds_by_length()
    rows = [
        (
            str(length["length"]),
            f"{length['released']:,}",
            f"{length['noise_stddev']:.3f}",
            _number(length["threshold"]),
            "-" if length["valid"] is None else f"{length['valid']:,}",
            _number(times.get(length["length"])),
        )
        for length in ledger["lengths"]
    ]
    total = sum(length["released"] for length in ledger["lengths"])
    rows.append(("all", f"{total:,}", "", "", "", f"{seconds:.2f}"))
    headings = ("length", "n-grams", "noise σ", "lowest ρ", "valid", "seconds")
    _print_released(ledger, output, headings, rows)


def print_items(ledger: Mapping[str, Any], output: str, seconds: float) -> None:
    """Prints how many items a set union released, from its ledger, and the directory."""
    mechanism = ledger["mechanism"]
    *_, last = mechanism["rounds"]
    row = (
        mechanism["policy"],
        f"{mechanism['released']:,}",
        f"{last['noise_stddev']:.3f}",
        _number(last["threshold"]),
        _number(last["cutoff"]),
        str(mechanism["shards"]),
        f"{seconds:.2f}",
    )
    headings = ("policy", "items", "noise σ", "threshold ρ", "cutoff Γ", "shards", "seconds")
    _print_released(ledger, output, headings, [row])


def print_probabilities(ledger: Mapping[str, Any], output: str, seconds: float) -> None:
    """Prints how many probabilities a run released, from its ledger, and the directory."""
    mechanism = ledger["mechanism"]
    row = (
        f"{mechanism['released']:,}",
        str(mechanism["public"]["length"]),
        f"{mechanism['noise_stddev']:.4g}",
        f"{mechanism['sensitivity']:.4g}",
        f"{seconds:.2f}",
    )
    headings = ("n-grams", "length", "noise σ", "sensitivity", "seconds")
    _print_released(ledger, output, headings, [row])


def print_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table, in which columns of numbers are aligned right."""
    stdout_console().print(_table(title, headings, rows))


def _table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left")
    for column, heading in enumerate(headings):
        numeric = all(re.match(r"[-+<]?[\d∞]|-?$", row[column]) for row in rows)
        # A text that is too long goes on in the next line, and no part of it is cut off.
        table.add_column(heading, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _print_released(
    ledger: Mapping[str, Any],
    output: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
) -> None:
    """Prints the title and the privacy unit if the operator gave them, the table and the directory."""
    notes = ledger["notes"]
    if notes["title"] is not None:
        print_line(f"Title: {notes['title']}")
    if notes["unit"] is not None:
        print_line(f"One user is {notes['unit']}.")
    print_table("Released", headings, rows)
    print_line(f"Files: {output} (start with ledger.json)")


def print_notice(text: str) -> None:
    """Prints one line for the operator on stderr."""
    _console(sys.stderr).print(text, soft_wrap=True)


def print_line(text: str) -> None:
    """Prints one line on stdout."""
    stdout_console().print(text, soft_wrap=True)


def stdout_console() -> Console:
    """Returns a console on stdout, 100 characters wide if that is no terminal."""
    console = _console(sys.stdout)
    return console if console.is_terminal else _console(sys.stdout, width=100)


def _console(file: TextIO, width: int | None = None) -> Console:
    """Returns a console that shows words and paths as they are, without markup or emoji codes."""
    return Console(file=file, width=width, markup=False, emoji=False, highlight=False)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _seconds_by_length() -> dict[int, float]:
    """Returns the seconds between the release of one length and of the one before."""
    marks = progress.marks()
    seconds = {}
    for length in range(1, len(marks)):
        if length in marks:
            seconds[length] = marks[length] - marks.get(length - 1, marks[0])
    return seconds
