"""The part of a private corpus that a release covers, and the part of the release that is spurious."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.elements.rows import SEPARATOR, split_ngram
from beam_dpne.evaluation.corpus import Corpus
from beam_dpne.evaluation.index import Found, GramIndex, LengthIndex

K_ANONYMITY = (1, 2, 5, 10, 20, 50, 100)
Grams = Mapping[int, np.ndarray]


class Anonymity(NamedTuple):
    """Coverage of the n-grams that at least k users have.

    Attributes:
      k: Number of users.
      held: Number of distinct n-grams that at least k users have, |S_k| of DPSU's Table 2.
      released: Number of those that are released.
      share: released/held, the covered ratio of DPNE's Figure 4; None if held is 0.
      size_ratio: Size of the whole release over held, the "% coverage" of DPSU's Table 2, which can
        exceed 1.
    """

    k: int
    held: int
    released: int
    share: float | None
    size_ratio: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Coverage:
    """Coverage of one length of a release, or of all lengths together; as secret as the data.

    Attributes:
      length: k; None for all lengths together.
      released: Number of n-grams in the release.
      real: Number of those that at least one user has; the others are spurious.
      occurrences: Number of occurrences of n-grams of this length in the corpus.
      occurrences_covered: Number of occurrences of released n-grams.
      pairs: Number of pairs of a user and a distinct n-gram of this length that the user has.
      pairs_covered: Number of pairs whose n-gram is released.
      users: Number of users who have any n-gram of this length.
      mean_user_share: Mean, over these users, of the share of a user's occurrences that is covered.
      median_user_share: Median of the same shares.
      k_anonymity: Coverage of the n-grams of at least k users, for each k.
    """

    length: int | None
    released: int
    real: int
    occurrences: int
    occurrences_covered: int
    pairs: int
    pairs_covered: int
    users: int
    mean_user_share: float | None
    median_user_share: float | None
    k_anonymity: tuple[Anonymity, ...]

    @property
    def spurious(self) -> int:
        """Number of released n-grams that nobody has."""
        return self.released - self.real

    @property
    def spurious_ratio(self) -> float | None:
        """Spurious over released n-grams, which DPNE's Table 3 has for all lengths together."""
        return _ratio(self.spurious, self.released)

    @property
    def occurrence_share(self) -> float | None:
        """Covered occurrences over all occurrences."""
        return _ratio(self.occurrences_covered, self.occurrences)

    @property
    def missing_mass(self) -> float | None:
        """The part of the pairs of users and n-grams whose n-gram is not released.

        References: Dick et al., "Missing Mass for Differentially Private Domain Discovery"
        (arXiv:2603.14016), the ℓ1 missing mass of a set union.
        """
        return _ratio(self.pairs - self.pairs_covered, self.pairs)

    @property
    def missing_occurrences(self) -> float | None:
        """The part of the occurrences whose n-gram is not released."""
        return _ratio(self.occurrences - self.occurrences_covered, self.occurrences)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Coverage of a release.

    Attributes:
      lengths: Coverage of each length 1, …, T.
      total: Coverage of all lengths together.
    """

    lengths: tuple[Coverage, ...]
    total: Coverage

    @property
    def rows(self) -> tuple[Coverage, ...]:
        """Coverage of each length, and last of all lengths together."""
        return (*self.lengths, self.total)


def evaluate(
    index: GramIndex, released: Grams, *, k_anonymity: Sequence[int] = K_ANONYMITY
) -> Evaluation:
    """Compares released sets with the corpus they came from.

    Args:
      index: Index of the corpus, with all lengths that are to be judged.
      released: For each length k, (r, k) integers: the codes of each n-gram's words, −1 for a word
        that nobody has. No n-gram is there twice. A length that is missing released nothing.
      k_anonymity: Numbers of users.

    Raises:
      ValueError: A length is not in the index, or an n-gram is there twice.

    >>> from beam_dpne.evaluation.corpus import corpus_of
    >>> from beam_dpne.evaluation.index import index_corpus
    >>> corpus = corpus_of([("ann", ["a", "b"]), ("bob", ["a", "c"])])
    >>> judged = evaluate(index_corpus(corpus, 2), {1: np.array([[0], [-1]])}, k_anonymity=(1, 2))
    >>> judged.lengths[0].real, judged.lengths[0].spurious, judged.lengths[0].occurrence_share
    (1, 1, 0.5)
    >>> judged.lengths[0].missing_mass
    0.5
    >>> [(row.k, row.held, row.released) for row in judged.lengths[0].k_anonymity]
    [(1, 3, 1), (2, 1, 1)]
    """
    beyond = [length for length in released if not 1 <= length <= len(index.lengths)]
    if beyond:
        raise ValueError(
            f"released must have lengths 1 to {len(index.lengths)}, as the index, got {beyond[0]}."
        )
    covered = np.zeros(len(index.corpus.users), dtype=np.int64)
    present = np.zeros(len(index.corpus.users), dtype=np.int64)
    rows = []
    for level in index.lengths:
        grams = released.get(level.length, np.zeros((0, level.length), np.int64))
        found = _checked(index.find(grams), level.length)
        # (u,) each user's covered occurrences of this length, and all of them.
        by_user = _user_occurrences(index, level, found), index.corpus.occurrences(level.length)
        rows.append(_coverage(level, found, by_user, k_anonymity))
        covered += by_user[0]
        present += by_user[1]
    return Evaluation(lengths=tuple(rows), total=_total(rows, covered, present))


def released_codes(corpus: Corpus, table: pa.Table) -> dict[int, np.ndarray]:
    """Returns the rows of a release as codes of the corpus's words: for each length (r, k) int64.

    Args:
      corpus: The corpus; a word that it does not have becomes −1.
      table: A table of `read_release`, with columns length and ngram, or item (one word each).
    """
    if "item" in table.column_names:
        items = _joined(table.column("item")).cast(pa.large_string())
        return {1: _codes(corpus, items).reshape(-1, 1)}
    lengths = table.column("length").to_numpy()
    grams = {}
    for length in np.unique(lengths).tolist():
        texts = _joined(table.column("ngram").filter(pa.array(lengths == length)))
        tokens = pc.call_function("split_pattern", [texts], pc.SplitPatternOptions(SEPARATOR))
        grams[length] = _codes(corpus, tokens.flatten(), _plain_token).reshape(-1, length)
    return grams


def _plain_token(text: str) -> str:
    return split_ngram(text)[0]


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return column.cast(pa.large_string()).combine_chunks()


def _codes(
    corpus: Corpus, tokens: pa.Array, plain: Callable[[str], str] | None = None
) -> np.ndarray:
    """Returns the code of each token, −1 for those that the corpus does not have: (n,) int64.

    `plain`, if there is one, turns each token as written in a release into the token itself.
    """
    encoded = tokens.dictionary_encode()
    distinct = encoded.dictionary
    if plain is not None:
        distinct = pa.array([plain(text) for text in distinct.to_pylist()], pa.large_string())
    wanted = pc.SetLookupOptions(value_set=corpus.words)
    found = pc.call_function("index_in", [distinct.cast(pa.large_string())], wanted)
    codes = found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes[encoded.indices.to_numpy(zero_copy_only=False)]


def _checked(found: Found, length: int) -> Found:
    """Raises ValueError if an n-gram is there twice, as its occurrences would be counted twice."""
    for column in found:
        present = column[column >= 0]
        if np.unique(present).size != present.size:
            raise ValueError(
                f"released must have each n-gram once, got one of length {length} twice."
            )
    return found


def _coverage(
    level: LengthIndex,
    found: Found,
    by_user: tuple[np.ndarray, np.ndarray],
    k_anonymity: Sequence[int],
) -> Coverage:
    """Returns the coverage of one length; `by_user` has covered and all occurrences of each user."""
    # Released n-grams that occur: (q,) the ids of those that occur at least twice, and the number of
    # those that occur once, each of which one user has.
    repeated, singles = found.ids[found.ids >= 0], int(np.count_nonzero(found.positions >= 0))
    users = level.users[repeated]
    anonymity = []
    for k in k_anonymity:
        released = int(np.count_nonzero(users >= k)) + (singles if k <= 1 else 0)
        anonymity.append(_anonymity(k, level.number_of_at_least(k), released, found.ids.size))
    return Coverage(
        length=level.length,
        released=found.ids.size,
        real=repeated.size + singles,
        occurrences=level.total,
        occurrences_covered=int(level.occurrences[repeated].sum()) + singles,
        # An n-gram that occurs once is one pair.
        pairs=int(level.users.sum()) + level.singles,
        pairs_covered=int(users.sum()) + singles,
        k_anonymity=tuple(anonymity),
        **_user_shares(*by_user),
    )


def _anonymity(k: int, held: int, released: int, size: int) -> Anonymity:
    return Anonymity(k, held, released, _ratio(released, held), _ratio(size, held))


def _total(rows: Sequence[Coverage], covered: np.ndarray, present: np.ndarray) -> Coverage:
    size = sum(row.released for row in rows)
    anonymity = [
        _anonymity(
            same[0].k, sum(one.held for one in same), sum(one.released for one in same), size
        )
        for same in zip(*(row.k_anonymity for row in rows), strict=True)
    ]
    return Coverage(
        length=None,
        released=size,
        real=sum(row.real for row in rows),
        occurrences=sum(row.occurrences for row in rows),
        occurrences_covered=sum(row.occurrences_covered for row in rows),
        pairs=sum(row.pairs for row in rows),
        pairs_covered=sum(row.pairs_covered for row in rows),
        k_anonymity=tuple(anonymity),
        **_user_shares(covered, present),
    )


def _user_occurrences(index: GramIndex, level: LengthIndex, found: Found) -> np.ndarray:
    """Returns the number of each user's covered occurrences of this length: (u,) int64."""
    # (m,) whether each n-gram that occurs at least twice is released.
    is_released = np.zeros(level.keys.size, dtype=bool)
    is_released[found.ids[found.ids >= 0]] = True
    single = found.positions[found.positions >= 0]
    positions = np.concatenate([level.positions[is_released[level.ids]], single])
    users = index.corpus.user_of_position[positions]
    return np.bincount(users, minlength=len(index.corpus.users))


def _user_shares(covered: np.ndarray, present: np.ndarray) -> dict:
    having = present > 0
    shares = covered[having] / present[having]
    return {
        "users": int(shares.size),
        "mean_user_share": float(shares.mean()) if shares.size else None,
        "median_user_share": float(np.median(shares)) if shares.size else None,
    }


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
