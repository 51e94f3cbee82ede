"""The numbers that decide each round of a set union, and the thresholds of the policies."""

from typing import Any, NamedTuple

from beam_dpne.mechanism import thresholds
from beam_dpne.set_union.policies import UpdatePolicy


class Noise(NamedTuple):
    """The noise on each item.

    Attributes:
      kind: "laplace" or "gaussian".
      scale: λ of Laplace noise, σ of Gaussian noise, in units of weight.
      stddev: the standard deviation, √2 λ or σ, in units of weight.
    """

    kind: str
    scale: float
    stddev: float


class UnionRound(NamedTuple):
    """The numbers that decide one round; most policies have one.

    Attributes:
      number: the round's number, from 1.
      noise: the noise on each item.
      threshold: ρ, in units of weight; each user has a budget of 1 in each round.
      cutoff: Γ (τ for "mad" and "mad2r"), in units of weight; None for policies without a cutoff.
      cut: items whose noisy weight is below it are closed for later rounds, in units of weight; None
        in the last round, and in rounds that close nothing but what they find.
    """

    number: int
    noise: Noise
    threshold: float
    cutoff: float | None
    cut: float | None


def item_threshold(
    policy: UpdatePolicy,
    number: int,
    *,
    scale: float,
    delta: float,
    max_contributions: int,
    sensitivity: float,
) -> float:
    """Returns ρ, above which items of one user alone come with a probability of at most δ.

    Args:
      policy: how users divide their budget; it decides how much weight items of one user alone have.
      number: the round's number, from 1; before the first cut there are no biases.
      scale: λ or σ of the round, in units of weight.
      delta: the round's part of δ_T.
      max_contributions: Δ_0.
      sensitivity: S, the largest distance by which one user moves the round's weights.
    """
    alone: dict[str, Any] = {"delta": delta, "max_contributions": max_contributions}
    if policy.rule == "count":
        return thresholds.count_threshold(kind=policy.noise_kind, scale=scale, **alone)
    if policy.prefers_frequent:
        return thresholds.greedy_threshold(scale=scale, **alone)
    if policy.noise_kind == "laplace":
        return thresholds.laplace_threshold(scale=scale, **alone)
    if policy.has_biases and number > 1:
        return thresholds.uneven_threshold(noise_stddev=scale, norm=sensitivity, **alone)
    return thresholds.vocabulary_threshold(noise_stddev=scale, **alone)
