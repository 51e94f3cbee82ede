"""BayesianCounts: public n-grams are found in texts, limited, added up, made noisy, and estimated.

What a user adds and the mechanism are functions on arrays, `find_grams`, `limit_grams` and
`noisy_values`.
"""

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import AsIter, AsSingleton, PCollection

from beam_dpne.bayesian import posterior
from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.bayesian.public_counts import PublicCounts
from beam_dpne.documents.transform import DocumentsTransform, create_public
from beam_dpne.elements import arrays, progress
from beam_dpne.elements.arrays import places_in
from beam_dpne.elements.batches import NO_GRAM, RowSums, UserBatch, table_of_sums
from beam_dpne.elements.bundles import apply, sum_rows
from beam_dpne.elements.coders import register_batches
from beam_dpne.elements.encoding import SetStore
from beam_dpne.elements.rows import (
    PROBABILITY_SCHEMA,
    NgramProbability,
    in_order,
    rounded_probabilities,
)
from beam_dpne.mechanism import randomness
from beam_dpne.mechanism.randomness import RunKey, keyed_bits, normals
from beam_dpne.release.ledger import Contents, Run
from beam_dpne.release.result import Form, Result
from beam_dpne.release.schema import ProbabilityMechanism

_MEANING = (
    "Each user adds to at most max_contributions distinct n-grams of the public vocabulary, and at "
    "most max_count to each. Every n-gram of the vocabulary gets Gaussian noise, rounded to whole "
    "counts, whether or not any user has it. Probabilities are computed from noisy and public counts "
    "alone."
)
_PUBLIC = (
    "The public counts are not protected: every n-gram in them gets a probability. If they were made "
    "from the private data, the release reveals whatever they reveal of those data. If they are a "
    "private release of the same data, both releases count: beam-dpne account computes their total "
    "epsilon and delta from both ledgers, and no total is above the sums."
)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class UserGrams:
    """The distinct public grams that each user has, and how often (CSR).

    Attributes:
      users: (n, 2) uint64, 128-bit keyed hashes; a user is in one batch only, and has some gram.
      offsets: (n + 1,) int64, where each user's grams begin in `rows`.
      rows: (m,) int32, rows of the public vocabulary, ascending within a user.
      counts: (m,) int64 ≥ 1, how often the user has the gram.
    """

    users: np.ndarray
    offsets: np.ndarray
    rows: np.ndarray
    counts: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class NgramProbabilities:
    """A probability for every n-gram of a public vocabulary.

    Attributes:
      ngrams: (V,) Arrow strings, see `join_tokens`; in the order of the public counts.
      noisy: (V,) int64, the noisy counts, of which everything else is computed.
      probabilities: (V,) float64 ≥ 0, summing to 1.
      public: what the ledger says of the public counts.
    """

    ngrams: pa.Array
    noisy: np.ndarray
    probabilities: np.ndarray
    public: dict[str, Any]

    def __len__(self) -> int:
        return len(self.ngrams)


register_batches(PublicCounts, NgramProbabilities)


def probability_table(released: Sequence[NgramProbabilities]) -> pa.Table:
    """Returns the rows of one release, in descending order of probabilities, then by bytes."""
    (found,) = released
    rows = pa.table(
        [found.ngrams, pa.array(rounded_probabilities(found.probabilities))],
        schema=PROBABILITY_SCHEMA,
    )
    return in_order(rows)


def find_grams(batch: UserBatch, public: PublicCounts) -> UserGrams:
    """Finds the public grams of each user in positions of length 0, and counts them.

    Raises:
      ValueError: if the batch's positions are not of length 0.
    """
    if batch.length or batch.words is None:
        raise ValueError(f"Positions must be of length 0, got length {batch.length}.")
    # Each word's place in `public.words`; the entry at the end is for the −1 that ends a document.
    known = np.append(places_in(batch.words, public.words), np.int32(NO_GRAM))
    starts, rows = public.find(known[batch.ids])
    # A pair (user, row) in one integer is a key.
    user = np.searchsorted(batch.offsets, starts, side="right") - 1
    keys, counts = np.unique(user * len(public) + rows, return_counts=True)
    user, rows = np.divmod(keys, len(public))
    present, sizes = np.unique(user, return_counts=True)
    return UserGrams(
        users=batch.users[present],
        offsets=arrays.offsets_of(sizes),
        rows=rows.astype(np.int32),
        counts=counts.astype(np.int64),
    )


def limit_grams(grams: UserGrams, plan: BayesianPlan, run_key: RunKey) -> UserGrams:
    """Keeps at most W distinct grams of each user, a keyed random subset, and clamps counts to C.

    Here, and nowhere else, one user's contribution is bounded. It is at most C·√W in ℓ2, in whole
    numbers.

    Args:
      grams: all public grams of the users.
      plan: the plan of the run, which has W and C.
      run_key: bound to the run's parameters.
    """
    limit = plan.contribution_limit
    sub_key = run_key.sub_key("gram subset", plan.length)

    def draw(user: np.ndarray, entries: np.ndarray) -> np.ndarray:
        return randomness.keyed_bits(sub_key, grams.users[user, 0], grams.rows[entries])[:, 0]

    kept = np.ones(grams.rows.size, dtype=bool)
    kept[arrays.outside_limit(grams.offsets, limit, draw)] = False
    return UserGrams(
        users=grams.users,
        offsets=arrays.offsets_of(np.minimum(np.diff(grams.offsets), limit)),
        rows=grams.rows[kept],
        counts=np.minimum(grams.counts[kept], plan.max_count),
    )


def noisy_values(table: np.ndarray, plan: BayesianPlan, run_key: RunKey) -> np.ndarray:
    """Adds noise to the counts of all public grams, whether or not anybody has them; the mechanism.

    The noise is keyed by the row, and the run key is bound to the public counts, so that no two n-grams
    share their noise.

    Args:
      table: (V,) int64, the sums over all users.
      plan: the plan of the run.
      run_key: bound to the run's parameters; see `key_context`.

    Returns:
      (V,) int64.
    """
    rows = np.arange(len(table))
    draws = normals(keyed_bits(run_key.sub_key("gram noise", plan.length), rows, 0))
    return table + randomness.integer_normals(draws, plan.noise_stddev)


def bayesian_contents(plan: BayesianPlan, released: Sequence[NgramProbabilities]) -> Contents:
    """Returns the contents of the ledger of n-gram probabilities, which are one element."""
    (found,) = released
    mechanism = ProbabilityMechanism(
        meaning=_MEANING,
        max_count=plan.max_count,
        max_contributions=plan.contribution_limit,
        public=found.public,
        sensitivity=plan.sensitivity,
        noise_stddev=plan.noise_stddev,
        released=len(found),
    )
    columns = {
        "ngram": "the words, joined by one blank; see beam_dpne.join_tokens",
        "probability": "a number with nine significant digits; all probabilities sum to 1 up to that "
        "rounding",
    }
    return Contents(found=mechanism, columns=columns, not_protected=[_PUBLIC])


class _Released(NamedTuple):
    released: PCollection[NgramProbabilities]
    run: Run


class BayesianCountsResult(Result[NgramProbability], _Released):
    """The outputs of `BayesianCounts`, which `WriteRelease` takes; `rows` are `NgramProbability`.

    Attributes:
      released: PCollection of one `NgramProbabilities`.
      run: the public facts of the run, for the ledger.
    """

    form = Form(lambda _: NgramProbability, probability_table, bayesian_contents)


@dataclasses.dataclass(eq=False, kw_only=True)
class BayesianCounts(DocumentsTransform):
    """Estimates a probability for every n-gram of a public vocabulary from users' texts.

    Input: documents as `BatchDocuments` takes them: rows with field names (NamedTuple, `beam.Row`,
    dict), `pyarrow.RecordBatch`, or plain tuples of (user, text); bounded and in the global window.

    Output: `BayesianCountsResult`.

    Privacy: `released`, noisy counts included, is user-level (plan.epsilon, plan.delta)-DP when one
    user with all documents is added or removed, for a run key that is secret and used on one input
    only. Every n-gram of the vocabulary gets noise, whether or not anybody has it.

    Cost: one shuffle of the corpus, and one of partial sums. One worker holds a number for each n-gram
    of the vocabulary.

    Attributes:
      plan: the parameters of the run.
      public: the public counts, which must not be made from the private data; the most frequent
        plan.vocabulary_size of them are used, without those that `TextRules` leave out.
      tokenizer: "words", "whitespace", "tokens", "package.module:function", or a function; the words
        of `public` are such tokens.
      partitions, described, user_field, text_field: as in `PrivateNgrams`.
      run_key: as there; it is bound to the public counts, too.
      store: where public counts go that are too large for the job's graph; with None they stay in it.
      workers: the number of processes in which a worker tokenizes; None means one.

    Raises:
      ValueError: if partitions < 1, public has grams of another length, on an unknown tokenizer, or if
        `BatchDocuments` refuses the fields or the input.

    Example:
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import BayesianCounts, BayesianPlan, PublicCounts
      >>> public = PublicCounts.of([("good", "morning"), ("good", "night")], [1, 1])
      >>> plan = BayesianPlan(epsilon=10, delta=1e-4, length=2, max_contributions=1)
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     documents = pipeline | beam.Create([(f"u{i}", "Good morning") for i in range(9999)])
      ...     result = documents | BayesianCounts(plan=plan, public=public)
      ...     _ = result.rows | beam.Map(lambda row: print(row.ngram, round(row.probability, 1)))
      good morning 1.0
      good night 0.0

    References: Ramadan, Withers and Orr, "N-grams Bayesian Differential Privacy", has the public prior.
      The mechanism, noise on counts, is not from the paper, whose own is not private.
    """

    plan: BayesianPlan
    public: PublicCounts
    store: SetStore | None = None

    def __post_init__(self):
        super().__post_init__()
        self.public.require_length(self.plan.length)

    def expand(self, documents: PCollection) -> BayesianCountsResult:
        """Adds noise to the sums over users, and computes probabilities from the noisy values."""
        kept = self._kept
        keys = self.run_keys()
        run_key = keys.bound
        progress.expect(users=self.partitions)
        users = self.grouped_by_user(documents, run_key, self.plan.max_tokens_per_user)
        public = AsSingleton(documents.pipeline | "Public" >> create_public(kept, self.store))
        find = functools.partial(_sums_of_users, plan=self.plan, run_key=run_key)
        sums = AsIter(sum_rows(users, find, public))
        once = documents.pipeline | "Once" >> beam.Create([None])
        release = beam.Map(_release, sums, public, plan=self.plan, run_key=run_key)
        released = apply(once, "Release", release, NgramProbabilities)
        return BayesianCountsResult(released, Run.of(self, keys))

    @property
    def _kept(self) -> PublicCounts:
        """The public counts that the run uses."""
        # Every n-gram of the vocabulary gets a row, so what texts never have must not be in it.
        possible = self.public.without_left_out(self.tokenizer)
        return possible.most_frequent(self.plan.vocabulary_size)

    def public_digest(self) -> str:
        """Returns the digest of the public counts that the run uses."""
        return self._kept.fingerprint()


def _sums_of_users(batch: UserBatch, public: PublicCounts, **how: Any) -> RowSums:
    grams = limit_grams(find_grams(batch, public), **how)
    return RowSums(rows=grams.rows, sums=grams.counts)


def _release(
    _: None, sums: Iterable[RowSums], public: PublicCounts, *, plan: BayesianPlan, run_key: RunKey
) -> NgramProbabilities:
    progress.enter("decide", None)
    noisy = noisy_values(table_of_sums(sums, len(public)), plan, run_key)
    progress.enter(progress.RELEASED, None)
    return NgramProbabilities(
        ngrams=public.texts(),
        noisy=noisy,
        probabilities=posterior.probabilities(
            noisy, public.counts, public.grams, plan.noise_stddev
        ),
        public={"ngrams": len(public), "length": public.length, "sha256": public.fingerprint()},
    )
