"""PrivateNgrams: the loop over k of DPNE, as one pipeline."""

import dataclasses
from typing import Any, NamedTuple, cast

import apache_beam as beam
from apache_beam.pvalue import PCollection

from beam_dpne.documents.steps import DocumentsTransform, create_public
from beam_dpne.elements.batches import UserBatch
from beam_dpne.elements.rows import CountedNgram, ReleasedNgram
from beam_dpne.lists.left_out import left_out_by
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams.elements import Contributions, GramSet, HistogramShard, PresentGrams
from beam_dpne.ngrams.length_rules import rule_for
from beam_dpne.ngrams.range_steps import (
    DecideRound,
    NoisyThreshold,
    SampleSpurious,
    WeightedHistogram,
)
from beam_dpne.ngrams.run import GROUPED_NGRAMS, NGRAMS, NgramsRun
from beam_dpne.ngrams.user_steps import (
    CountUsers,
    ExtractGrams,
    LimitContributions,
    PruneInvalid,
    SpendBudgets,
)
from beam_dpne.release.ledger import Run
from beam_dpne.release.steps import Result


class _Released(NamedTuple):
    released: tuple[PCollection[GramSet], ...]
    run: Run


class PrivateNgramsResult(Result[ReleasedNgram | CountedNgram], _Released):
    """The result of `PrivateNgrams`, which `WriteRelease` takes.

    Its `rows` are `CountedNgram`, or `ReleasedNgram` with count_share=0.

    Attributes:
      released: S_1, …, S_T, a PCollection of one `GramSet` for each.
      run: the public facts of the run, for the ledger.
    """

    form = NGRAMS


class GroupedNgramsResult(PrivateNgramsResult):
    """The result of `PrivateNgrams` with a group_field.

    Its `rows` are `CountedGroupedNgram`, or `GroupedNgram` with count_share=0.
    """

    form = GROUPED_NGRAMS


@dataclasses.dataclass(eq=False, kw_only=True)
class PrivateNgrams(NgramsRun, DocumentsTransform):
    """Releases n-grams of up to T words that many users share.

    Input: documents as `BatchDocuments` takes them: rows with field names (NamedTuple, `beam.Row`,
    dict), `pyarrow.RecordBatch`, or plain tuples of (user, text), with a group_field of (user, text,
    group); bounded and in the global window.

    Output: `PrivateNgramsResult`.

    Privacy: `released`, with its rules, is user-level (plan.epsilon, plan.delta)-DP when one
    user with all documents is added or removed, for a run key that is secret and used on one input
    only.

    Cost: one shuffle of the corpus; then, for each round of each length, one pass over the positions
    that users still have, and one shuffle of partial sums.

    Attributes:
      plan: the parameters of the run.
      known: n-grams that are likely by what is public, never by the private data; they need less
        evidence. Only the strategy adaptive takes them. They are made with the tokenizer of the run
        if that is `TextRules`.
      tokenizer: "words", "whitespace", "tokens", "package.module:function", or a function. What
        `TextRules` leave out of texts is never released.
      partitions: the number of hash partitions of users; a histogram, which is smaller, has a quarter
        as many.
      run_key: the secret of the run; by default a fresh one each time the transform is applied. It is
        bound to all that decides the mechanism (`key_context`), so the same key under other
        parameters, another tokenizer or another version draws other noise.
      described: how records became documents, if they were read from files; the key is bound to it.
        By default the elements are rows with these fields.
      participation: who may take part, if the release is of a series; the command line sets it.
      store: where sets go that are too large for an element. The workers must share it, and it must be
        as private as the data. With None every set is one element.
      user_field: the name of the field with the user, which defines whom the guarantee protects.
      text_field: the name of the field with the text, or several names, of which each is a document.
      group_field: the name of the field with the group of a text, or None. N-grams of different groups
        are different n-grams, and rows have the column group. Nobody lists the groups; a group is
        released only with an n-gram of it.

    Raises:
      ValueError: if partitions < 1, on an unknown tokenizer, if `known` has what the
        tokenizer leaves out, or if `BatchDocuments` refuses the fields or the input.

    Example:
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import NgramsPlan, PrivateNgrams
      >>> plan = NgramsPlan(epsilon=10, delta=1e-4, max_length=2, max_contributions=2,
      ...                    spurious_fraction=1e-9)
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     documents = pipeline | beam.Create([(f"u{i}", "Good morning") for i in range(200)])
      ...     result = documents | PrivateNgrams(plan=plan)
      ...     pairs = result.rows | beam.Filter(lambda row: row.length == 2)
      ...     _ = pairs | beam.Map(lambda row: print(row.ngram))
      good morning

    References: DPNE Algorithm 1; appendix A, Algorithm 1.
    """

    def expand(self, documents: PCollection) -> PrivateNgramsResult:
        """Brings users together and unrolls the loop over lengths and rounds."""
        keys = self.run_keys()
        users = self.grouped_by_user(documents, keys.bound)
        released = self._released(users, keys.bound)
        run = Run.of(self, keys)
        if self.is_grouped:
            return GroupedNgramsResult(released, run)
        return PrivateNgramsResult(released, run)

    def _released(
        self, users: PCollection[UserBatch], run_key: RunKey
    ) -> tuple[PCollection[GramSet], ...]:
        """Returns S_1, …, S_T, with numbers of users if the plan has a count_share."""
        root = self.known_root
        known = (
            None if root is None else users.pipeline | "Known" >> create_public(root, self.store)
        )
        first_of_all = cast("PCollection[GramSet] | None", known)
        everybody = users
        positions: PCollection[PresentGrams] | None = None
        released: list[PCollection[GramSet]] = []
        for length in range(1, self.plan.max_length + 1):
            past = _Sides(released[-1] if released else first_of_all, None, positions)
            step = self._released_length(length, users, past, run_key)
            users = step.users
            positions = step.positions
            # Users have the same positions after the first round of length 1, and only less budget.
            # So that round's stage need not put out its input too.
            everybody = step.after_first if length == 1 else everybody
            released.append(step.found)
        if not self.plan.count_share:
            return tuple(released)
        count = CountUsers(plan=self.plan, released=released, run_key=run_key, store=self.store)
        return cast("tuple[PCollection[GramSet], ...]", everybody | "CountUsers" >> count)

    def _released_length(
        self, length: int, users: PCollection[UserBatch], past: "_Sides", run_key: RunKey
    ) -> "_Length":
        """Releases one length in its rounds, as `InMemory.release_length` does."""
        rule = rule_for(self.plan) if past.released is None else None
        sent, users = self._contribute(length, 1, users, past, run_key)
        after_first = users
        weighted = WeightedHistogram(histogram_ranges=self.histogram_ranges, previous=past.released)
        shards = _applied(sent, f"{length}/1/WeightedHistogram", weighted)
        spurious: PCollection[HistogramShard] | None = None
        if past.released is not None:
            histogram = shards if self.plan.is_adaptive else None
            draw = SampleSpurious(plan=self.plan, run_key=run_key, histogram=histogram)
            spurious = _applied(past.released, f"{length}/1/SampleSpurious", draw)
        last = self.plan.rounds_of(length)
        for number in range(1, last):
            decide = DecideRound(
                round_number=number,
                root=self.start,
                previous=past.released,
                spurious=spurious,
                rule=rule,
                run_key=run_key,
                store=self.store,
            )
            present, still_open = _applied(shards, f"{length}/{number}/DecideRound", decide)
            # After the first round users' positions are in terms of the set of the round before.
            past = _Sides(past.released, present, past.present)
            # Spurious n-grams are drawn once; from then on they are in the histogram.
            spurious = None
            sent, users = self._contribute(length, number + 1, users, past, run_key)
            weighted = WeightedHistogram(
                histogram_ranges=self.histogram_ranges, open_pieces=still_open
            )
            shards = _applied(sent, f"{length}/{number + 1}/WeightedHistogram", weighted)
        release = NoisyThreshold(
            root=self.start,
            previous=past.released,
            spurious=spurious,
            rule=rule,
            run_key=run_key,
            left_out=left_out_by(self.tokenizer),
            store=self.store,
        )
        found = _applied(shards, f"{length}/{last}/NoisyThreshold", release)
        return _Length(found, users, past.present, after_first)

    def _contribute(
        self,
        length: int,
        number: int,
        users: PCollection[UserBatch],
        past: "_Sides",
        run_key: RunKey,
    ) -> tuple[PCollection[Contributions], PCollection[UserBatch]]:
        """Returns what users send to a round, and the users with what they have left."""
        label = f"{length}/{number}"
        if self.plan.is_adaptive:
            spend = SpendBudgets(
                plan=self.plan,
                length=length,
                round_number=number,
                run_key=run_key,
                previous=past.released,
                present=past.present,
                before=past.positions,
            )
            return _applied(users, f"{label}/SpendBudgets", spend)
        if past.released is not None:
            prune = PruneInvalid(released=past.released, pruning=self.plan.pruning)
            users = _applied(users, f"{label}/PruneInvalid", prune)
        limit = LimitContributions(
            max_contributions=self.plan.contribution_limits[length - 1], run_key=run_key
        )
        grams = _applied(users, f"{label}/ExtractGrams", ExtractGrams())
        return _applied(grams, f"{label}/LimitContributions", limit), users


class _Sides(NamedTuple):
    """What the lengths and rounds before have left, each as a PCollection of one set; see `Past`."""

    released: PCollection[GramSet] | None
    present: PCollection[PresentGrams] | None
    positions: PCollection[PresentGrams] | None


class _Length(NamedTuple):
    """A length that is released.

    Attributes:
      found: S_k.
      users: the users with what they have left.
      positions: the set in terms of which their positions are; None if that is S_{k−1}.
      after_first: the users after the first round.
    """

    found: PCollection[GramSet]
    users: PCollection[UserBatch]
    positions: PCollection[PresentGrams] | None
    after_first: PCollection[UserBatch]


def _applied(elements: PCollection | None, label: str, transform: beam.PTransform) -> Any:
    """Returns the result of a transform, which Beam's types do not know."""
    return elements | label >> transform
