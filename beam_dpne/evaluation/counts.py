"""How well a release's numbers of users, or else its scores, agree with the true numbers of users."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from scipy import stats

from beam_dpne.evaluation.coverage import released_codes
from beam_dpne.evaluation.index import GramIndex

TOP_K = 20
# An interval is within a factor of two if both of its ends are, seen from the estimate.
FACTOR = 2
_COLUMNS = ("users", "users_low", "users_high")


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
      rank_correlation: Spearman's rank correlation of users with the true numbers.
      top: Number of the top k rows by users that are among the top k of the data: at least as many
        users have them as have the k-th most common n-gram of the data.
      top_k: k of both tops, or the number of distinct n-grams of the data if that is less; None for
        all lengths together.
      top_missing: The part of the users of the data's top k that the release's top k by users, or by
        score if it has no numbers of users, does not have: 1 − (true numbers of users of the rows of
        the one, added up) / (those of the other); None for all lengths together.
      score_rank_correlation: Spearman's rank correlation of scores with the true numbers; None for all
        lengths together, since scores of different lengths have different units.
      score_top: Number of the top k rows by score that are among the top k of the data.
    """

    length: int | None
    real: int
    coverage: float | None
    within_factor_two: float | None
    median_relative_error: float | None
    rank_correlation: float | None
    top: int | None
    top_k: int | None
    top_missing: float | None
    score_rank_correlation: float | None
    score_top: int | None


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class JudgedRows:
    """Released rows of one length beside the truth.

    Attributes:
      truth: (n,) int64, number of users who have each row, 0 for spurious rows.
      scores: (n,) float64.
      users: (n, 3) int64, estimates, lower and upper ends of the intervals; None if there are none.
    """

    truth: np.ndarray
    scores: np.ndarray
    users: np.ndarray | None


def evaluate_counts(
    index: GramIndex, table: pa.Table, *, top_k: int = TOP_K
) -> tuple[CountQuality, ...]:
    """Compares the numbers in a release with the corpus it came from.

    Args:
      index: Index of the corpus, with all lengths of the release.
      table: A table of `read_release`: columns length and ngram, or item; score; and users, users_low
        and users_high, if users were counted.
      top_k: k ≥ 1.

    Returns:
      The quality of each length of the index, and last of all lengths together.

    >>> from beam_dpne.evaluation.corpus import corpus_of
    >>> from beam_dpne.evaluation.index import index_corpus
    >>> corpus = corpus_of([("ann", ["a", "b"]), ("bob", ["a", "c"])])
    >>> table = pa.table({"item": ["a", "b"], "score": [3.0, 4.0], "users": [2, 2],
    ...                   "users_low": [1, 2], "users_high": [5, 3]})
    >>> words, _ = evaluate_counts(index_corpus(corpus, 1), table, top_k=1)
    >>> words.coverage, words.within_factor_two, words.median_relative_error
    (0.5, 0.5, 0.5)
    >>> words.top, words.score_top, round(words.score_rank_correlation), words.top_missing
    (0, 0, -1, 0.5)
    """
    return qualities(index, rows_of_table(index, table), top_k)


def qualities(
    index: GramIndex, rows: Mapping[int, JudgedRows], top_k: int
) -> tuple[CountQuality, ...]:
    """Returns the quality of each length of the index, and last of all lengths together.

    Args:
      index: Index of the corpus.
      rows: The released rows of each length, as `rows_of_table` returned them.
      top_k: k ≥ 1.
    """
    lengths = [
        length_quality(
            level.length,
            rows[level.length],
            top_k=min(top_k, level.number_of_at_least(1)),
            users_of_last=level.number_of_users_at_rank(top_k),
            users_of_top=level.users_of_top(top_k),
        )
        for level in index.lengths
    ]
    return (*lengths, total_quality(list(rows.values())))


def rows_of_table(index: GramIndex, table: pa.Table) -> dict[int, JudgedRows]:
    """Returns the rows of each length of the index, in the order of the table, beside the truth."""
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
        codes = grams.get(level.length, np.zeros((0, level.length), np.int64))
        judged[level.length] = JudgedRows(
            truth=index.users_of(codes),
            scores=scores[own],
            users=None if users is None else users[own],
        )
    return judged


def length_quality(
    length: int,
    rows: JudgedRows,
    *,
    top_k: int,
    users_of_last: int,
    users_of_top: int | None = None,
) -> CountQuality:
    """Returns the quality of one length.

    Args:
      length: k.
      rows: The released rows of this length.
      top_k: Size of the tops that are compared.
      users_of_last: Number of users who have the last n-gram of the data's top.
      users_of_top: The numbers of users of the n-grams of the data's top, added up; None if they are
        not known, and nothing is said of them.
    """
    estimates = None if rows.users is None else rows.users[:, 0]
    return CountQuality(
        length=length,
        real=int((rows.truth > 0).sum()),
        **_interval_shares(rows.truth, rows.users),
        rank_correlation=None if estimates is None else _correlation(estimates, rows.truth),
        top=None if estimates is None else _top(rows, estimates, top_k, users_of_last),
        top_k=top_k,
        top_missing=_top_missing(rows, top_k, users_of_top),
        score_rank_correlation=_correlation(rows.scores, rows.truth),
        score_top=_top(rows, rows.scores, top_k, users_of_last),
    )


def total_quality(lengths: Sequence[JudgedRows]) -> CountQuality:
    """Returns the quality of all lengths together."""
    truth = np.concatenate([rows.truth for rows in lengths])
    counted = [rows.users for rows in lengths if rows.users is not None]
    users = np.concatenate(counted) if len(counted) == len(lengths) else None
    return CountQuality(
        length=None,
        real=int((truth > 0).sum()),
        **_interval_shares(truth, users),
        rank_correlation=None if users is None else _correlation(users[:, 0], truth),
        top=None,
        top_k=None,
        top_missing=None,
        score_rank_correlation=None,
        score_top=None,
    )


def _interval_shares(truth: np.ndarray, users: np.ndarray | None) -> dict[str, float | None]:
    """Returns the measures of estimates and intervals, which are over real rows."""
    names = ("coverage", "within_factor_two", "median_relative_error")
    real = truth > 0
    if users is None or not real.any():
        return dict.fromkeys(names)
    truth = truth[real]
    estimates, low, high = users[real].T
    is_covered = (low <= truth) & (truth <= high)
    is_narrow = (estimates <= FACTOR * np.maximum(low, 1)) & (
        high <= FACTOR * np.maximum(estimates, 1)
    )
    errors = np.abs(estimates - truth) / truth
    values = (is_covered.mean(), is_narrow.mean(), np.median(errors))
    return dict(zip(names, map(float, values), strict=True))


def _correlation(values: np.ndarray, truth: np.ndarray) -> float | None:
    """Returns Spearman's rank correlation over real rows; None if either side is constant."""
    values, truth = values[truth > 0], truth[truth > 0]
    if np.unique(values).size < 2 or np.unique(truth).size < 2:
        return None
    return float(np.corrcoef(stats.rankdata(values), stats.rankdata(truth))[0, 1])


def _first(rows: JudgedRows, values: np.ndarray, top_k: int) -> np.ndarray:
    """Returns the places of the first rows by falling values, then scores."""
    return np.lexsort((-rows.scores, -values))[:top_k]


def _top_missing(rows: JudgedRows, top_k: int, users_of_top: int | None) -> float | None:
    """Returns the part of the users of the data's top that the release's top lacks.

    References: Dick et al., "Missing Mass for Differentially Private Domain Discovery"
    (arXiv:2603.14016), the missing mass of a top k.
    """
    if not users_of_top:
        return None
    values = rows.scores if rows.users is None else rows.users[:, 0]
    return 1 - int(rows.truth[_first(rows, values, top_k)].sum()) / users_of_top


def _top(rows: JudgedRows, values: np.ndarray, top_k: int, users_of_last: int) -> int:
    """Returns how many of the first rows by falling values, then scores, are in the data's top."""
    first = _first(rows, values, top_k)
    # Ties at the end of the data's top count as in it.
    return int(np.count_nonzero(rows.truth[first] >= max(1, users_of_last)))
