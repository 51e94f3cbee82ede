"""The tables that `beam-dpne evaluate` prints; they are as secret as the data."""

from collections.abc import Sequence

from rich.table import Table

from beam_dpne.cli import display
from beam_dpne.evaluation.counts import CountQuality
from beam_dpne.evaluation.coverage import Coverage


def coverage_table(rows: Sequence[Coverage], noun: str) -> Table:
    """Returns the released rows of each length, and the share of the data that they cover."""
    title = f"Released {noun}, and the share of all occurrences of {noun} that they cover"
    headings = ("length", "released", "real", "spurious", "spurious ratio")
    shares = ("covered", "missing mass", "user mean", "user median")
    table = display.aligned_table(title, (*headings, *shares))
    for row in rows:
        if row.length is None:
            table.add_section()
        table.add_row(
            _name(row),
            f"{row.released:,}",
            f"{row.real:,}",
            f"{row.spurious:,}",
            _percent(row.spurious_ratio, 2),
            _percent(row.occurrence_share),
            _percent(row.missing_mass),
            _percent(row.mean_user_share),
            _percent(row.median_user_share),
        )
    return table


def anonymity_table(rows: Sequence[Coverage], noun: str) -> Table:
    """Returns the released share of the rows that at least k users have, for each length and k."""
    headings = ("length", *(f"k = {each.k:,}" for each in rows[0].k_anonymity))
    title = f"Released share of the {noun} that at least k users have"
    table = display.aligned_table(title, headings)
    for row in rows:
        if row.length is None:
            table.add_section()
        table.add_row(_name(row), *(_percent(each.share) for each in row.k_anonymity))
    return table


def interval_table(rows: Sequence[CountQuality]) -> Table:
    """Returns the coverage and the width of intervals, and the errors of estimates, for each length."""
    title = "Numbers of users: intervals that contain the true number, and errors of estimates"
    headings = ("length", "real", "covered", "within a factor of 2", "median error")
    table = display.aligned_table(title, headings)
    for row in rows:
        if row.length is None:
            table.add_section()
        table.add_row(
            _name(row),
            f"{row.real:,}",
            _percent(row.coverage),
            _percent(row.within_factor_two),
            _percent(row.median_relative_error),
        )
    return table


def rank_table(rows: Sequence[CountQuality], noun: str, top_k: int, *, has_counts: bool) -> Table:
    """Returns the agreement of the order of the release with that of the data, for each length."""
    title = f"Order of the {noun}, against that by true numbers of users"
    headings = ["length", "correlation, score", f"top {top_k}, score", f"top {top_k}, missing"]
    if has_counts:
        headings[1:1] = ["correlation, users", f"top {top_k}, users"]
    table = display.aligned_table(title, headings)
    for row in rows:
        if row.length is None:
            table.add_section()
        cells = [_correlation(row.score_rank_correlation), _part(row.score_top, row.top_k)]
        if has_counts:
            cells[:0] = [_correlation(row.rank_correlation), _part(row.top, row.top_k)]
        table.add_row(_name(row), *cells, _percent(row.top_missing))
    return table


def _correlation(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _part(number: int | None, whole: int | None) -> str:
    return "-" if number is None else f"{number:,} of {whole:,}"


def _name(row: Coverage | CountQuality) -> str:
    return "all" if row.length is None else str(row.length)


def _percent(share: float | None, digits: int = 1) -> str:
    if share is None:
        return "-"
    least = 10.0 ** -(digits + 2)
    return f"<{least:.{digits}%}" if 0 < share < least else f"{share:.{digits}%}"
