"""What decides a round and a length: public numbers, known before its data are looked at.

Plain numbers without Beam or keys, so that a plan has them at hand at once; `mechanism` applies them.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from beam_dpne.mechanism.evidence_law import NOTHING_YET

UNITS = 2**32
CELLS_PER_STDDEV = 64
_SAME = 1e-9


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoundRule:
    """What decides one round of a length: public numbers.

    Attributes:
      loadings: ℓ_s of rounds s = 1..r, in units of 1/loading_unit: Y_r = Σ_s ℓ_s w_s.
      loading_unit: what the loadings are divided by; an integer.
      evidence_stddev: standard deviation of the noise in Y_r.
      threshold_units: ρ_r in units of 2^-32, rounded up; above it a gram is found.
      cut_cell: the lowest cell that stays open for the next round, at most 0; 0 in the last round,
        where none does.
      null_probability: P_r, that a gram without any weight is open until round r and found in it.
      score_divisor: a score is the evidence over this.
    """

    loadings: tuple[int, ...] = (1,)
    loading_unit: int = 1
    evidence_stddev: float
    threshold_units: int
    cut_cell: int = 0
    null_probability: float
    score_divisor: float = 1.0

    @property
    def threshold(self) -> float:
        """ρ_r, in units of weight."""
        return self.threshold_units / UNITS

    @property
    def cut(self) -> float:
        """b_r, in units of weight: the lower border of the lowest open cell."""
        return (self.threshold_units + self.cut_cell * self.cell_units) / UNITS

    @property
    def cell_units(self) -> int:
        """The width of a cell, in units of 2^-32."""
        return cell_units(self.evidence_stddev)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LengthRule:
    """What decides one length: public numbers, known before the length's data are looked at.

    Attributes:
      length: k.
      noise_stddev: standard deviation of each round's fresh noise, in units of weight.
      rounds: one rule for each round; empty if nothing is valid: S_k = ∅.
      valid: |V_k|, exact; None at k = 1, where every string is possible.
      pruning: which grams are valid: "both" or "single".
    """

    length: int
    noise_stddev: float
    rounds: tuple[RoundRule, ...]
    valid: int | None = None
    pruning: str = "both"

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "LengthRule":
        """Returns a rule from `dataclasses.asdict` of it, also after a round trip through JSON."""
        rounds = (
            RoundRule(**{**each, "loadings": tuple(each["loadings"])}) for each in fields["rounds"]
        )
        return cls(**{**fields, "rounds": tuple(rounds)})

    @property
    def threshold(self) -> float | None:
        """ρ of the last round, in units of weight; None if nothing is valid."""
        return self.rounds[-1].threshold if self.rounds else None

    @property
    def null_probability(self) -> float:
        """Σ_r P_r, the probability that a gram without any weight is released."""
        return math.fsum(rule.null_probability for rule in self.rounds)

    def is_close_to(self, other: "LengthRule") -> bool:
        """Whether two rules are one but for the last digits of another machine's arithmetic."""
        known = (self.length, self.valid, self.pruning, len(self.rounds))
        return (
            known == (other.length, other.valid, other.pruning, len(other.rounds))
            and math.isclose(self.noise_stddev, other.noise_stddev, rel_tol=_SAME)
            and all(
                math.isclose(mine.threshold, theirs.threshold, rel_tol=_SAME, abs_tol=_SAME)
                for mine, theirs in zip(self.rounds, other.rounds, strict=True)
            )
        )


def length_rule(
    *,
    length: int,
    noise_stddev: float,
    threshold: float | None,
    valid: int | None = None,
    pruning: str = "both",
) -> LengthRule:
    """Returns the rule of a length of one round from a threshold in units of weight.

    None as threshold: nothing is valid.
    """
    rounds = ()
    if threshold is not None:
        units = math.ceil(threshold * UNITS)
        tail = NOTHING_YET.tail(noise_stddev, units / UNITS)
        rounds = (
            RoundRule(evidence_stddev=noise_stddev, threshold_units=units, null_probability=tail),
        )
    return LengthRule(
        length=length, noise_stddev=noise_stddev, rounds=rounds, valid=valid, pruning=pruning
    )


def constants() -> dict[str, Any]:
    """Returns the units of weight in 1, and the cells in a standard deviation."""
    return {"units": UNITS, "cells_per_stddev": CELLS_PER_STDDEV}


def cell_units(stddev: float) -> int:
    """Returns the width of a cell, one 64th of a standard deviation, in units of 2^-32."""
    return max(1, round(stddev * UNITS / CELLS_PER_STDDEV))
