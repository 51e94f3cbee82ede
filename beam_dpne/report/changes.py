"""What changed between two releases of one kind, from their rows alone.

The ratio of two numbers of users has an interval from both intervals, in logarithms: its distance to an
end is the root of the sum of squares of two distances, that of the new number to its own end on this
side, and that of the old number to its end on the other side (Zou and Donner 2008). It holds as far as
the two intervals do and their errors are independent.

References:
  G. Y. Zou and A. Donner (2008): Construction of confidence limits about effect measures.
"""

import collections
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.errors import UsageError
from beam_dpne.release.reading import Release
from beam_dpne.release.schema import plain_unit
from beam_dpne.report.facts import number, shown

CHANGES = ("new", "risen", "fallen", "gone", "unchanged", "both")
GONE = (
    "Gone means not released again, never that nobody has it any more: it may be just below what noise "
    "lets through. In the same way, new ones may have been there before."
)
_NAMES = ("length", "group", "ngram", "item")
_USERS = ("users", "users_low", "users_high")
_KEPT = (*_NAMES, *_USERS)
# A number of users is at least this where its logarithm is needed.
_LEAST = 0.5


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
    for name, value_of in _SAME.items():
        values = value_of(old), value_of(new)
        if values[0] != values[1]:
            raise UsageError(
                f"releases must have the same {name}, got {values[0] or 'none'} in {old.path} and "
                f"{values[1] or 'none'} in {new.path}."
            )
    units = _unit(old), _unit(new)
    if None not in units and units[0] != units[1]:
        raise UsageError(
            f"releases must be about the same kind of user, got the unit {units[0]!r} in {old.path} "
            f"and {units[1]!r} in {new.path}."
        )
    if old.program == "bayesian":
        raise UsageError(
            "releases must be of beam-dpne ngrams or set-union: those of bayesian have all rows of a "
            "public vocabulary."
        )
    tables = [_named(old, "old"), _named(new, "new")]
    names = [name for name in _NAMES if name in tables[0].column_names]
    if "length" in names:
        longest = min(len(each.ledger["lengths"]) for each in (old, new))
        tables = [table.filter(pc.field("length") <= longest) for table in tables]
    rows = tables[0].join(tables[1], names, join_type="full outer")
    has_old, has_new = (rows.column(f"in_{x}").is_valid().to_numpy() for x in ("old", "new"))
    states = {"new": ~has_old, "gone": ~has_new}
    other = "both"
    ratio = {}
    numbers = [f"{side}_{name}" for side in ("old", "new") for name in _USERS]
    numbers = numbers if set(numbers) <= set(rows.column_names) else []
    if numbers:
        sides = np.stack([rows[name].fill_null(1).to_numpy() for name in numbers], axis=1)
        ends = ratios(sides[:, :3], sides[:, 3:]).T
        states = states | {"risen": ends[1] > 1, "fallen": ends[2] < 1}
        other = "unchanged"
        of_both = [pa.array(np.round(each, 4), mask=~(has_old & has_new)) for each in ends]
        ratio = dict(zip(("ratio", "ratio_low", "ratio_high"), of_both, strict=True))
    change = pa.array(np.select([*states.values()], [*states], other), pa.string())
    columns = {name: rows[name] for name in names} | {"change": change, **ratio}
    table = pa.table(columns | {name: rows[name] for name in numbers})
    falling = [(name, "descending") for name in ("new_users", "old_users") if name in numbers]
    rising = [(name, "ascending") for name in names]
    return table.sort_by([*rising[: "length" in names], *falling, *rising["length" in names :]])


def ratios(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Returns the ratio of two numbers, and the ends of its interval: (n, 3) float64.

    Args:
      old: (n, 3) numbers of users with the ends of their intervals.
      new: (n, 3) the same.

    >>> ratios(np.array([[100, 50, 200]]), np.array([[400, 400, 400]])).round(2).tolist()
    [[4.0, 2.0, 8.0]]
    """
    before = np.log(np.maximum(old, _LEAST))
    after = np.log(np.maximum(new, _LEAST))
    middle = after[:, 0] - before[:, 0]
    below = np.hypot(after[:, 0] - after[:, 1], before[:, 2] - before[:, 0])
    above = np.hypot(after[:, 2] - after[:, 0], before[:, 0] - before[:, 1])
    return np.exp(np.stack((middle, middle - below, middle + above), axis=1))


def _named(release: Release, side: str) -> pa.Table:
    """Returns what names the rows of a release, with its numbers of users under other names."""
    names = {name: f"{side}_{name}" if name in _USERS else name for name in _KEPT}
    table = release.rows.select([name for name in names if name in release.rows.column_names])
    table = table.rename_columns([names[name] for name in table.column_names])
    return table.append_column(f"in_{side}", pa.array(np.ones(len(table), bool)))


# What must be the same in two ledgers that are compared, by its name in messages.
_SAME = {
    "program": lambda release: release.program,
    "tokenizer": lambda release: release.ledger["tokenizer"],
    "text rules": lambda release: release.ledger.get("text_rules"),
    "group field": lambda release: release.ledger["input"].get("group_field"),
}


def differences(old: Release, new: Release, left_out: Collection[str] = ()) -> list[str]:
    """Returns a sentence for each way in which two releases that are compared were read unlike.

    Fields may have been renamed, and a unit may have been left out, so nothing is refused here.

    Args:
      old: The old release.
      new: The new one.
      left_out: Names of what the reader must not see, as in `report.PARTS`.
    """
    return [
        f"The {name} is {_told(value_of(old))} in the old release and {_told(value_of(new))} in the "
        "new one, so what changed may be due to that."
        for name, (part, value_of) in _NAMED.items()
        if part not in left_out and value_of(old) != value_of(new)
    ]


def _told(value: str | None) -> str:
    return "not stated" if value is None else f'"{shown(value)}"'


def _unit(release: Release) -> str | None:
    unit = release.ledger["notes"].get("unit")
    return None if unit is None else plain_unit(unit)


def _text_fields(release: Release) -> str | None:
    names = release.ledger["input"].get("text_fields")
    return None if names is None else ", ".join(names)


# What may differ between two ledgers that are compared, and is named then: the part of a report to
# which it belongs, and its value.
_NAMED: dict[str, tuple[str, Callable[[Release], str | None]]] = {
    "unit": ("unit", _unit),
    "user field": ("fields", lambda release: release.ledger["input"].get("user_field")),
    "text field": ("fields", _text_fields),
}


def change_counts(changes: pa.Table) -> list[dict[str, int]]:
    """Returns for each length, or for all items, how many rows have each change."""
    has_lengths = "length" in changes.column_names
    lengths = changes["length"].to_pylist() if has_lengths else [1] * len(changes)
    counts = collections.Counter(zip(lengths, changes["change"].to_pylist(), strict=True))
    present = [change for change in CHANGES if any(change == each for _, each in counts)]
    return [
        ({"length": length} if has_lengths else {})
        | {change: counts[length, change] for change in present}
        for length in sorted(set(lengths))
    ]


def leading(changes: pa.Table, count: int) -> list[dict[str, str]]:
    """Returns the first rows of each change but "unchanged", as a reader sees them.

    Risen and fallen ones come by the end of the interval that is nearer to 1, others by users.
    """
    ways = {"risen": ("ratio_low", "descending"), "fallen": ("ratio_high", "ascending")}
    ways |= {"new": ("new_users", "descending"), "gone": ("old_users", "descending")}
    found = []
    for change, way in ways.items():
        own = changes.filter(pc.field("change") == change)
        own = own.sort_by([way]) if way[0] in own.column_names else own
        for row in own.slice(0, count).to_pylist():
            text = row.get("ngram", row.get("item"))
            shown = {
                "change": change,
                "text": f"{row['group']}: {text}" if "group" in row else text,
            }
            if "ratio" in row:
                shown |= {f"{x} users": number(row[f"{x}_users"]) for x in ("old", "new")}
                ends = [row["ratio"], row["ratio_low"], row["ratio_high"]]
                shown["ratio"] = "{:.3g} ({:.3g} to {:.3g})".format(*ends) if ends[0] else "–"
            found.append(shown)
    return found


def told_changes(
    changes: pa.Table, count: int, unlike: Sequence[str]
) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """Returns tables that sum up changes, by their titles, and sentences for a reader of them.

    Args:
      changes: What `compare_releases` returned.
      count: How many rows of each change are shown.
      unlike: What `differences` returned.
    """
    tables = {"What changed": change_counts(changes), "What changed most": leading(changes, count)}
    sentences = [GONE]
    ratios = changes["ratio"].drop_null() if "ratio" in changes.column_names else ()
    if len(ratios):
        median = f"{float(np.median(ratios)):.3g} times as many users as before"
        sentences.insert(0, f"In the median, rows of both releases have {median}.")
    return {title: rows for title, rows in tables.items() if rows}, [*unlike, *sentences]
