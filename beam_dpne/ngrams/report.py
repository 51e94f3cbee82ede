"""ListReport: the ledger's numbers of each length, its noise, thresholds and released n-grams."""

import dataclasses
from typing import NamedTuple, cast

import apache_beam as beam
from apache_beam.pvalue import PCollection
from apache_beam.typehints.decorators import IOTypeHints

from beam_dpne.mechanism.rules import LengthRule
from beam_dpne.ngrams.elements import GramSet


class RoundReport(NamedTuple):
    """The numbers that decided one round; each of them may be published.

    Attributes:
      round: r, from 1.
      evidence_stddev: standard deviation of the noise in the evidence, in units of weight.
      threshold: ρ_r, in units of weight: above it a gram is found.
      cut: b_r, in units of weight: below it a gram is closed; None in the last round.
      null_probability: that a gram that nobody holds is found in this round; 0 at k = 1.
      loadings: the factors of the noisy weights of the rounds so far in the evidence.
    """

    round: int
    evidence_stddev: float
    threshold: float
    cut: float | None
    null_probability: float
    loadings: tuple[float, ...]


class LengthReport(NamedTuple):
    """The noise, thresholds and number of released n-grams of one length; each may be published.

    Attributes:
      length: k.
      noise_stddev: σ_k, in units of weight.
      threshold: ρ_k, in units of weight, of the last round; None if nothing was valid.
      released: |S_k|.
      valid: |V_k|; None at k = 1.
      spurious_bound: expected number of spurious k-grams, at most: |V_k|·Σ_r P_r; 0 at k = 1.
      rounds: the numbers of each round that were fixed before it.
    """

    length: int
    noise_stddev: float
    threshold: float | None
    released: int
    valid: int | None
    spurious_bound: float
    rounds: tuple[RoundReport, ...] = ()


@dataclasses.dataclass(eq=False, kw_only=True)
class ListReport(beam.PTransform):
    """Lists the noise, thresholds and number of released n-grams of each length.

    Input: tuple of PCollections of one `GramSet` each, S_1, …, S_T.

    Output: PCollection of T `LengthReport`, in any order.

    Privacy: public numbers, and sizes of released sets.

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

    def __post_init__(self):
        super().__init__()

    def default_type_hints(self) -> IOTypeHints:
        """None: Beam would log a warning about a tuple of inputs."""
        return IOTypeHints.empty()

    def expand(self, released: tuple[PCollection[GramSet], ...]) -> PCollection[LengthReport]:
        """Applies `length_report` to each set."""
        return cast(
            "PCollection[LengthReport]",
            released
            | "AllLengths" >> beam.Flatten()
            | "Report" >> beam.Map(length_report).with_output_types(LengthReport),
        )


def length_report(released: GramSet) -> LengthReport:
    """Returns the ledger's numbers of one released set."""
    if released.is_public:
        return LengthReport(
            length=released.length,
            noise_stddev=0.0,
            threshold=None,
            released=0,
            valid=len(released),
            spurious_bound=0.0,
        )
    rule = released.rule
    if rule is None:
        raise ValueError("A set without a rule has no report.")
    bound = 0.0 if rule.valid is None else rule.valid * rule.null_probability
    return LengthReport(
        length=released.length,
        noise_stddev=rule.noise_stddev,
        threshold=rule.threshold,
        released=len(released),
        valid=rule.valid,
        spurious_bound=bound,
        rounds=_round_reports(rule),
    )


def _round_reports(rule: LengthRule) -> tuple[RoundReport, ...]:
    return tuple(
        RoundReport(
            round=number,
            evidence_stddev=own.evidence_stddev,
            threshold=own.threshold,
            cut=own.cut if number < len(rule.rounds) else None,
            null_probability=own.null_probability,
            loadings=tuple(loading / own.loading_unit for loading in own.loadings),
        )
        for number, own in enumerate(rule.rounds, start=1)
    )
