"""PaperBayesianCounts: the paper's mechanism as a pipeline, without any privacy guarantee."""

import dataclasses
import functools
from collections.abc import Iterable

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsIter, PCollection

from beam_dpne.bayesian import counting
from beam_dpne.bayesian import paper_formulas as formulas
from beam_dpne.bayesian.counting import GramSums, NgramProbabilities, UserGrams
from beam_dpne.bayesian.paper_formulas import Norms, PaperBayesianPlan, PaperSums
from beam_dpne.bayesian.public_counts import PublicCounts
from beam_dpne.bayesian.transform import AddUp, CountingTransform, result_of
from beam_dpne.elements import progress
from beam_dpne.mechanism.randomness import RunKey


@dataclasses.dataclass(eq=False, kw_only=True)
class PaperBayesianCounts(CountingTransform):
    """Estimates n-gram probabilities as the paper prints it: for comparison, NOT private.

    Input: documents, as `BayesianCounts` takes them.

    Output: PCollection of one `NgramProbabilities`, whose `guarantee` says that there is none.

    Privacy: none. The noise is scaled by the sensitivity of the database at hand, so that its size
    shows who is in the data. `PublishRelease` refuses the output, and no program offers it. Never use
    it on private data: `BayesianCounts` is the private form.

    Cost: as `BayesianCounts`, and a second look at every user.

    Attributes:
      plan: the parameters of the run.
      public: the public counts; the most frequent plan.vocabulary_size of them are used.
      tokenizer: as in `BayesianCounts`.
      partitions: hash partitions of users; the sums get a quarter of that.
      run_key: secret of the run; by default a fresh one each time the transform is applied.
      store: where public counts go that are too large for the job's graph; with None they stay in it.
      described: how records became documents, if they were read from files.
      user_field: name of the field that holds the user.
      text_field: name of the field that holds the text, or several names.

    Raises:
      ValueError: as `BayesianCounts`.

    Example:
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import PaperBayesianCounts, PaperBayesianPlan, PublicCounts
      >>> public = PublicCounts.of([("good", "morning"), ("good", "night")], [1, 1])
      >>> plan = PaperBayesianPlan(epsilon=10, delta=1e-4, length=2)
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     documents = pipeline | beam.Create([(f"u{i}", "Good morning") for i in range(99)])
      ...     found = documents | PaperBayesianCounts(plan=plan, public=public)
      ...     _ = found | beam.Map(lambda one: print(one.guarantee[:38]))
      no differential privacy guarantee: the

    References: Ramadan, Withers and Orr, Algorithms 1 and 2.
    """

    plan: PaperBayesianPlan

    def expand(self, documents: PCollection) -> PCollection[NgramProbabilities]:
        """Computes sums, then the sensitivity of this database over its users, then probabilities."""
        plan = self.plan
        counted = self.counted(documents)
        parts = counted.sums | "Parts" >> beam.FlatMap(_values).with_output_types(GramSums)
        look = beam.Map(_norms, AsIter(parts), counted.public, plan=plan, run_key=counted.run_key)
        norms = counted.grams | "LookAtUsers" >> look.with_output_types(Norms)
        release = beam.Map(
            _release,
            AsIter(parts),
            AsIter(norms),
            counted.public,
            plan=plan,
            run_key=counted.run_key,
        )
        once = documents.pipeline | "Once" >> beam.Create([None])
        return once | "Release" >> release.with_output_types(NgramProbabilities)

    def summing(self, run_key: RunKey) -> tuple[int, AddUp]:
        """Returns two columns, or three with tuning; scoring users are in the third one only."""
        add = functools.partial(_add_up, plan=self.plan, run_key=run_key)
        return (3 if self.plan.is_tuned else 2), add


def _add_up(
    grams: UserGrams, table: np.ndarray, *, plan: PaperBayesianPlan, run_key: RunKey
) -> None:
    scoring = formulas.is_scoring(grams, plan, run_key)
    counting.add_up(formulas.of_users(grams, ~scoring), table[:, :2])
    if plan.is_tuned:
        judges = formulas.of_users(grams, scoring)
        np.add.at(table[:, 2], judges.rows, judges.counts)


def _values(keyed: tuple[int, Iterable[GramSums]]) -> Iterable[GramSums]:
    return keyed[1]


def _sums(parts: Iterable[GramSums], public: PublicCounts, plan: PaperBayesianPlan) -> PaperSums:
    width = 3 if plan.is_tuned else 2
    return PaperSums(counting.merge_sums(parts, 0, len(public), width))


def _norms(
    grams: UserGrams,
    parts: Iterable[GramSums],
    public: PublicCounts,
    *,
    plan: PaperBayesianPlan,
    run_key: RunKey,
) -> Norms:
    scoring = formulas.is_scoring(grams, plan, run_key)
    return formulas.largest_norms(grams, scoring, _sums(parts, public, plan), public.counts, plan)


def _release(
    _: None,
    parts: Iterable[GramSums],
    norms: Iterable[Norms],
    public: PublicCounts,
    *,
    plan: PaperBayesianPlan,
    run_key: RunKey,
) -> NgramProbabilities:
    progress.enter(progress.RELEASED, None)
    largest = formulas.merge_norms(norms, plan)
    sums = _sums(parts, public, plan)
    found, facts = formulas.sample(sums, largest, public.counts, plan, run_key)
    return result_of(found, public, plan, facts)
