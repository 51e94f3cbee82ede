"""The part of a private corpus that a release covers, and the part of the release that is spurious."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from beam_dpne.elements.arrays import places_in
from beam_dpne.elements.rows import split_ngram
from beam_dpne.evaluation.corpus import Corpus, GramIndex
from beam_dpne.ngrams.elements import GramSet, unpack_pairs


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
      occurrences: Number of occurrences of n-grams of this length in the corpus.
      occurrences_covered: Number of occurrences of released n-grams.
      occurrence_share: Covered occurrences over all occurrences.
      pairs: Number of pairs of a user and a distinct n-gram of this length that the user has.
      pairs_covered: Number of pairs whose n-gram is released.
      missing_mass: The part of the pairs whose n-gram is not released, the ℓ1 missing mass of Dick et
        al., "Missing Mass for Differentially Private Domain Discovery" (arXiv:2603.14016).
      users: Number of users who have any n-gram of this length.
      mean_user_share: Mean, over these users, of the share of a user's occurrences that is covered.
      median_user_share: Median of the same shares.
      k_anonymity: Coverage of the n-grams of at least k users, for each k.
    """

    length: int | None
    released: int
    real: int
    spurious: int
    spurious_ratio: float | None
    occurrences: int
    occurrences_covered: int
    occurrence_share: float | None
    pairs: int
    pairs_covered: int
    missing_mass: float | None
    users: int
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
    rows, parts = [], []
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
        occurrences=int(present.sum()),
        occurrences_covered=int(covered.sum()),
        occurrence_share=_ratio(int(covered.sum()), int(present.sum())),
        pairs=pairs,
        pairs_covered=pairs_covered,
        missing_mass=_ratio(pairs - pairs_covered, pairs),
        users=shares.size,
        mean_user_share=float(shares.mean()) if shares.size else None,
        median_user_share=float(np.median(shares)) if shares.size else None,
        k_anonymity=tuple(
            Anonymity(k, every, part, _ratio(part, every))
            for k, (every, part) in zip(ks, held.tolist(), strict=True)
        ),
    )


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def released_codes(corpus: Corpus, table: pa.Table) -> dict[int, np.ndarray]:
    """Returns the rows of a release as codes of the corpus's words: for each length (r, k) int64.

    Args:
      corpus: The corpus; a word that it does not have becomes −1.
      table: A table of `read_release`, with columns length and ngram, or item (one word each).
    """
    code = {word: number for number, word in enumerate(corpus.words.to_pylist())}
    if "item" in table.column_names:
        rows = [(item,) for item in table.column("item").to_pylist()]
    else:
        rows = [split_ngram(text) for text in table.column("ngram").to_pylist()]
    by_length: dict[int, list[list[int]]] = {}
    for row in rows:
        by_length.setdefault(len(row), []).append([code.get(word, -1) for word in row])
    return {length: np.array(codes, np.int64) for length, codes in by_length.items()}


def codes_of_sets(corpus: Corpus, released: Sequence[GramSet]) -> list[np.ndarray]:
    """Returns S_1, …, S_T as codes of the corpus's words: (r, k) int64 each, −1 for other words."""
    vocabulary = np.zeros(0, np.int64)
    rows: list[np.ndarray] = []
    for grams in released:
        if grams.words is not None:
            vocabulary = places_in(grams.words, corpus.words).astype(np.int64)
            rows.append(vocabulary[:, np.newaxis])
            continue
        prefixes, seconds = unpack_pairs(grams.keys)
        # The second is a word, or else a suffix of several words.
        last = vocabulary if grams.pruning == "single" else rows[-1][:, -1]
        rows.append(np.column_stack((rows[-1][prefixes], last[seconds])))
    return rows
