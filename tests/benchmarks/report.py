"""What the benchmarks found: figures beside their targets, and listings."""

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.benchmarks.measure import Run

MEGABYTE = 1e6
_LEAST = 1e-3  # what start-up leaves is never taken to be less


@dataclasses.dataclass(frozen=True)
class Figure:
    """One measured quantity, one value for each repeat; its median should be at most `target`.

    `clear` is false where the difference between run and start-up drowns in noise: no verdict then.
    With `at_least` the median should be at least `target`.
    """

    benchmark: str
    what: str
    values: Sequence[float]
    unit: str
    target: float | None = None
    clear: bool = True
    at_least: bool = False

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def met(self) -> bool | None:
        if self.target is None or not self.clear:
            return None
        return self.median >= self.target if self.at_least else self.median <= self.target

    @property
    def target_text(self) -> str:
        if self.target is None:
            return ""
        return f"{'≥' if self.at_least else '≤'} {number(self.target)} {self.unit}"

    @property
    def verdict(self) -> str:
        if not self.clear:
            return "too small to tell"
        return {None: "", True: "met", False: "not met"}[self.met]

    def as_json(self) -> dict[str, Any]:
        judged = {"median": self.median, "met": self.met, "verdict": self.verdict}
        return {**dataclasses.asdict(self), **judged}


@dataclasses.dataclass(frozen=True)
class Listing:
    """Rows behind the figures."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclasses.dataclass(frozen=True)
class Report:
    """The results of one benchmark, and the rows that it could not measure, with their reasons."""

    figures: Sequence[Figure]
    listings: Sequence[Listing] = ()
    omitted: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        listings = [dataclasses.asdict(listing) for listing in self.listings]
        figures = [figure.as_json() for figure in self.figures]
        return {"figures": figures, "listings": listings, "omitted": list(self.omitted)}


def seconds(runs: Sequence[Run]) -> list[float]:
    return [run.wall for run in runs]


def cpu_seconds(runs: Sequence[Run]) -> list[float]:
    return [run.cpu for run in runs]


def user_seconds(runs: Sequence[Run]) -> list[float]:
    return [run.user for run in runs]


def megabytes(runs: Sequence[Run]) -> list[float]:
    return [run.peak / MEGABYTE for run in runs]


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Ratio within each repeat, so between runs that were neighbours in time."""
    return [a / b for a, b in zip(above, below, strict=True)]


def without(whole: Sequence[float], start_up: Sequence[float]) -> list[float]:
    """What is left of each repeat when the usual start-up is taken off."""
    usual = statistics.median(start_up)
    return [max(w - usual, _LEAST) for w in whole]


def stands_out(whole: Sequence[float], start_up: Sequence[float], by: float) -> bool:
    """Whether runs usually exceed start-up by this share of it."""
    return statistics.median(whole) >= (1 + by) * statistics.median(start_up)


def print_reports(reports: Sequence[Report], heading: str) -> None:
    console = Console()
    console = console if console.is_terminal else Console(width=112)
    for report in reports:
        for listing in report.listings:
            _print_listing(console, listing)
    table = Table(title=heading, title_justify="left")
    for name in ("benchmark", "figure", "target", "measured", "lowest to highest", "verdict"):
        table.add_column(name, justify="left" if name in ("benchmark", "figure") else "right")
    for report in reports:
        for figure in report.figures:
            table.add_row(*_row(figure))
        table.add_section()
    console.print(table)
    for report in reports:
        for reason in report.omitted:
            console.print(f"Not measured: {reason}.")


def number(value: Any, apart_from: float | None = None) -> str:
    """Three digits or all that stand before the point; more, where it would look like another number.

    Without them, a median of 1.501 would be shown as 1.50, and as above a target of 1.50.
    """
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    digits = 0 if value >= 100 else 2
    if apart_from is not None and value != apart_from:
        while f"{value:.{digits}f}" == f"{apart_from:.{digits}f}":
            digits += 1
    return f"{value:,.{digits}f}"


def _row(figure: Figure) -> tuple[str, ...]:
    measured = f"{number(figure.median, apart_from=figure.target)} {figure.unit}"
    span = f"{number(min(figure.values))} to {number(max(figure.values))}"
    verdict = figure.verdict
    verdict = f"[bold]{verdict}[/bold]" if verdict == "not met" else verdict
    return figure.benchmark, figure.what, figure.target_text, measured, span, verdict


def _print_listing(console: Console, listing: Listing) -> None:
    table = Table(title=listing.title, title_justify="left")
    for place, heading in enumerate(listing.headings):
        is_text = bool(listing.rows) and isinstance(listing.rows[0][place], str)
        table.add_column(heading, justify="left" if is_text else "right")
    for row in listing.rows:
        table.add_row(*(number(cell) for cell in row))
    console.print(table)
