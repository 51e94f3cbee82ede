"""DecodeGrams and ListReport: the rows of text, and the numbers for the ledger, of released sets."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import PCollection

from beam_dpne.elements import rows
from beam_dpne.elements.batches import UnhintedTransform, apply
from beam_dpne.elements.rows import longest_beside_shorter
from beam_dpne.mechanism.rules import GroupRule, LengthRule
from beam_dpne.ngrams.elements import GramSet
from beam_dpne.ngrams.released_rows import ReleasedRows

# Ledgers tell their readers of this function under this module's name.
unescape_item = rows.unescape_item


@dataclasses.dataclass(eq=False, kw_only=True)
class DecodeGrams(UnhintedTransform):
    """Turns released sets into rows of text.

    Input: tuple of PCollections of one `GramSet` each, S_1, …, S_T.

    Output: `pyarrow.RecordBatch` with columns length (int32), ngram (string, see `join_tokens`), score
    (float64) and, if users were counted, users, users_low and users_high (int64), one for each length
    that released something, sorted as in a release (see `in_order`).

    Privacy: post-processing of released sets.

    Cost: one worker holds all released sets.

    Example:
      >>> import numpy as np
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import DecodeGrams, GramSet
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     vocabulary = pipeline | beam.Create([GramSet(
      ...         length=1, keys=np.arange(2), scores=np.array([5.0, 7.0]),
      ...         words=pa.array(["a", "b"]), vocabulary_size=2)])
      ...     rows = (vocabulary,) | DecodeGrams()
      ...     _ = rows | beam.Map(lambda rows: print(rows.to_pylist()[0]))
      {'length': 1, 'ngram': 'b', 'score': 7.0}

    References: DPNE Algorithm 1, "Output S_1, S_2, …, S_T".
    """

    def expand(self, released: tuple[PCollection[GramSet], ...]) -> PCollection[pa.RecordBatch]:
        """Brings the sets together and decodes them."""
        longest, shorter = longest_beside_shorter(released)
        return apply(longest, "Decode", beam.FlatMap(_decode, shorter), pa.RecordBatch)


class RoundReport(NamedTuple):
    """The numbers that decided one round; each of them may be published.

    Attributes:
      round: r, from 1.
      evidence_stddev: the standard deviation of the noise in the evidence, in units of weight.
      threshold: ρ_r, in units of weight; above it an n-gram is found.
      cut: b_r, in units of weight; below it an n-gram is closed; None in the last round.
      null_probability: the probability that an n-gram that nobody holds is found in this round; 0 at
        k = 1.
      loadings: the factors of the noisy weights of the rounds so far in the evidence.
    """

    round: int
    evidence_stddev: float
    threshold: float
    cut: float | None
    null_probability: float
    loadings: tuple[float, ...]


class ClassReport(NamedTuple):
    """The numbers that decided one class of candidates; each of them may be published.

    Attributes:
      number: c, twice the logarithm to base 2 of the prediction.
      valid: |V_c|, the number of candidates of the class.
      thresholds: ρ_r of each round, in units of weight.
      cuts: b_r of each round, in units of weight; None in the last one.
      null_probabilities: the probability of being found without any weight, for each round.
    """

    number: int
    valid: int
    thresholds: tuple[float, ...]
    cuts: tuple[float | None, ...]
    null_probabilities: tuple[float, ...]


class LengthReport(NamedTuple):
    """The noise, thresholds and number of released n-grams of one length; each may be published.

    Attributes:
      length: k.
      noise_stddev: σ_k, in units of weight.
      threshold: ρ_k, in units of weight, of the last round, and the lowest of all classes; None if
        nothing was valid.
      released: |S_k|.
      valid: |V_k|; None at k = 1.
      spurious_bound: an upper bound on the expected number of spurious k-grams; 0 at k = 1.
      rounds: the numbers of each round, which were fixed before it; where candidates have classes,
        those of the class with the best prediction.
      classes: the numbers of each class; empty where candidates have none.
      groups: the numbers of each group of classes, the best one first; empty without classes.
    """

    length: int
    noise_stddev: float
    threshold: float | None
    released: int
    valid: int | None
    spurious_bound: float
    rounds: tuple[RoundReport, ...] = ()
    classes: tuple[ClassReport, ...] = ()
    groups: tuple[GroupRule, ...] = ()


@dataclasses.dataclass(eq=False, kw_only=True)
class ListReport(UnhintedTransform):
    """Lists the noise, thresholds and number of released n-grams of each length.

    Input: tuple of PCollections of one `GramSet` each, S_1, …, S_T.

    Output: PCollection of T `LengthReport`, in any order.

    Privacy: post-processing of released sets, and public numbers.

    Cost: negligible.

    Example:
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import ListReport, PrivacyPlan, PrivateNgrams
      >>> plan = PrivacyPlan(epsilon=10, delta=1e-4, max_length=1)
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     documents = pipeline | beam.Create([(f"u{i}", "Good morning") for i in range(200)])
      ...     reports = (documents | PrivateNgrams(plan=plan)).released | ListReport()
      ...     _ = reports | beam.Map(lambda report: print(report.length, report.released))
      1 2

    References: none; the numbers are those of the ledger.
    """

    def expand(self, released: tuple[PCollection[GramSet], ...]) -> PCollection[LengthReport]:
        """Applies `length_report` to each set."""
        together = released | "AllLengths" >> beam.Flatten()
        return apply(together, "Report", beam.Map(length_report), LengthReport)


def ngram_table(released: Iterable[GramSet]) -> pa.Table:
    """Returns the rows of S_1, …, S_T in the order of a release, as one table."""
    return ReleasedRows.of(released).table()


def decode_sets(released: Iterable[GramSet]) -> Iterator[pa.RecordBatch]:
    """Yields the sorted rows of each length that released something, shortest first."""
    yield from ReleasedRows.of(released, are_rounded=False).batches()


def _decode(longest: GramSet, shorter: Iterable[GramSet]) -> Iterator[pa.RecordBatch]:
    return decode_sets([*shorter, longest])


def length_report(released: GramSet) -> LengthReport:
    """Returns the ledger's numbers of one released set."""
    rule = released.rule
    if rule is None:
        raise ValueError("A set without a rule has no report.")
    return LengthReport(
        length=released.length,
        noise_stddev=rule.noise_stddev,
        threshold=rule.threshold,
        released=len(released),
        valid=rule.valid,
        spurious_bound=rule.expected_spurious,
        rounds=_round_reports(rule),
        classes=_class_reports(rule) if rule.by_prediction else (),
        groups=rule.groups,
    )


def _round_reports(rule: LengthRule) -> tuple[RoundReport, ...]:
    return tuple(
        RoundReport(
            round=number,
            evidence_stddev=rule_of_round.evidence_stddev,
            threshold=rule_of_round.threshold,
            cut=rule_of_round.cut if number < len(rule.rounds) else None,
            null_probability=rule_of_round.null_probability,
            loadings=tuple(
                loading / rule_of_round.loading_unit for loading in rule_of_round.loadings
            ),
        )
        for number, rule_of_round in enumerate(rule.rounds, start=1)
    )


def _class_reports(rule: LengthRule) -> tuple[ClassReport, ...]:
    return tuple(
        ClassReport(
            number=own.number,
            valid=own.valid or 0,
            thresholds=tuple(each.threshold for each in own.rounds),
            cuts=(*(each.cut for each in own.rounds[:-1]), None),
            null_probabilities=tuple(each.null_probability for each in own.rounds),
        )
        for own in rule.classes
    )
