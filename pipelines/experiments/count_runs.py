"""Releases in memory whose numbers of users are compared with the truth, kept for further runs.

A release is kept without its numbers of users, beside the rows that each user holds. So a change of
`beam_dpne.counts`, or of the constants there, is measured again in seconds.
"""

import dataclasses
import hashlib
import json
import pathlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import beam_dpne
from beam_dpne.counts.measuring import Held, sum_counts
from beam_dpne.documents.group_by_user import (
    hash_users,
    lay_out_positions,
    limit_documents,
    split_by_user,
)
from beam_dpne.elements.batches import DocumentBlock, UserBatch
from beam_dpne.elements.coders import BatchCoder
from beam_dpne.evaluation.corpus import Corpus, GramIndex
from beam_dpne.evaluation.counts import JudgedRows, rows_of_table
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams.decoding import ngram_table
from beam_dpne.ngrams.elements import GramSet
from beam_dpne.ngrams.in_memory import InMemory
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.ngrams.transform import run_context
from beam_dpne.ngrams.user_counts import count_users, held_grams, rule_of

_TOKENS_A_PARTITION = 2_000_000
_COLUMNS = ("users", "users_low", "users_high")
# Ranks of the data whose numbers of users are kept, for tops of any smaller size.
_MOST_RANKS = 1000
_Kept = TypeVar("_Kept")


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class KeptRelease:
    """A release without numbers of users, and what is needed to measure them.

    Attributes:
      sets: S_1, …, S_T.
      held: The rows of all sets that each user of each batch holds.
      ngrams: (n,) the texts of all rows.
      truth: (n,) int64, number of users who have each of them.
      common: (T, 1000) int64, for each length the numbers of users of its most common n-grams, falling,
        and 0 after the last one.
    """

    sets: tuple[GramSet, ...]
    held: tuple[Held, ...]
    ngrams: pa.Array
    truth: np.ndarray
    common: np.ndarray

    def save(self, folder: pathlib.Path) -> None:
        """Writes the release into a folder, as a whole or not at all."""
        written = folder.with_name(f"{folder.name}.tmp")
        shutil.rmtree(written, ignore_errors=True)
        written.mkdir()
        values: dict[str, Any] = {f"set-{grams.length:02}": grams for grams in self.sets}
        values |= {f"held-{number:05}": held for number, held in enumerate(self.held)}
        values["truth"] = _Truth(ngrams=self.ngrams, truth=self.truth, common=self.common)
        for name, value in values.items():
            (written / name).write_bytes(BatchCoder(type(value)).encode(value))
        written.rename(folder)

    @classmethod
    def load(cls, folder: pathlib.Path) -> "KeptRelease":
        """Reads a release that `save` wrote."""

        def read(kind: type[_Kept], pattern: str) -> Iterator[_Kept]:
            for path in sorted(folder.glob(pattern)):
                yield BatchCoder(kind).decode(path.read_bytes())

        (rows,) = read(_Truth, "truth")
        return cls(
            sets=tuple(read(GramSet, "set-*")),
            held=tuple(read(Held, "held-*")),
            ngrams=rows.ngrams,
            truth=rows.truth,
            common=rows.common,
        )


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class _Truth:
    """The fields of a kept release that are one array each."""

    ngrams: pa.Array
    truth: np.ndarray
    common: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class JudgedLength:
    """The rows of one length beside the truth.

    Attributes:
      length: k.
      ngrams: (n,) the texts of the rows.
      rows: Their scores, estimates and true numbers.
      common: The numbers of users of the data's most common n-grams, falling.
    """

    length: int
    ngrams: pa.Array
    rows: JudgedRows
    common: np.ndarray


class _Uncounted(InMemory):
    """A run that leaves the numbers of users for later."""

    def count(self, users: list[UserBatch], released: Sequence[GramSet]) -> Sequence[GramSet]:
        """Returns the sets as they are."""
        return released


class ReleaseCache:
    """A directory of kept releases of one corpus, as secret as the data."""

    def __init__(
        self,
        folder: pathlib.Path,
        digest: str,
        corpus: Callable[[], Corpus],
        index: Callable[[], GramIndex],
    ):
        """Makes the directory if needed.

        Args:
          folder: The directory.
          digest: Digest of the data and of how they are read.
          corpus: Function that returns the corpus; it is called only if a release is missing.
          index: Function that returns an index of it, with all lengths.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._digest = folder, digest
        self._corpus, self._index = corpus, index

    def release(self, plan: PrivacyPlan, run_key: RunKey) -> KeptRelease:
        """Returns the release of a plan; the first time it is made and kept.

        Args:
          plan: The plan.
          run_key: A run key that is not bound to the plan yet.
        """
        key = run_key.bound_to(run_context(plan, "words"))
        described = [plan.to_dict(), run_key.sub_key("cache").hex(), self._digest, _source_digest()]
        name = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:32]
        folder = self._folder / f"release-{name}"
        if not folder.is_dir():
            make_release(self._corpus(), self._index(), plan, key).save(folder)
        return KeptRelease.load(folder)


def make_release(
    corpus: Corpus, index: GramIndex, plan: PrivacyPlan, run_key: RunKey
) -> KeptRelease:
    """Releases the n-grams of a corpus in memory.

    Args:
      corpus: The corpus.
      index: An index of the corpus with lengths up to T.
      plan: The plan.
      run_key: A run key that is bound to the plan.
    """
    batches = list(user_batches(corpus, plan, run_key))
    sets = _Uncounted(plan=plan, run_key=run_key).release(batches)
    held = tuple(held_grams(batch, sets, pruning=plan.pruning) for batch in batches)
    table = ngram_table(sets)
    truth = [rows.truth for rows in rows_of_table(index, table).values()]
    return KeptRelease(
        sets=tuple(sets),
        held=held,
        ngrams=table.column("ngram").combine_chunks(),
        truth=np.concatenate(truth),
        common=np.stack([_common(level.top(_MOST_RANKS)) for level in index.lengths]),
    )


def judge_release(
    kept: KeptRelease, plan: PrivacyPlan, run_key: RunKey, tokenizer: str = "words"
) -> list[JudgedLength]:
    """Measures the numbers of users, if the plan has a share for them, and sets them beside the truth.

    Args:
      kept: The release.
      plan: Its plan.
      run_key: The run key that is not bound to the plan yet.
      tokenizer: Name of the tokenizer that the run key is bound to.
    """
    sets = list(kept.sets)
    if plan.count_share:
        key = run_key.bound_to(run_context(plan, tokenizer))
        rule = rule_of(*sets)
        sets = count_users(
            sets, (sum_counts(held, rule) for held in kept.held), plan=plan, run_key=key
        )
    table = ngram_table(sets)
    ngrams = table.column("ngram").combine_chunks()
    places = places_in(kept.ngrams, ngrams)
    lengths, scores = table.column("length").to_numpy(), table.column("score").to_numpy()
    users = None
    if plan.count_share:
        users = np.stack([table.column(name).to_numpy() for name in _COLUMNS], axis=1)
    judged = []
    for length, common in enumerate(kept.common, start=1):
        own = lengths == length
        rows = JudgedRows(
            truth=kept.truth[places[own]],
            scores=scores[own],
            users=None if users is None else users[own],
        )
        texts = ngrams.filter(pa.array(own))
        judged.append(
            JudgedLength(length=length, ngrams=texts, rows=rows, common=common[common > 0])
        )
    return judged


def places_in(values: pa.Array, wanted: pa.Array) -> np.ndarray:
    """Returns the index of each wanted text among distinct texts, −1 if it is not there: int64."""
    found = pc.call_function("index_in", [wanted], pc.SetLookupOptions(value_set=values))
    return found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)


def user_batches(corpus: Corpus, plan: PrivacyPlan, run_key: RunKey) -> Iterator[UserBatch]:
    """Yields the users of a corpus as `GroupByUser` lays them out."""
    users = hash_users(corpus.users, run_key.sub_key("user"))
    block = DocumentBlock(
        users=users[corpus.document_users],
        offsets=np.append(0, np.cumsum(corpus.document_lengths)),
        codes=corpus.codes[corpus.codes >= 0],
        words=corpus.words.cast(pa.string()),
    )
    partitions = 1 + corpus.tokens // _TOKENS_A_PARTITION
    for _, piece in split_by_user(block, partitions):
        limited = limit_documents(
            [piece], plan.max_tokens_per_user, run_key.sub_key("document"), final=True
        )
        yield lay_out_positions(limited, run_key.sub_key("word"))


def deal_documents(corpus: Corpus, users: int, seed: int) -> Corpus:
    """Deals the documents of public text without users to made-up users with heavy-tailed shares.

    Args:
      corpus: The text; its own users are ignored.
      users: Number of made-up users; those who get no document are left out.
      seed: Seed of the random shares.
    """
    rng = np.random.default_rng(seed)
    shares = np.minimum(rng.pareto(1.2, users) + 0.3, 200)
    dealt = rng.choice(users, size=corpus.document_lengths.size, p=shares / shares.sum())
    # (n,) the made-up user of each position; the border of a document belongs to it.
    user = np.repeat(dealt, corpus.document_lengths + 1)
    sizes = np.bincount(user, minlength=users)
    return dataclasses.replace(
        corpus,
        users=pa.array([f"user {number}" for number in np.flatnonzero(sizes).tolist()]),
        offsets=np.append(0, np.cumsum(sizes[sizes > 0])),
        codes=corpus.codes[np.argsort(user, kind="stable")],
    )


def _common(top: np.ndarray) -> np.ndarray:
    """Returns the numbers of users of the most common n-grams, and 0 after the last one."""
    return np.pad(top.astype(np.int64), (0, _MOST_RANKS - top.size))


def _source_digest() -> str:
    """Returns a digest of all source that decides a release, but for the rooms that count and show."""
    digest = hashlib.sha256()
    package = pathlib.Path(beam_dpne.__file__).parent
    for room in ("mechanism", "documents", "elements", "ngrams", "set_union"):
        for path in sorted((package / room).glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()
