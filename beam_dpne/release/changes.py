"""What changed between two releases of one kind, from their rows alone.

The ratio of two numbers of users has an interval that follows from the intervals of both (Zou and
Donner 2008). With the logarithms o of the old number and n of the new one, and the ends low and high of
their intervals, the interval of n − o reaches

    √((n − n_low)² + (o_high − o)²) below it and √((n_high − n)² + (o − o_low)²) above it.

It holds as far as the two intervals hold and their errors are independent. Intervals of estimated
numbers have a reserve, since they must hold for each number alone; and an n-gram whose users are unlike
others has errors in the same direction in both releases. So intervals of ratios of estimated numbers
reach a part of that, which was measured on public text with planted changes.

An n-gram has changed if the interval of its ratio is without 1. Of n-grams that have not changed one
in twenty is so by chance, and where few have changed these would be most of those that are called. So
n-grams are called only as far as few of them are expected to be wrong (Benjamini and Hochberg 1995).

References:
  G. Y. Zou and A. Donner (2008): Construction of confidence limits about effect measures.
  Y. Benjamini and Y. Hochberg (1995): Controlling the false discovery rate.
"""

import collections
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import special

from beam_dpne.errors import UsageError
from beam_dpne.reading.options import names_of
from beam_dpne.release.reading import Release
from beam_dpne.release.schema import plain_unit
from beam_dpne.release.wording import number, shown

CHANGES = ("new", "risen", "fallen", "gone", "unchanged", "both")
GONE = (
    "That one is new or gone says by itself little about people: it may be just below what noise lets "
    "through in the other release. In comparisons of public titles at least four of five that were "
    "gone still had users, and one in twelve to one in three had as many as before. It was much the "
    "same the other way round with new ones. Only where its interval of users is far above the least "
    "numbers of its length has it probably risen or fallen."
)
LISTED = (
    "New and gone phrases are those that only one of the two lists has. Unchanged means that no change "
    "could be shown."
)
UNSEEN = (
    "Unchanged means that no change could be shown. In these comparisons up to 3 % of the risen and "
    "fallen ones had not changed in this direction, and of those that had changed by more than a "
    "factor of two a sixth to three fifths stood under unchanged."
)
_NAMES = ("length", "group", "ngram", "item")
_USERS = ("users", "users_low", "users_high")
# A number of users is at least this where its logarithm is needed.
_LEAST = 0.5
# The part of the whole reach that intervals of ratios of estimated numbers have. The first rows of a
# length, which are few and unlike each other, keep all of it.
_REACH = 0.8
_FIRST_ROWS = 60
# Half of a 95 % interval in standard deviations.
_DEVIATIONS = 1.959964
# An interval without width ends here.
_LEAST_DISTANCE = 1e-9
# Of the rows that are called risen or fallen, at most so many are expected to have changed in the other
# direction, even if no row had changed at all.
_MOST_WRONG = 0.15


def compare_releases(old: Release, new: Release) -> pa.Table:
    """Compares the rows of two releases, whose files are checked against their ledgers.

    Args:
      old: A release of n-grams or items.
      new: A later release of the same program, with the same tokenizer, text rules and group field;
        its unit is the same if both name one. `differences` says what else is unlike.

    Returns:
      A row for each n-gram or item of a length that both plans have, by length, then by falling number
      of users. Columns: those that name a row (length, group, and ngram or item), change (see
      `CHANGES`), and if both releases have numbers of users, ratio, ratio_low, ratio_high, and
      the numbers of users of both, old_users, …, new_users_high. What does not exist is null. Without
      numbers of users, what both have is "both".

    Raises:
      UsageError: The releases cannot be compared.
      ReleaseError: A file is missing, damaged or unreadable.
    """
    _check_comparable(old, new)
    tables = [_named(old, "old"), _named(new, "new")]
    names = [name for name in _NAMES if name in tables[0].column_names]
    has_lengths = "length" in names
    if has_lengths:
        longest = min(old.max_length, new.max_length)
        tables = [table.filter(pc.field("length") <= longest) for table in tables]
    rows = tables[0].join(tables[1], names, join_type="full outer")
    numbers = [f"{side}_{name}" for side in ("old", "new") for name in _USERS]
    has_numbers = set(numbers) <= set(rows.column_names)
    columns = {name: rows[name] for name in names}
    if has_numbers:
        columns |= _changed_users(rows, numbers, old.program)
    else:
        columns |= _changed_presence(rows)
    order = [(name, "ascending") for name in names]
    if has_numbers:
        columns |= {name: rows[name] for name in numbers}
        # By length, then by falling numbers of users, then by text.
        behind = 1 if has_lengths else 0
        order[behind:behind] = [("new_users", "descending"), ("old_users", "descending")]
    return pa.table(columns).sort_by(order)


def _check_comparable(old: Release, new: Release) -> None:
    """Raises UsageError if two releases cannot be compared."""
    for each in (old, new):
        if not isinstance(each, Release):
            raise UsageError(
                f"a comparison must have two releases, got {type(each).__name__}. "
                "`beam_dpne.read_release` opens the one in a directory."
            )
    for name, value_of in _SAME.items():
        of_old = value_of(old)
        of_new = value_of(new)
        if of_old != of_new:
            raise UsageError(
                f"`releases` must have the same {name}, got {of_old or 'none'} in {old.path} and "
                f"{of_new or 'none'} in {new.path}."
            )
    old_unit = _unit(old)
    new_unit = _unit(new)
    if old_unit is not None and new_unit is not None and old_unit != new_unit:
        raise UsageError(
            f"`releases` must be about the same kind of user, got the unit {old_unit!r} in {old.path} "
            f"and {new_unit!r} in {new.path}."
        )
    if old.program == "bayesian":
        raise UsageError(
            "`releases` must be of beam-dpne ngrams, set-union or count: those of bayesian have "
            "probabilities, and all rows of a public vocabulary."
        )


def _presence(rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Returns which rows of both releases the old one has, and which the new one: (n,) bool each."""
    has_old = rows["in_old"].is_valid().to_numpy()
    has_new = rows["in_new"].is_valid().to_numpy()
    return has_old, has_new


def _changed_presence(rows: pa.Table) -> dict[str, pa.Array]:
    """Returns the column of changes for releases without numbers of users."""
    has_old, has_new = _presence(rows)
    change = np.select([~has_old, ~has_new], ["new", "gone"], "both")
    return {"change": pa.array(change, pa.string())}


def _changed_users(rows: pa.Table, numbers: list[str], program: str) -> dict[str, pa.Array]:
    """Returns the columns of changes and of ratios for releases with numbers of users.

    Args:
      rows: the rows of both releases.
      numbers: the columns of the old number of users with its ends, then of the new one.
      program: the program of both releases.
    """
    has_old, has_new = _presence(rows)
    values = np.stack([rows[name].fill_null(1).to_numpy() for name in numbers], axis=1)
    found = ratios(values[:, :3], values[:, 3:], _reach(rows, program))
    ratio, low, high = found.T
    is_called = np.zeros(len(rows), bool)
    in_both = has_old & has_new
    is_called[in_both] = called(found[in_both])
    # The first that holds counts.
    conditions = [~has_old, ~has_new, is_called & (low > 1), is_called & (high < 1)]
    change = np.select(conditions, ["new", "gone", "risen", "fallen"], "unchanged")
    columns = {"change": pa.array(change, pa.string())}
    for name, of_rows in (("ratio", ratio), ("ratio_low", low), ("ratio_high", high)):
        columns[name] = pa.array(np.round(of_rows, 4), mask=~in_both)
    return columns


def _reach(rows: pa.Table, program: str) -> np.ndarray:
    """Returns the part of its whole reach that the interval of each row's ratio has: (n,) float64.

    Args:
      rows: the rows of both releases.
      program: the program of both. Numbers of a list are measured and not estimated, so that their
        intervals have no reserve.
    """
    if program == "count":
        return np.ones(len(rows))
    reach = np.full(len(rows), _REACH)
    users = rows["new_users"].fill_null(0).to_numpy() + rows["old_users"].fill_null(0).to_numpy()
    has_lengths = "length" in rows.column_names
    lengths = rows["length"].to_numpy() if has_lengths else np.ones(len(rows), np.int64)
    for length in np.unique(lengths):
        (own,) = np.nonzero(lengths == length)
        reach[own[np.argsort(-users[own], kind="stable")[:_FIRST_ROWS]]] = 1
    return reach


def ratios(old: np.ndarray, new: np.ndarray, reach: np.ndarray) -> np.ndarray:
    """Returns the ratio of two numbers of users, and the ends of its interval: (n, 3) float64.

    Args:
      old: (n, 3) the old numbers of users, each with the low and the high end of its interval.
      new: (n, 3) the new numbers of users, with the same.
      reach: (n,) the part of its whole reach that each interval has.

    >>> ratios(np.array([[100, 50, 200]]), np.array([[400, 400, 400]]), np.ones(1)).round(2).tolist()
    [[4.0, 2.0, 8.0]]
    """
    before = np.log(np.maximum(old, _LEAST))
    after = np.log(np.maximum(new, _LEAST))
    middle = after[:, 0] - before[:, 0]
    below = reach * np.hypot(after[:, 0] - after[:, 1], before[:, 2] - before[:, 0])
    above = reach * np.hypot(after[:, 2] - after[:, 0], before[:, 0] - before[:, 1])
    return np.exp(np.stack((middle, middle - below, middle + above), axis=1))


def called(found: np.ndarray) -> np.ndarray:
    """Returns which of some ratios are called changes: (n,) bool.

    Their intervals are without 1, and are so far from it that few of them are expected to be wrong.

    Args:
      found: (n, 3) ratios with the ends of their intervals.

    >>> called(np.array([[2.0, 1.5, 2.7], [1.2, 1.01, 1.43], [1.0, 0.9, 1.1], [1.0, 0.9, 1.1]]))
    array([ True,  True, False, False])
    >>> called(np.array([[1.2, 1.01, 1.43]] + 9 * [[1.0, 0.9, 1.1]])).any()
    np.False_
    """
    middle, low, high = np.log(found).T
    # How far each ratio is from 1, in standard deviations on the side of 1.
    towards = np.where(middle > 0, middle - low, high - middle)
    distance = np.abs(middle) * _DEVIATIONS / np.maximum(towards, _LEAST_DISTANCE)
    chances = 2 * special.ndtr(-distance)
    # Of those with a chance of at most x, n · x/2 are expected in the wrong direction by chance.
    ordered = np.sort(chances)
    expected_wrong = ordered * len(found) / 2
    allowed = ordered[expected_wrong <= _MOST_WRONG * np.arange(1, len(found) + 1)]
    most = allowed.max(initial=0.0)
    return (chances <= most) & ((low > 0) | (high < 0))


def _named(release: Release, side: str) -> pa.Table:
    """Returns the columns that name the rows of a release, and its numbers of users.

    The numbers have the side before their names, and the column in_old or in_new says that the row is
    in this release.

    Args:
      release: a release.
      side: "old" or "new".
    """
    names: dict[str, str] = {}
    for name in (*_NAMES, *_USERS):
        if name in release.rows.column_names:
            names[name] = f"{side}_{name}" if name in _USERS else name
    table = release.rows.select(list(names)).rename_columns(list(names.values()))
    return table.append_column(f"in_{side}", pa.array(np.ones(len(table), bool)))


# What must be the same in two ledgers that are compared, by its name in messages.
_SAME = {
    "program": lambda release: release.program,
    "tokenizer": lambda release: release.tokenizer,
    "text rules": lambda release: release.text_rules,
    "group field": lambda release: release.ledger["input"].get("group_field"),
}


def differences(old: Release, new: Release, left_out: Collection[str] = ()) -> list[str]:
    """Returns a sentence for each way in which two releases that are compared were read unlike.

    Of releases of a series, one more says who is counted. Fields may have been renamed, and a unit may
    have been left out, so nothing is refused here.

    Args:
      old: The old release.
      new: The new one.
      left_out: Names of what the reader must not see, as in `report.PARTS`.
    """
    found = [
        f"The {name} is {_quoted(value_of(old))} in the old release and {_quoted(value_of(new))} in "
        "the new one, so what changed may be due to that."
        for name, (part, value_of) in _NAMED.items()
        if part not in left_out and value_of(old) != value_of(new)
    ]
    series = new.ledger.get("series", old.ledger.get("series"))
    return found if series is None else [*found, _whom_a_series_counts(series)]


def _whom_a_series_counts(series: Mapping[str, Any]) -> str:
    """Returns a sentence about the numbers of a release of a series, from the section of its ledger."""
    times = series["releases_per_user"]
    if times == 1:
        return (
            "Only people are counted who take part in the series for the first time, so numbers that "
            "fall may be of people who were counted before."
        )
    return (
        f"Only people are counted who take part, each in {times} releases of the series at most, so "
        "numbers that fall may be of people who have used up their part."
    )


def _quoted(value: str | None) -> str:
    return "not stated" if value is None else f'"{shown(value)}"'


def _unit(release: Release) -> str | None:
    return None if release.unit is None else plain_unit(release.unit)


def _text_fields(release: Release) -> str | None:
    names = release.ledger["input"].get("text_fields")
    return None if names is None else ", ".join(names)


def _user_field(release: Release) -> str | None:
    named = release.ledger["input"].get("user_field")
    return None if named is None else ", ".join(names_of(named))


# What may differ between two ledgers that are compared, and is named then: the part of a report to
# which it belongs, and its value.
_NAMED: dict[str, tuple[str, Callable[[Release], str | None]]] = {
    "unit": ("unit", _unit),
    "user field": ("fields", _user_field),
    "text field": ("fields", _text_fields),
    # Ledgers of older versions have none.
    "version of the tokenizer": (
        "versions",
        lambda release: release.ledger["versions"].get("tokenizer"),
    ),
}


def change_counts(changes: pa.Table) -> list[dict[str, int]]:
    """Returns for each length, or for all items, how many rows have each change."""
    has_lengths = "length" in changes.column_names
    lengths = changes["length"].to_pylist() if has_lengths else [1] * len(changes)
    counts = collections.Counter(zip(lengths, changes["change"].to_pylist(), strict=True))
    occurring = {change for _, change in counts}
    found: list[dict[str, int]] = []
    for length in sorted(set(lengths)):
        row = {"length": length} if has_lengths else {}
        for change in CHANGES:
            if change in occurring:
                row[change] = counts[length, change]
        found.append(row)
    return found


def leading(changes: pa.Table, count: int) -> dict[str, list[dict[str, str]]]:
    """Returns the first rows of each change but "unchanged", as a reader sees them, by a title.

    Risen and fallen ones come by the end of the interval that is nearer to 1, others by users.
    """
    found: dict[str, list[dict[str, str]]] = {}
    for change, (column, direction) in _ORDERS.items():
        own = changes.filter(pc.field("change") == change)
        if column in own.column_names:
            own = own.sort_by([(column, direction)])
        first = own.slice(0, count)
        if len(first):
            title = f"{_TITLES[change]}: {len(first):,} of {len(own):,}"
            found[title] = list(map(_shown_change, first.to_pylist()))
    return found


_TITLES = {
    "risen": "Risen",
    "fallen": "Fallen",
    "new": "New in the release",
    "gone": "Gone from the release",
}
# By which column the rows of each change are sorted for a reader.
_ORDERS = {
    "risen": ("ratio_low", "descending"),
    "fallen": ("ratio_high", "ascending"),
    "new": ("new_users", "descending"),
    "gone": ("old_users", "descending"),
}


def _shown_change(row: dict[str, Any]) -> dict[str, str]:
    """Returns a row of `compare_releases` as a reader sees it: its text, and what numbers it has."""
    noun = "item" if "item" in row else "n-gram"
    text = row["item"] if "item" in row else row["ngram"]
    if "group" in row:
        text = f"{row['group']}: {text}"
    told = {noun: text}
    for name, side in (("users before", "old_users"), ("users now", "new_users")):
        if row.get(side) is not None:
            told[name] = number(row[side])
    if row.get("ratio") is not None:
        middle, low, high = (_factor(row[name]) for name in ("ratio", "ratio_low", "ratio_high"))
        told["ratio (95 % interval)"] = f"{middle} ({low} to {high})"
    return told


def _factor(value: float) -> str:
    """Returns a ratio in three digits, or in more where it would look like 1 and is not.

    >>> _factor(2.0712), _factor(1.0012), _factor(1.0)
    ('2.07', '1.0012', '1')
    """
    text = f"{value:.3g}"
    return f"{value:.5g}" if text == "1" else text


def told_changes(
    changes: pa.Table, count: int, unlike: Sequence[str], *, program: str
) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """Returns tables that sum up changes, by their titles, and sentences for a reader of them.

    Args:
      changes: What `compare_releases` returned.
      count: How many rows of each change are shown.
      unlike: What `differences` returned.
      program: Program of both releases.
    """
    counts = change_counts(changes)
    tables: dict[str, list[dict[str, Any]]] = {"What changed": counts} if counts else {}
    tables |= leading(changes, count)
    sentences = list(unlike)
    if "ratio" in changes.column_names:
        known_ratios = changes["ratio"].drop_null()
        if len(known_ratios):
            median = float(np.median(known_ratios))
            sentences.append(
                f"In the median, rows of both releases have {median:.3g} times as many users as before."
            )
    if program == "count":
        sentences.append(LISTED)
        return tables, sentences
    sentences.append(GONE)
    if "ratio" in changes.column_names:
        sentences.append(UNSEEN)
    return tables, sentences
