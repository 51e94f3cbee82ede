"""How a release compares with the private corpus that it came from: its coverage, and its numbers.

Coverage is the part of the corpus that a release covers, and the part of the release that is spurious.
Its numbers are those of users, or else its scores, beside the true numbers of users.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from scipy import stats

from beam_dpne.evaluation.corpus import GramIndex, released_codes

# An interval is within a factor of two if both of its ends are, seen from the estimate.
FACTOR = 2
_COLUMNS = ("users", "users_low", "users_high")


@dataclasses.dataclass(frozen=True)
class Anonymity:
    """Coverage of the n-grams that at least k users have.

    Attributes:
      k: Number of users.
      held: Number of distinct n-grams that at least k users have, |S_k| of DPSU's Table 2.
      released: Number of those that are released.
      share: released/held, the covered ratio of DPNE's Figure 4; None if held is 0.
    """

    k: int
    held: int
    released: int
    share: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Coverage:
    """Coverage of one length of a release, or of all lengths together; as secret as the data.

    Attributes:
      length: k; None for all lengths together.
      released: Number of n-grams in the release.
      real: Number of those that at least one user has.
      spurious: Number of the others.
      spurious_ratio: Spurious over released n-grams, which DPNE's Table 3 has for all lengths together.
      occurrence_share: Occurrences of released n-grams over those of all n-grams of this length.
      missing_mass: The part of the pairs of a user and a distinct n-gram of the user whose n-gram is
        not released, the ℓ1 missing mass of Dick et al., "Missing Mass for Differentially Private
        Domain Discovery" (arXiv:2603.14016).
      mean_user_share: Mean, over the users who have any, of the share of a user's occurrences that is
        covered.
      median_user_share: Median of the same shares.
      k_anonymity: Coverage of the n-grams of at least k users, for each k.
    """

    length: int | None
    released: int
    real: int
    spurious: int
    spurious_ratio: float | None
    occurrence_share: float | None
    missing_mass: float | None
    mean_user_share: float | None
    median_user_share: float | None
    k_anonymity: tuple[Anonymity, ...]


def evaluate(
    index: GramIndex, released: Mapping[int, np.ndarray], *, k_anonymity: Sequence[int]
) -> tuple[Coverage, ...]:
    """Compares released sets with the corpus they came from.

    Args:
      index: Index of the corpus, with all lengths that are to be judged.
      released: For each length k, (r, k) integers: the codes of each n-gram's words, −1 for a word
        that nobody has. No n-gram is there twice. A length that is missing released nothing.
      k_anonymity: Numbers of users, for the coverage of the n-grams that at least k users have.

    Returns:
      The coverage of each length of the index, and last of all lengths together.

    >>> from beam_dpne.evaluation.corpus import corpus_of, index_corpus
    >>> corpus = corpus_of([("ann", ["a", "b"]), ("bob", ["a", "c"])])
    >>> words, _ = evaluate(index_corpus(corpus, 1), {1: np.array([[0], [-1]])}, k_anonymity=(1, 2))
    >>> words.real, words.spurious, words.occurrence_share, words.missing_mass
    (1, 1, 0.5, 0.5)
    >>> [(row.k, row.held, row.released) for row in words.k_anonymity]
    [(1, 3, 1), (2, 1, 1)]
    """
    rows = []
    parts = []
    for level in index.lengths:
        grams = released.get(level.length, np.zeros((0, level.length), np.int64))
        found = index.find(grams)
        found = found[found >= 0]
        # (m + 1,) whether each n-gram is released; the last entry stands for no n-gram, −1.
        is_released = np.zeros(level.users.size + 1, dtype=bool)
        is_released[found] = True
        chosen = (is_released[level.ids], level.ids >= 0)
        held = [
            [(users >= k).sum() for users in (level.users, level.users[found])] for k in k_anonymity
        ]
        sums = [len(grams), found.size, level.users.sum(), level.users[found].sum()]
        of_user = np.stack([index.corpus.count_by_user(positions) for positions in chosen])
        parts.append((np.array(sums, np.int64), np.array(held, np.int64), of_user))
        rows.append(_coverage(level.length, k_anonymity, *parts[-1]))
    together = (np.sum(part, axis=0) for part in zip(*parts, strict=True))
    return (*rows, _coverage(None, k_anonymity, *together))


def _coverage(
    length: int | None, ks: Sequence[int], sums: np.ndarray, held: np.ndarray, of_user: np.ndarray
) -> Coverage:
    """Returns the coverage of one length, or of all.

    Args:
      length: k, or None.
      ks: (l,) numbers of users.
      sums: (4,) int64, numbers of released and of real n-grams, of pairs, and of covered pairs.
      held: (l, 2) int64, how many n-grams at least k users have, in the data and in the release.
      of_user: (2, u) int64, the covered occurrences of each user, and all of them.
    """
    released, real, pairs, pairs_covered = sums.tolist()
    covered, present = of_user[:, of_user[1] > 0]
    shares = covered / present
    return Coverage(
        length=length,
        released=released,
        real=real,
        spurious=released - real,
        spurious_ratio=_ratio(released - real, released),
        occurrence_share=_ratio(int(covered.sum()), int(present.sum())),
        missing_mass=_ratio(pairs - pairs_covered, pairs),
        mean_user_share=float(shares.mean()) if shares.size else None,
        median_user_share=float(np.median(shares)) if shares.size else None,
        k_anonymity=tuple(
            Anonymity(k, every, part, _ratio(part, every))
            for k, (every, part) in zip(ks, held.tolist(), strict=True)
        ),
    )


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class JudgedRows:
    """Released rows beside the truth.

    Attributes:
      truth: (n,) integers, number of users who have each row, 0 for spurious rows.
      scores: (n,) float64.
      users: (n, 3) int64, estimates, lower and upper ends of the intervals; None if there are none.
    """

    truth: np.ndarray
    scores: np.ndarray
    users: np.ndarray | None

    @classmethod
    def together(cls, lengths: Sequence["JudgedRows"]) -> "JudgedRows":
        """Returns the rows of several lengths as one."""
        users = [rows.users for rows in lengths if rows.users is not None]
        return cls(
            truth=np.concatenate([rows.truth for rows in lengths]),
            scores=np.concatenate([rows.scores for rows in lengths]),
            users=np.concatenate(users) if users else None,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CountQuality:
    """Agreement of released numbers with the truth, at one length or all; as secret as the data.

    Everything but the top k is measured over the released rows that at least one user has. A number is
    None if the release has no numbers of users, or if there are too few rows for it.

    Attributes:
      length: k; None for all lengths together.
      real: Number of released rows that at least one user has.
      coverage: Share of rows with users_low ≤ true number ≤ users_high.
      within_factor_two: Share of rows with users ≤ 2·users_low and users_high ≤ 2·users, where 1 stands
        for each 0.
      median_relative_error: Median of |users − true number| / true number.
      rank_correlation: Spearman's rank correlation of users, or else of scores, with the true numbers;
        None for the scores of all lengths together, whose units differ.
      top_k: k, or the number of distinct n-grams of the data if that is less; None for all lengths
        together.
      top: Number of the first k rows of the release that are among the top k of the data: at least as
        many users have them as have the k-th most common n-gram of the data.
      top_missing: The part of the users of the data's top k that the first k rows do not have: 1 −
        (true numbers of users of the rows of the one, added up) / (those of the other).
    """

    length: int | None
    real: int
    coverage: float | None = None
    within_factor_two: float | None = None
    median_relative_error: float | None = None
    rank_correlation: float | None = None
    top_k: int | None = None
    top: int | None = None
    top_missing: float | None = None


def evaluate_counts(
    index: GramIndex, rows: Mapping[int, JudgedRows], *, top_k: int
) -> tuple[CountQuality, ...]:
    """Compares the numbers in a release with the corpus it came from.

    Args:
      index: Index of the corpus.
      rows: The released rows of each length, as `rows_of_table` returned them.
      top_k: k ≥ 1.

    Returns:
      The quality of each length of the index, and last of all lengths together.

    >>> from beam_dpne.evaluation.corpus import corpus_of, index_corpus
    >>> index = index_corpus(corpus_of([("ann", ["a", "b"]), ("bob", ["a", "c"])]), 1)
    >>> table = pa.table({"item": ["a", "b"], "score": [3.0, 4.0], "users": [2, 2],
    ...                   "users_low": [1, 2], "users_high": [5, 3]})
    >>> words, _ = evaluate_counts(index, rows_of_table(index, table), top_k=1)
    >>> words.coverage, words.within_factor_two, words.median_relative_error
    (0.5, 0.5, 0.5)
    >>> words.top_k, words.top, words.top_missing
    (1, 1, 0.0)
    """
    lengths = [
        _quality(rows[level.length], level.length, np.sort(level.users)[::-1][:top_k])
        for level in index.lengths
    ]
    return (*lengths, _quality(JudgedRows.together(list(rows.values()))))


def _quality(
    rows: JudgedRows, length: int | None = None, top: np.ndarray | None = None
) -> CountQuality:
    """Returns the quality of some rows.

    Args:
      rows: The released rows of one length, or of all.
      length: k; None for all lengths together.
      top: (k,) integers, falling: numbers of users of the n-grams of the data that most users have;
        None for all lengths together.
    """
    truth = rows.truth
    users = rows.users
    intervals = _Intervals() if users is None else _quality_of_intervals(truth, users)
    correlation = None
    if users is not None:
        correlation = _correlation(users[:, 0], truth)
    elif length is not None:
        correlation = _correlation(rows.scores, truth)
    leading = _Top() if top is None else _quality_of_top(truth, top)
    return CountQuality(
        length=length,
        real=int((truth > 0).sum()),
        coverage=intervals.coverage,
        within_factor_two=intervals.within_factor_two,
        median_relative_error=intervals.median_relative_error,
        rank_correlation=correlation,
        top_k=leading.k,
        top=leading.found,
        top_missing=leading.missing,
    )


class _Top(NamedTuple):
    """The fields `top_k`, `top` and `top_missing` of a `CountQuality`."""

    k: int | None = None
    found: int | None = None
    missing: float | None = None


def _quality_of_top(truth: np.ndarray, top: np.ndarray) -> _Top:
    """Returns how many of the data's most common n-grams a release has first.

    Args:
      truth: (n,) integers, the true number of users of each row, in the order of the release, which is
        that of estimated users, or else of scores.
      top: (k,) integers, falling, as in `_quality`.
    """
    if not top.size:
        return _Top(k=0, found=0)
    # (k,) the true numbers of the first rows of the release.
    first = truth[: top.size]
    return _Top(
        k=top.size,
        # All n-grams with as many users as the last one of the data's top belong to the top.
        found=int(np.count_nonzero(first >= top[-1])),
        missing=1 - int(first.sum()) / int(top.sum()),
    )


class _Intervals(NamedTuple):
    """The fields of a `CountQuality` that need numbers of users."""

    coverage: float | None = None
    within_factor_two: float | None = None
    median_relative_error: float | None = None


def _quality_of_intervals(truth: np.ndarray, users: np.ndarray) -> _Intervals:
    """Returns the measures of estimates and intervals, which are over real rows."""
    users = users[truth > 0]
    truth = truth[truth > 0]
    if not truth.size:
        return _Intervals()
    estimates, low, high = users.T
    is_narrow = (estimates <= FACTOR * np.maximum(low, 1)) & (
        high <= FACTOR * np.maximum(estimates, 1)
    )
    return _Intervals(
        coverage=float(np.mean((low <= truth) & (truth <= high))),
        within_factor_two=float(np.mean(is_narrow)),
        median_relative_error=float(np.median(np.abs(estimates - truth) / truth)),
    )


def _correlation(values: np.ndarray, truth: np.ndarray) -> float | None:
    """Returns Spearman's rank correlation over real rows; None if either side is constant."""
    values = values[truth > 0]
    truth = truth[truth > 0]
    if np.unique(values).size < 2 or np.unique(truth).size < 2:
        return None
    return float(np.corrcoef(stats.rankdata(values), stats.rankdata(truth))[0, 1])


def rows_of_table(index: GramIndex, table: pa.Table) -> dict[int, JudgedRows]:
    """Returns the rows of each length of the index, in the order of the table, beside the truth.

    Args:
      index: Index of the corpus, with all lengths of the release.
      table: A table of `read_release`: columns length and ngram, or item; score; and users, users_low
        and users_high, if users were counted.
    """
    grams = released_codes(index.corpus, table)
    has_length = "length" in table.column_names
    lengths = table.column("length").to_numpy() if has_length else np.ones(len(table), np.int64)
    scores = table.column("score").to_numpy()
    users = None
    if set(_COLUMNS) <= set(table.column_names):
        users = np.stack([table.column(name).to_numpy() for name in _COLUMNS], axis=1)
    judged = {}
    for level in index.lengths:
        own = lengths == level.length
        ids = index.find(grams.get(level.length, np.zeros((0, level.length), np.int64)))
        judged[level.length] = JudgedRows(
            truth=np.append(level.users, 0)[ids],
            scores=scores[own],
            users=None if users is None else users[own],
        )
    return judged


def families_of(
    rows: Mapping[int, JudgedRows], lengths: np.ndarray, is_known: np.ndarray
) -> list[dict[str, Any]]:
    """Returns how many known and new n-grams are released, of each length and of all together.

    Args:
      rows: The released rows of each length, as `rows_of_table` returned them.
      lengths: (n,) integers, the length of each row of the release.
      is_known: (n,) bool, whether the run knew it.

    >>> words = JudgedRows(truth=np.array([7, 0, 2]), scores=np.ones(3), users=None)
    >>> families_of({1: words}, np.ones(3), np.array([True, True, False]))[:2]
    [{'length': 1, 'family': 'known', 'released': 2, 'real': 1, 'spurious': 1}, \
{'length': 1, 'family': 'new', 'released': 1, 'real': 1, 'spurious': 0}]
    """
    masks = [is_known[lengths == length] for length in rows]
    judged = [*rows.values(), JudgedRows.together(list(rows.values()))]
    parts = zip([*rows, "all"], judged, [*masks, np.concatenate(masks)], strict=True)
    found = []
    for length, own, known in parts:
        for family, chosen in (("known", known), ("new", ~known)):
            released = int(chosen.sum())
            real = int((own.truth[chosen] > 0).sum())
            found.append({"length": length, "family": family, "released": released})
            found[-1] |= {"real": real, "spurious": released - real}
    return found
