"""LimitContributions: bounds what one user adds to a length's histogram under the paper's strategy.

The adaptive strategy bounds it in `budgets.spend`, and set unions in `set_union.weights`.
"""

import dataclasses
from typing import cast

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import PCollection

from beam_dpne.elements.ragged import outside_limit
from beam_dpne.mechanism import randomness
from beam_dpne.mechanism.cells import equal_weights
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams.elements import Contributions


@dataclasses.dataclass(eq=False, kw_only=True)
class LimitContributions(beam.PTransform):
    """Keeps at most Δ_k distinct grams of each user, a keyed random subset, and gives them weights.

    A user with n kept grams gives each the weight 1/√n, rounded down to units of 2^-32, so the
    squares of one user's weights add up to at most 1 in exact arithmetic. Grams beyond the limit
    stay, at weight 0: a gram that some user holds is never counted among the spurious ones.

    Input: `Contributions` without weights.

    Output: `Contributions` with int64 weights in units of 2^-32.

    Privacy: bounds the ℓ2-norm of what one user adds to the histogram of this length by 1; private
    only together with `NoisyThreshold`.

    Cost: one AES block and a share of one sort for each gram of the users above the limit.

    Attributes:
      max_contributions: Δ_k ≥ 1.
      length: k.
      run_key: secret of the run.

    Raises:
      ValueError: if max_contributions < 1.

    Example:
      >>> import numpy as np
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import Contributions, LimitContributions, RunKey
      >>> grams = Contributions(length=2, users=np.array([[1, 2]], np.uint64),
      ...                       offsets=np.array([0, 6]), keys=np.arange(6))
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     limited = pipeline | beam.Create([grams]) | LimitContributions(
      ...         length=2, max_contributions=4, run_key=RunKey.generate())
      ...     _ = limited | beam.Map(lambda c: print(np.sort(c.weights) / 2**32))
      [0.  0.  0.5 0.5 0.5 0.5]

    References: DPNE Algorithm 1, "Limit user contributions" and the update of H_k.
    """

    length: int
    max_contributions: int
    run_key: RunKey = dataclasses.field(repr=False)

    def __post_init__(self):
        super().__init__()
        if self.max_contributions < 1:
            raise ValueError(f"max_contributions must be at least 1, got {self.max_contributions}.")

    def expand(self, contributions: PCollection[Contributions]) -> PCollection[Contributions]:
        """Applies `limit_contributions` to each batch."""
        return cast(
            "PCollection[Contributions]",
            contributions
            | "Limit"
            >> beam.Map(
                _limit_checked,
                length=self.length,
                max_contributions=self.max_contributions,
                run_key=self.run_key,
            ).with_output_types(Contributions),
        )


def _limit_checked(
    contributions: Contributions, *, length: int, max_contributions: int, run_key: RunKey
) -> Contributions:
    if contributions.length != length:
        raise ValueError(
            f"LimitContributions({length=}) got grams of {contributions.length} words."
        )
    sub_key = run_key.sub_key("subset", length)
    return limit_contributions(contributions, max_contributions=max_contributions, sub_key=sub_key)


def limit_contributions(
    contributions: Contributions, *, max_contributions: int, sub_key: bytes
) -> Contributions:
    """Gives each user's grams the weight 1/√min(n, Δ), 0 to those outside a keyed Δ-subset."""
    counts = np.diff(contributions.offsets)
    kept = np.minimum(counts, max_contributions)
    shares = np.zeros(counts.size, dtype=np.int64)
    holding = kept > 0
    shares[holding] = equal_weights(kept[holding])
    weights = np.repeat(shares, counts)
    weights[outside_subset(contributions, max_contributions, sub_key)] = 0
    return dataclasses.replace(contributions, weights=weights)


def outside_subset(
    contributions: Contributions, max_contributions: int, sub_key: bytes
) -> np.ndarray:
    """Returns the entries that users above the limit may not give: those outside a keyed subset."""
    named = draw_keys(contributions)

    def draw(user: np.ndarray, entries: np.ndarray) -> np.ndarray:
        return randomness.keyed_bits(sub_key, contributions.users[user, 0], named[entries])[:, 0]

    return outside_limit(contributions.offsets, max_contributions, draw)


def draw_keys(contributions: Contributions) -> np.ndarray:
    """Returns 64 bits for each gram that are the same in every batch: (m,), uint64.

    Packed pairs name a gram already; words are named by their keyed hash.
    """
    if contributions.word_hashes is not None:
        return contributions.word_hashes[contributions.keys, 0]
    return contributions.keys.view(np.uint64)
