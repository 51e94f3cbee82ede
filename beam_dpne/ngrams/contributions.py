"""LimitContributions: what one user adds to a length's histogram under "one_round", and its bound."""

import dataclasses

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import PCollection

from beam_dpne.elements.arrays import outside_limit
from beam_dpne.elements.batches import apply
from beam_dpne.mechanism import randomness
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.thresholds import equal_weights
from beam_dpne.ngrams.elements import Contributions
from beam_dpne.validation import check_integer


@dataclasses.dataclass(eq=False, kw_only=True)
class LimitContributions(beam.PTransform):
    """Keeps at most Δ_k distinct n-grams of each user, a keyed random subset, and gives them weights.

    A user with n kept n-grams gives each the weight 1/√n, rounded down, so that the squares of one
    user's weights add up to at most 1 in exact arithmetic. N-grams beyond the limit stay at weight 0,
    since an n-gram that some user holds must never count among the spurious ones.

    Input: `Contributions` without weights.

    Output: `Contributions` with int64 weights in units of 2^-32.

    Privacy: bounds the ℓ2-norm of what one user adds to the histogram of this length by 1; private
    only together with `NoisyThreshold`.

    Cost: one AES block and a share of one sort for each n-gram of the users above the limit.

    Attributes:
      max_contributions: Δ_k ≥ 1.
      run_key: the secret of the run.

    Example:
      >>> import numpy as np
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import Contributions, LimitContributions, RunKey
      >>> grams = Contributions(length=2, users=np.array([[1, 2]], np.uint64),
      ...                       offsets=np.array([0, 6]), keys=np.arange(6))
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     limited = pipeline | beam.Create([grams]) | LimitContributions(
      ...         max_contributions=4, run_key=RunKey.generate())
      ...     _ = limited | beam.Map(lambda c: print(np.sort(c.weights) / 2**32))
      [0.  0.  0.5 0.5 0.5 0.5]

    References: DPNE Algorithm 1, "Limit user contributions" and the update of H_k.
    """

    max_contributions: int
    run_key: RunKey = dataclasses.field(repr=False)

    def __post_init__(self):
        super().__init__()
        check_integer("max_contributions", self.max_contributions, 1)

    def expand(self, contributions: PCollection[Contributions]) -> PCollection[Contributions]:
        """Applies `limit_contributions` to each batch."""
        limit = beam.Map(
            limit_contributions, max_contributions=self.max_contributions, run_key=self.run_key
        )
        return apply(contributions, "Limit", limit, Contributions)


def limit_contributions(
    contributions: Contributions, *, max_contributions: int, run_key: RunKey
) -> Contributions:
    """Gives each user's n-grams the weight 1/√min(n, Δ), or 0 outside a keyed subset of size Δ."""
    counts = np.diff(contributions.offsets)
    # (m,) int64 in units of 2^-32; users may have no n-gram.
    weights = np.repeat(equal_weights(np.clip(counts, 1, max_contributions)), counts)
    sub_key = run_key.sub_key("subset", contributions.length)
    weights[outside_subset(contributions, max_contributions, sub_key)] = 0
    return dataclasses.replace(contributions, weights=weights)


def outside_subset(
    contributions: Contributions, max_contributions: int, sub_key: bytes
) -> np.ndarray:
    """Returns the entries of users above the limit that are outside a keyed subset: ascending int64."""
    # A packed pair identifies its n-gram in every batch. A word is identified by its keyed hash.
    keys, hashes = contributions.keys, contributions.word_hashes
    keys = keys.view(np.uint64) if hashes is None else hashes[keys, 0]

    def draw(user: np.ndarray, entries: np.ndarray) -> np.ndarray:
        return randomness.keyed_bits(sub_key, contributions.users[user, 0], keys[entries])[:, 0]

    return outside_limit(contributions.offsets, max_contributions, draw)
