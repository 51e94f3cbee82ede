"""SampleSpurious: the k-grams that nobody holds and that noise alone releases."""

import dataclasses
import math
from collections.abc import Callable

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import PCollection

from beam_dpne.elements.batches import apply
from beam_dpne.elements.display_data import DisplayedTransform
from beam_dpne.mechanism import cells, randomness
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import ClassRule, LengthRule
from beam_dpne.ngrams.elements import GramSet, SpuriousGrams
from beam_dpne.ngrams.members import Members


@dataclasses.dataclass(eq=False, kw_only=True)
class SampleSpurious(DisplayedTransform):
    """Draws the k-grams of V_k that noise alone would lift over the threshold.

    Each member of V_k is drawn independently with probability p, which is Φ̄(ρ_k/σ_k) for one round.
    For this, a Poisson number of uniform draws with mean −|V_k| log(1 − p) is made, and duplicates are
    merged. `NoisyThreshold` drops those that somebody holds, which leaves an independent Bernoulli(p)
    for each of the rest. So the observed k-grams are never counted.

    Input: PCollection of one `GramSet`, S_{k−1}, k ≥ 2.

    Output: PCollection of one `SpuriousGrams`.

    Privacy: a function of a released set. Those that nobody holds are private only together with the
    rest of the output of `NoisyThreshold`.

    Cost: one AES block and a binary search for each of about η·|S_{k−1}| draws.

    Attributes:
      rule_for: maps S_{k−1} to σ_k and ρ_k, as for `NoisyThreshold`.
      run_key: the secret of the run.

    Example:
      >>> import numpy as np
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import GramSet, RunKey, SampleSpurious, length_rule
      >>> rule = length_rule(length=2, noise_stddev=1.0, threshold=-1.0)
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     vocabulary = pipeline | beam.Create([GramSet(
      ...         length=1, keys=np.arange(9), scores=np.ones(9), vocabulary_size=9)])
      ...     spurious = vocabulary | SampleSpurious(
      ...         rule_for=lambda previous: rule, run_key=RunKey.generate())
      ...     _ = spurious | beam.Map(lambda spurious: print(40 < len(spurious.keys) <= 81))
      True

    References: DPNE appendix A, Algorithm 1, "Add spurious k-grams"; Poisson thinning.
    """

    rule_for: Callable[[GramSet], LengthRule]
    run_key: RunKey = dataclasses.field(repr=False)

    def __post_init__(self):
        super().__init__()

    def expand(self, previous: PCollection[GramSet]) -> PCollection[SpuriousGrams]:
        """Applies `sample_spurious` to S_{k−1}."""
        draw = beam.Map(_sample, rule_for=self.rule_for, run_key=self.run_key)
        return apply(previous, "Draw", draw, SpuriousGrams)


def _sample(
    previous: GramSet, *, rule_for: Callable[[GramSet], LengthRule], run_key: RunKey
) -> SpuriousGrams:
    return sample_spurious(previous, rule=rule_for(previous), run_key=run_key)


def sample_spurious(previous: GramSet, *, rule: LengthRule, run_key: RunKey) -> SpuriousGrams:
    """Draws each member of V_c with Σ_r P_{r,c}, with the round and the cell of its noise."""
    members = Members.of(previous, rule.pruning, by_prediction=rule.by_prediction)
    return sample_members(members, rule=rule, run_key=run_key)


def sample_members(members: Members, *, rule: LengthRule, run_key: RunKey) -> SpuriousGrams:
    """Draws each of some candidates with the probability of its class; see `sample_spurious`."""
    sizes = members.sizes()
    present = [each for each in rule.classes if each.number in sizes]
    drawn = members.draw(
        {each.number: _bits(sizes[each.number], each, rule.length, run_key) for each in present}
    )
    parts = [_sampled_class(drawn[each.number], each, rule, run_key) for each in present]
    keys = np.concatenate([np.zeros(0, np.int64), *(part.keys for part in parts)])
    order = np.argsort(keys)
    columns = {
        name: np.concatenate([np.zeros(0, dtype), *(getattr(part, name) for part in parts)])[order]
        for name, dtype in (("cells", np.int64), ("rounds", np.int8), ("classes", np.int16))
    }
    return SpuriousGrams(length=rule.length, keys=keys[order], **columns, rule=rule)


def _bits(size: int, own: ClassRule, length: int, run_key: RunKey) -> np.ndarray:
    """Returns the random bits of a Poisson number of draws from a class: (draws, 2) uint64."""
    number, mean = np.int64(own.number), -size * math.log1p(-own.null_probability)
    blocks = np.arange(randomness.poisson_blocks(mean), dtype=np.uint64)
    count_bits = randomness.keyed_bits(run_key.sub_key("spurious count", length), number, blocks)
    draws = np.arange(randomness.poisson(count_bits, mean), dtype=np.uint64)
    return randomness.keyed_bits(run_key.sub_key("spurious draw", length), number, draws)


def _sampled_class(
    drawn: np.ndarray, own: ClassRule, rule: LengthRule, run_key: RunKey
) -> SpuriousGrams:
    """Returns drawn members of one class, each once, with the round and the cell of their noise."""
    length = rule.length
    # (s,) int64: draws of the same member are merged.
    keys = np.sort(drawn)
    keys = keys[np.diff(keys, prepend=-1) != 0]
    rounds = _spurious_rounds(keys, own, length, run_key)
    noise = randomness.keyed_bits(run_key.sub_key("spurious noise", length), np.uint64(0), keys)
    drawn_cells = np.zeros(keys.size, dtype=np.int64)
    for found in np.unique(rounds).tolist():
        inside = rounds == found
        drawn_cells[inside] = cells.spurious_cells(
            noise[inside], own.rounds, found, rule.noise_stddev
        )
    return SpuriousGrams(
        length=length,
        keys=keys,
        cells=drawn_cells,
        rounds=rounds,
        classes=np.full(keys.size, own.number, np.int16),
    )


def _spurious_rounds(keys: np.ndarray, own: ClassRule, length: int, run_key: RunKey) -> np.ndarray:
    """Draws the round in which each spurious n-gram is found: r with probability P_r/p, (s,) int8."""
    sub_key = run_key.sub_key("spurious round", length)
    uniform = randomness.uniforms(randomness.keyed_bits(sub_key, np.uint64(0), keys))
    borders = np.cumsum([each.null_probability for each in own.rounds[:-1]])
    return (1 + np.searchsorted(borders, uniform * own.null_probability)).astype(np.int8)
