"""The run that estimates probabilities: its parameters, and how its users become them in memory."""

import dataclasses
from collections.abc import Sequence

from beam_dpne.bayesian.grams import (
    NgramProbabilities,
    probabilities_of,
    probability_table,
    sums_of_users,
)
from beam_dpne.bayesian.ledger import bayesian_contents
from beam_dpne.bayesian.plan import ProbabilitiesPlan
from beam_dpne.documents.cutting import of_laid_out
from beam_dpne.documents.private_run import PrivateRun
from beam_dpne.elements import progress
from beam_dpne.elements.batches import DocumentBlock, RowSums, UserBatch
from beam_dpne.elements.rows import NgramProbability
from beam_dpne.lists.public_counts import PublicCounts
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.release.described import Form


def _row_type(_: ProbabilitiesPlan) -> type[NgramProbability]:
    return NgramProbability


PROBABILITIES = Form(_row_type, probability_table, bayesian_contents)


@dataclasses.dataclass(eq=False, kw_only=True)
class BayesianRun(PrivateRun):
    """The parameters of a release of probabilities; `BayesianCounts` documents them for its users."""

    plan: ProbabilitiesPlan
    public: PublicCounts

    def __post_init__(self):
        super().__post_init__()
        self.public.require_length(self.plan.length)

    @property
    def form(self) -> Form:
        """How the released probabilities become a release."""
        return PROBABILITIES

    @property
    def used_counts(self) -> PublicCounts:
        """The public counts that the run uses."""
        # Every n-gram of the vocabulary gets a row, so what texts never have must not be in it.
        possible = self.public.without_left_out(self.tokenizer)
        return possible.most_frequent(self.plan.vocabulary_size)

    def public_digest(self) -> str:
        """Returns the digest of the public counts that the run uses."""
        return self.used_counts.fingerprint()

    def release_in_memory(
        self, partitions: list[list[DocumentBlock]], run_key: RunKey, workers: int
    ) -> Sequence[NgramProbabilities]:
        """Returns the probabilities, as `BayesianCounts` releases them."""
        public = self.used_counts

        def sums(batch: UserBatch) -> RowSums:
            return sums_of_users(batch, public, self.plan, run_key)

        found = of_laid_out(sums, partitions, self.cutting(run_key), workers)
        table = probabilities_of(found, public, self.plan, run_key)
        progress.enter(progress.RELEASED)
        return [table]
