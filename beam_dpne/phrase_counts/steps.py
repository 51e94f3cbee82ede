"""CountPhrases, the numbers of users of a public list as one pipeline."""

import dataclasses
import functools
from collections.abc import Iterable
from typing import NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsIter, AsSingleton, PCollection

from beam_dpne.counts.measuring import Held
from beam_dpne.documents.steps import DocumentsTransform, create_public
from beam_dpne.elements import progress
from beam_dpne.elements.batches import RowSums
from beam_dpne.elements.bundles import apply, sum_rows
from beam_dpne.elements.coders import register_batches
from beam_dpne.elements.rows import GroupedPhraseCount, PhraseCount
from beam_dpne.lists.phrases import PhraseList
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.phrase_counts.elements import PhraseNumbers
from beam_dpne.phrase_counts.plan import PhraseCountsPlan
from beam_dpne.phrase_counts.run import (
    GROUPED_PHRASES,
    PHRASES,
    PhraseCountsRun,
    bound_of,
    numbers_of,
)
from beam_dpne.phrase_counts.sums import (
    Bound,
    held_phrases,
    sum_excess,
    sum_numbers,
    sum_sizes,
)
from beam_dpne.release.ledger import Run
from beam_dpne.release.steps import Result

register_batches(PhraseList, PhraseNumbers, Held, Bound)


class _Released(NamedTuple):
    released: PCollection[PhraseNumbers]
    run: Run


class CountPhrasesResult(Result[PhraseCount], _Released):
    """The outputs of `CountPhrases`, which `WriteRelease` takes; `rows` are `PhraseCount`.

    Attributes:
      released: PCollection of one `PhraseNumbers`.
      run: the public facts of the run, for the ledger.
    """

    form = PHRASES


class CountGroupedPhrasesResult(Result[GroupedPhraseCount], _Released):
    """The result of `CountPhrases` with a group_field; `rows` are `GroupedPhraseCount`."""

    form = GROUPED_PHRASES


@dataclasses.dataclass(eq=False, kw_only=True)
class CountPhrases(PhraseCountsRun, DocumentsTransform):
    """Counts, with noise, the users of every phrase of a public list.

    Input: documents as `BatchDocuments` takes them: rows with field names (NamedTuple, `beam.Row`,
    dict), `pyarrow.RecordBatch`, or plain tuples of (user, text), with a group_field of (user, text,
    group); bounded and in the global window.

    Output: `CountPhrasesResult`, or with a group_field `CountGroupedPhrasesResult`.

    Privacy: `released` is user-level (plan.epsilon, plan.delta)-DP when one user with all documents is
    added or removed, for a run key that is secret and used on one input only. Every phrase of the list
    gets noise, whether or not anybody has it.

    Cost: one shuffle of the corpus, and three of partial sums. One worker holds a number for each
    phrase.

    Attributes:
      plan: the parameters of the run.
      phrases: the list, which must not be made from the private data; without those that the tokenizer
        cannot make.
      tokenizer: "words", "whitespace", "tokens", "package.module:function", or a function; the words
        of `phrases` are such tokens.
      group_field: the name of the field with the group of a text, or None; with it `phrases` has
        groups.
      partitions, described, user_field, text_field: as in `PrivateNgrams`.
      run_key: as there; it is bound to the list, too.
      participation: who may take part, if the release is of a series; the command line sets it.
      store: where a list goes that is too large for the job's graph; with None it stays in it.

    Raises:
      ValueError: if partitions < 1, the list is longer than plan.max_phrases, on an unknown tokenizer,
        or if `BatchDocuments` refuses the fields or the input.

    Example:
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import CountPhrases, PhraseCountsPlan, PhraseList
      >>> phrases = PhraseList.of([("good", "morning"), ("good", "night")])
      >>> plan = PhraseCountsPlan(epsilon=4, delta=1e-6)
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     documents = pipeline | beam.Create([(f"u{i}", "Good morning") for i in range(9999)])
      ...     result = documents | CountPhrases(plan=plan, phrases=phrases)
      ...     _ = result.rows | beam.Map(lambda row: print(row.ngram, round(row.users, -3)))
      good morning 10000
      good night 0

    References: Imbens and Manski, "Confidence intervals for partially identified parameters"
      (Econometrica 2004), has the intervals. The mechanism is ours.
    """

    def expand(self, documents: PCollection) -> CountPhrasesResult | CountGroupedPhrasesResult:
        """Sums three times over users, each time with what was released before beside them."""
        keys = self.run_keys()
        plan = self.plan
        run_key = keys.bound
        listed = documents.pipeline | "Phrases" >> create_public(self.phrases, self.store)
        phrases = AsSingleton(listed)
        users = self.grouped_by_user(documents, run_key)
        held = apply(users, "Held", beam.Map(held_phrases, phrases), Held)
        once = documents.pipeline | "Once" >> beam.Create([None])
        members = len(self.phrases)
        of_sizes = functools.partial(sum_sizes, members=members)
        sizes = AsIter(sum_rows(held, of_sizes, label="Sizes"))
        choose = beam.Map(_bound, sizes, members=members, plan=plan, run_key=run_key)
        bound = AsSingleton(apply(once, "Bound", choose, Bound))
        excess = AsIter(sum_rows(held, sum_excess, bound, label="Excess"))
        numbers = AsIter(sum_rows(held, sum_numbers, bound, label="Numbers"))
        release = beam.Map(_release, excess, numbers, phrases, bound, plan=plan, run_key=run_key)
        released = apply(once, "Release", release, PhraseNumbers)
        run = Run.of(self, keys)
        if self.is_grouped:
            return CountGroupedPhrasesResult(released, run)
        return CountPhrasesResult(released, run)


def _bound(
    _: None,
    sizes: Iterable[RowSums],
    *,
    members: int,
    plan: PhraseCountsPlan,
    run_key: RunKey,
) -> Bound:
    return bound_of(sizes, members, plan, run_key)


def _release(
    _: None,
    excess: Iterable[RowSums],
    numbers: Iterable[RowSums],
    phrases: PhraseList,
    bound: Bound,
    *,
    plan: PhraseCountsPlan,
    run_key: RunKey,
) -> PhraseNumbers:
    progress.enter("decide", None)
    found = numbers_of(excess, numbers, phrases, bound=bound, plan=plan, run_key=run_key)
    progress.enter(progress.RELEASED, None)
    return found
