"""PrivateNgrams: the loop over k of DPNE, as one pipeline."""

import dataclasses
from typing import NamedTuple, cast

import apache_beam as beam
from apache_beam.pvalue import PCollection, PValue
from apache_beam.typehints.decorators import IOTypeHints

from beam_dpne.batches import GramSet
from beam_dpne.contributions import LimitContributions
from beam_dpne.documents import BatchDocuments
from beam_dpne.grams import ExtractGrams, PruneInvalid
from beam_dpne.histogram import WeightedHistogram
from beam_dpne.plan import PrivacyPlan
from beam_dpne.randomness import RunKey
from beam_dpne.selection import NoisyThreshold, SampleSpurious
from beam_dpne.stored import SetStore
from beam_dpne.strategies import OneRound
from beam_dpne.tokenizers import Tokenizer, resolve_tokenizer, tokenizer_name
from beam_dpne.users import GroupByUser


class LengthFacts(NamedTuple):
    """What was spent on one length, and what came of it; every number may be published.

    Attributes:
      length: k.
      noise_stddev: σ_k, in units of weight.
      threshold: ρ_k, in units of weight; None if nothing was valid.
      released: |S_k|.
      valid: |V_k|; None at k = 1.
      spurious_bound: expected number of spurious k-grams, at most: |V_k|·Φ̄(ρ_k/σ_k); 0 at k = 1.
    """

    length: int
    noise_stddev: float
    threshold: float | None
    released: int
    valid: int | None
    spurious_bound: float


class PrivateNgramsResult(NamedTuple):
    """What `PrivateNgrams` returns.

    Attributes:
      released: S_1, …, S_T: PCollections of one `GramSet` each. `DecodeGrams` makes rows of them,
        `ListFacts` the ledger's numbers.
    """

    released: tuple[PCollection[GramSet], ...]


@dataclasses.dataclass(eq=False, kw_only=True)
class ListFacts(beam.PTransform):
    """Lists what was spent on each length, and what came of it.

    Input: tuple of PCollections of one `GramSet` each, S_1, …, S_T.

    Output: PCollection of T `LengthFacts`, in any order.

    Privacy: public numbers, and sizes of released sets.

    Cost: none to speak of.

    Example:
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import ListFacts, PrivacyPlan, PrivateNgrams
      >>> plan = PrivacyPlan(epsilon=10, delta=1e-4, max_length=1)
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     documents = pipeline | beam.Create([(f"u{i}", "Good morning") for i in range(200)])
      ...     facts = (documents | PrivateNgrams(plan=plan)).released | ListFacts()
      ...     _ = facts | beam.Map(lambda facts: print(facts.length, facts.released))
      1 2

    References: none; the numbers are those of the ledger.
    """

    def __post_init__(self):
        super().__init__()

    def default_type_hints(self) -> IOTypeHints:
        """None: Beam would log a warning about a tuple of inputs."""
        return IOTypeHints.empty()

    def expand(self, released: tuple[PCollection[GramSet], ...]) -> PCollection[LengthFacts]:
        """Applies `length_facts` to each set."""
        return cast(
            "PCollection[LengthFacts]",
            released
            | "AllLengths" >> beam.Flatten()
            | "Facts" >> beam.Map(length_facts).with_output_types(LengthFacts),
        )


@dataclasses.dataclass(eq=False, kw_only=True)
class PrivateNgrams(beam.PTransform):
    """Releases n-grams of up to T words that many users share.

    Input: documents as (user, text) pairs of str, or `pyarrow.RecordBatch` with columns `user` and
    `text`.

    Output: `PrivateNgramsResult`.

    Privacy: `released`, with its rules, is user-level (plan.epsilon, plan.delta)-DP when one
    user with all documents is added or removed, for a run key that is secret and used on one input
    only.

    Cost: one shuffle of the corpus; then, for each length, one pass over what is left of the users'
    positions and one shuffle of partial sums.

    Attributes:
      plan: the parameters of the run.
      tokenizer: "words", "whitespace", "tokens", "package.module:function", or a function.
      partitions: hash partitions of users; a histogram, which is smaller, gets a quarter of that.
      run_key: secret of the run; by default a fresh one each time the transform is applied. It is
        bound to plan and tokenizer, so the same key under other parameters draws other noise.
      store: where released sets go that are too large for an element, on storage that the workers
        share; None: every set is one element.

    Raises:
      ValueError: if partitions < 1, or on an unknown tokenizer.

    Example:
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import DecodeGrams, PrivacyPlan, PrivateNgrams
      >>> plan = PrivacyPlan(epsilon=10, delta=1e-4, max_length=2, max_contributions=2,
      ...                    spurious_fraction=1e-9)
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     documents = pipeline | beam.Create([(f"u{i}", "Good morning") for i in range(200)])
      ...     result = documents | PrivateNgrams(plan=plan)
      ...     rows = result.released | DecodeGrams()
      ...     _ = rows | beam.Map(lambda rows: print(sorted(rows["ngram"].to_pylist())))
      ['good', 'morning']
      ['good morning']

    References: DPNE Algorithm 1; appendix A, Algorithm 1.
    """

    plan: PrivacyPlan
    tokenizer: str | Tokenizer = "words"
    partitions: int = 8
    run_key: RunKey | None = dataclasses.field(default=None, repr=False)
    store: SetStore | None = None

    def __post_init__(self):
        super().__init__()
        if self.partitions < 1:
            raise ValueError(f"partitions must be at least 1, got partitions={self.partitions}.")
        resolve_tokenizer(self.tokenizer)

    def default_type_hints(self) -> IOTypeHints:
        """None: Beam would log a warning about a result that is a named tuple."""
        return IOTypeHints.empty()

    def expand(self, documents: PCollection) -> PrivateNgramsResult:
        """Unrolls the loop over k."""
        given = self.run_key or RunKey.generate()
        run_key = given.bound_to(run_context(self.plan, self.tokenizer))
        users: PValue = (
            documents
            | "BatchDocuments" >> BatchDocuments()
            | "GroupByUser"
            >> GroupByUser(
                tokenizer=self.tokenizer,
                partitions=self.partitions,
                max_tokens_per_user=self.plan.max_tokens_per_user,
                run_key=run_key,
            )
        )
        released: list[PCollection[GramSet]] = []
        for length in range(1, self.plan.max_length + 1):
            previous = released[-1] if released else None
            if previous is not None:
                users = users | f"{length}/PruneInvalid" >> PruneInvalid(
                    released=previous, pruning=self.plan.pruning
                )
            released.append(self._release_length(length, users, previous, run_key))
        return PrivateNgramsResult(tuple(released))

    def _release_length(
        self,
        length: int,
        users: PValue,
        previous: PCollection[GramSet] | None,
        run_key: RunKey,
    ) -> PCollection[GramSet]:
        """One turn of the loop: from positions and S_{k−1} to S_k."""
        rule_for = OneRound(plan=self.plan, run_key=run_key).rule_for(length)
        spurious = None
        if previous is not None:
            drawn = SampleSpurious(rule_for=rule_for, run_key=run_key)
            spurious = cast("PCollection", previous | f"{length}/SampleSpurious" >> drawn)
        return cast(
            "PCollection[GramSet]",
            users
            | f"{length}/ExtractGrams" >> ExtractGrams(length=length)
            | f"{length}/LimitContributions"
            >> LimitContributions(
                length=length,
                max_contributions=self.plan.contribution_limits[length - 1],
                run_key=run_key,
            )
            | f"{length}/WeightedHistogram"
            >> WeightedHistogram(shards=-(-self.partitions // 4), spurious=spurious)
            | f"{length}/NoisyThreshold"
            >> NoisyThreshold(
                rule_for=rule_for, previous=previous, run_key=run_key, store=self.store
            ),
        )


def run_context(plan: PrivacyPlan, tokenizer: str | Tokenizer) -> str:
    """Returns the public parameters that a run key is bound to."""
    return f"ngrams {plan.to_json()} {tokenizer_name(tokenizer)}"


def length_facts(released: GramSet) -> LengthFacts:
    """Returns the ledger's numbers of one released set."""
    rule = released.rule
    if rule is None:
        raise ValueError("A set without a rule has no facts.")
    bound = 0.0 if rule.valid is None else rule.valid * rule.null_probability
    return LengthFacts(
        length=released.length,
        noise_stddev=rule.noise_stddev,
        threshold=rule.threshold,
        released=len(released),
        valid=rule.valid,
        spurious_bound=bound,
    )
