"""The rules of rounds and lengths, and the law of pure noise from which their thresholds follow.

A rule consists of public numbers that are known before the data of its round are used. `thresholds`
applies rules to weights.

An n-gram that nobody holds has noise only: its evidence after round r is Y_r = Σ_{s≤r} ℓ_s Z_s. In each
round it is found (Y_r > ρ_r), stays open (b_r < Y_r ≤ ρ_r) or is closed. `NullLaw` is the distribution
of Y_r for the open ones: the density after round r is that after round r − 1, convolved with
N(0, ℓ_r²) and cut to (b_r, ρ_r]. It is computed by quadrature from public numbers alone.
"""

import dataclasses
import functools
import math

import numpy as np
import numpy.typing as npt
import scipy

UNITS = 2**32
CELLS_PER_STDDEV = 64
PANEL = 0.5
NODES = 20
# The class of a known n-gram has the number of its prediction plus this; those are from −154 to 269.
KNOWN_CLASS = 2**10


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvidenceRule:
    """How weights become evidence, and in which cells a threshold divides it: of n-grams and of items.

    Attributes:
      loadings: ℓ_s of rounds s = 1..r, in units of 1/loading_unit: Y_r = Σ_s ℓ_s w_s.
      loading_unit: the integer by which the loadings are divided.
      evidence_stddev: the standard deviation of the noise in Y_r.
      threshold_units: ρ_r in units of 2^-32, rounded up. What has more evidence is found.
    """

    loadings: tuple[int, ...] = (1,)
    loading_unit: int = 1
    evidence_stddev: float
    threshold_units: int

    @property
    def threshold(self) -> float:
        """The threshold ρ_r, in units of weight."""
        return self.threshold_units / UNITS

    @property
    def cell_units(self) -> int:
        """The width of a cell, in units of 2^-32."""
        return cell_units(self.evidence_stddev)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoundRule(EvidenceRule):
    """The public numbers that decide round r of a length.

    Attributes:
      loadings, loading_unit, evidence_stddev, threshold_units: as in `EvidenceRule`.
      cut_cell: the lowest cell that stays open for the next round, at most 0. It is 0 in the last
        round, after which no cell is open.
      null_probability: P_r, the probability that an n-gram without weight is open until round r and
        found in it.
      score_divisor: the evidence is divided by it to give a score.
    """

    cut_cell: int = 0
    null_probability: float
    score_divisor: float = 1.0

    @property
    def cut(self) -> float:
        """The lower border b_r of the lowest open cell, in units of weight."""
        return (self.threshold_units + self.cut_cell * self.cell_units) / UNITS


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassRule:
    """The rules of the rounds for one class of candidates.

    Attributes:
      number: c, the number of the class; 0 where a length has one class only.
      valid: |V_c|, exact; None at k = 1, where every string is possible.
      rounds: one rule for each round.
    """

    number: int = 0
    valid: int | None = None
    rounds: tuple[RoundRule, ...]

    @property
    def is_known(self) -> bool:
        """Whether its candidates are known n-grams."""
        return self.number > KNOWN_CLASS // 2

    @property
    def null_probability(self) -> float:
        """The probability Σ_r P_r that an n-gram of the class without weight is released."""
        return math.fsum(rule.null_probability for rule in self.rounds)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupRule:
    """The public numbers that decide the probabilities of a group of classes.

    Attributes:
      lowest: the lowest class of the group; the group reaches up to the next one.
      candidates: Σ ω_c·|V_c|.
      noise_stddev: s, the noise of the count of held candidates; 0 if the group was not counted.
      noisy_unheld: the upper edge of the cell of X, the noisy number of candidates that nobody holds,
        weighted by ω; `candidates` if the group was not counted.
      unheld: N, by which the tolerated number is divided.
      probability: P, with which a candidate of the best class without weight is released, at most.
      noisy_held: of known words, the lower edge of the cell of a second count, of those that somebody
        holds, from which the tolerated number follows.
    """

    lowest: int
    candidates: float
    noise_stddev: float
    noisy_unheld: float
    unheld: float
    probability: float = 0.0
    noisy_held: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class LengthRule:
    """The public numbers that decide one length; they are known before its data are used.

    All classes have the same number of rounds, with the same noise, and the same loadings but for those
    of known words (`families`); they differ in thresholds, cuts and null probabilities.

    Attributes:
      length: k.
      noise_stddev: the standard deviation of each round's fresh noise, in units of weight.
      classes: the rules of the classes, by ascending numbers. It is empty if no n-gram is valid, and
        then S_k = ∅.
      groups: the groups of classes, the best one first; empty without classes.
      by_prediction: whether candidates are sorted into classes by a public prediction; else there is
        one class of all.
      pruning: "both" or "single", the rule by which n-grams are valid.
    """

    length: int
    noise_stddev: float
    classes: tuple[ClassRule, ...]
    groups: tuple[GroupRule, ...] = ()
    by_prediction: bool = False
    pruning: str = "both"

    @property
    def rounds(self) -> tuple[RoundRule, ...]:
        """The rules of the rounds of the best class; at k = 1 of words that are not known."""
        return next((best.rounds for best, _ in self.families), ())

    @property
    def families(self) -> list[tuple[ClassRule, np.ndarray]]:
        """Classes with equal loadings: the best one, and which classes they are, (classes,) bool.

        At k = 1 the evidence of known words adds up over the rounds, and that of others does not.
        """
        if not self.classes:
            return []
        known = np.array([each.is_known for each in self.classes])
        if self.length > 1 or known.all() or not known.any():
            return [(self.classes[-1], np.ones(known.size, bool))]
        return [(self.classes[0], ~known), (self.classes[-1], known)]

    @property
    def valid(self) -> int | None:
        """The number of candidates |V_k|, exact; None at k = 1, where every string is possible."""
        sizes = [each.valid for each in self.classes]
        if self.length == 1 or None in sizes:
            return None
        return sum(size for size in sizes if size is not None)

    @property
    def threshold(self) -> float | None:
        """The lowest threshold of the last round, in units of weight; None if no n-gram is valid.

        At k = 1 it is that of words that are not known.
        """
        own = [each for each in self.classes if self.length > 1 or not each.is_known]
        return min((each.rounds[-1].threshold for each in own), default=None)

    @property
    def expected_spurious(self) -> float:
        """At most so many n-grams that nobody holds are released in the mean.

        It is Σ_G P_G·N_G, in the mean over the noise of counts as well, and without groups
        Σ_c |V_c|·Σ_r P_{r,c}.
        """
        if self.groups:
            return math.fsum(group.probability * group.unheld for group in self.groups)
        return math.fsum((each.valid or 0) * each.null_probability for each in self.classes)

    def places(self, numbers: np.ndarray | None, size: int) -> np.ndarray:
        """Returns the place in `classes` of the class of each n-gram: (size,) int64.

        Args:
          numbers: (size,) numbers of classes; None if there is one class of all.
          size: the number of n-grams.

        Raises:
          ValueError: if an n-gram has no class.
        """
        if not self.by_prediction or size == 0:
            return np.zeros(size, np.int64)
        if numbers is None:
            raise ValueError("N-grams of a length with classes must have numbers of classes.")
        known = np.array([each.number for each in self.classes], np.int64)
        places = np.minimum(np.searchsorted(known, numbers), known.size - 1)
        # An n-gram that nobody counted among the candidates would be decided by another class's rule.
        if (known[places] != numbers).any():
            raise ValueError("Every n-gram must belong to a class of its length.")
        return places

    def thresholds(self, round_number: int) -> np.ndarray:
        """Returns ρ_r of each class in units of 2^-32: (classes,) int64."""
        rules = [each.rounds[round_number - 1] for each in self.classes]
        return np.array([rule.threshold_units for rule in rules], np.int64)

    def cut_cells(self, round_number: int) -> np.ndarray:
        """Returns the lowest cell of each class that stays open after a round: (classes,) int64."""
        rules = [each.rounds[round_number - 1] for each in self.classes]
        return np.array([rule.cut_cell for rule in rules], np.int64)


@dataclasses.dataclass(frozen=True, eq=False)
class NullLaw:
    """The law of the evidence of an open n-gram that nobody holds, as places and their masses.

    All integrands are normal densities and tails at a scale of at least half a panel's width, so
    composite Gauss-Legendre with 20 nodes a panel is right to a relative 1e-13.

    Attributes:
      places: (n,) float64, in units of weight.
      masses: (n,) float64 ≥ 0; their sum is the probability that the n-gram is open.
    """

    places: np.ndarray
    masses: np.ndarray

    def tail(self, stddev: float, above: npt.ArrayLike) -> np.ndarray:
        """Returns the probability that it is open now and its next evidence is above a place.

        Args:
          stddev: ℓ_r times the standard deviation of a round's noise.
          above: one place or several, in units of weight.
        """
        # (above, n) float64: distances from each place to each border, in standard deviations.
        steps = (self.places - np.atleast_1d(above)[:, np.newaxis]) / stddev
        return (scipy.special.ndtr(steps) @ self.masses).reshape(np.shape(above))

    def cut(self, stddev: float, low: float, high: float) -> "NullLaw":
        """Returns the law after one more round, for evidence that ends in (low, high]."""
        places, weights = _quadrature(low, high, stddev)
        steps = (places[:, np.newaxis] - self.places) / stddev
        # exp(−s²/2) by scipy, whose bits, unlike those of numpy's exp, are the same with and without
        # AVX-512: they are in the ledger.
        heights = scipy.special.exp2(-0.5 / math.log(2) * steps * steps)
        densities = heights @ self.masses / (stddev * math.sqrt(2 * math.pi))
        return NullLaw(places, weights * densities)


NOTHING_YET = NullLaw(np.zeros(1), np.ones(1))


def length_rule(
    *,
    length: int,
    noise_stddev: float,
    threshold: float | None,
    valid: int | None = None,
    pruning: str = "both",
) -> LengthRule:
    """Returns the rule of a length with one round.

    Args:
      length: k.
      noise_stddev: σ_k, in units of weight.
      threshold: ρ_k, in units of weight; None if no n-gram is valid.
      valid: |V_k|; None at k = 1.
      pruning: "both" or "single".
    """
    classes = ()
    if threshold is not None:
        units = math.ceil(threshold * UNITS)
        tail = float(NOTHING_YET.tail(noise_stddev, units / UNITS))
        only = RoundRule(evidence_stddev=noise_stddev, threshold_units=units, null_probability=tail)
        classes = (ClassRule(rounds=(only,), valid=valid),)
    return LengthRule(length=length, noise_stddev=noise_stddev, classes=classes, pruning=pruning)


def cell_units(stddev: float, units: int = UNITS) -> int:
    """Returns the width of a cell, one 64th of a standard deviation, in units of 1/units."""
    return max(1, round(stddev * units / CELLS_PER_STDDEV))


def _quadrature(low: float, high: float, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns the nodes and weights of composite Gauss-Legendre on [low, high]; 0 if it is empty."""
    if high <= low:
        return np.zeros(0), np.zeros(0)
    panels = math.ceil((high - low) / (PANEL * scale))
    nodes, weights = _legendre()
    half = 0.5 * (high - low) / panels
    centres = low + half * (2 * np.arange(panels) + 1)
    return (centres[:, np.newaxis] + half * nodes).ravel(), np.tile(half * weights, panels)


@functools.cache
def _legendre() -> tuple[np.ndarray, np.ndarray]:
    # The same roots are in scipy.special, which would import all of scipy.linalg for them.
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    return nodes, weights
