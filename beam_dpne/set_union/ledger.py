"""The ledger of a set union: its mechanism in numbers and in words, and the operator's promise."""

import math
from collections.abc import Sequence
from typing import Any

from beam_dpne.counts.ledger import counts_section
from beam_dpne.mechanism.group_privacy import GaussianNoise, groups_section
from beam_dpne.release.ledger import Contents
from beam_dpne.set_union.elements import ItemSet
from beam_dpne.set_union.plan import SetUnionPlan

_SHARDS = (
    "Users are divided among shards by a keyed hash, and each shard fills a separate histogram, up to "
    "cutoff / shards."
)
# Key: the first word of a policy's name.
_POLICIES = {
    "weighted": "Each user divides one unit of weight, in the norm of the sensitivity, evenly among at "
    "most max_contributions items that the user has.",
    "sips": "There are three rounds of weighted_gaussian, with one, three and nine thirteenths of the "
    "budget. Users give weight to items only that no earlier round has found.",
    "policy": "Users come one after the other, in the order of a keyed hash. Each user moves at most "
    "max_contributions items that the user has towards the cutoff, by one unit in all, in the norm of "
    f"the sensitivity. Items at the cutoff get nothing. {_SHARDS}",
    "screened": "There are three rounds of policy_gaussian, with 0.12, 0.23 and 0.65 of the budget. "
    "Later rounds are about the items that those before them have neither found nor closed. "
    f"{_SHARDS}",
}
_COLUMNS = {
    "meaning": "how users add weight to items",
    "sensitivity": "upper bound on the distance by which one user moves the weights of a round, "
    "in the norm named beside it, in units of weight; it includes rounding_bound",
    "rounding_bound": "upper bound on the distance that rounding adds, over all users that follow in "
    "sequence, if there are at most max_users of them; 0 where all arithmetic is exact",
    "composed_noise_scale": "sigma of one mechanism of this sensitivity that is as private as all "
    "rounds and the measurement of users together",
    "cutoff_margin": "distance of a cutoff above its threshold, in scales of the noise; null for "
    "policies without a cutoff",
    "shards": "number of histograms among which the users are divided",
    "rounds": "one entry for each round, in order; most policies have one. noise_scale: sigma; "
    "noise_stddev: the same; threshold: items with a noisy weight above it and a "
    "positive weight are released; cutoff: users add nothing beyond it; cut: items with a noisy weight "
    "below it are closed and get no further weight, null in rounds that close nothing but what they "
    "find",
}
_SLACK = (
    "This part of epsilon pays for floating-point arithmetic. The probability of every decision is "
    "right to a relative 1e-12. The noise is calibrated for 999/1000 of epsilon, so that a thousandth "
    "of epsilon is left for it."
)
_COUNTED_TOGETHER = (
    "The items were found with the part 1 - budget_share of the budget mu^2 of one Gaussian mechanism, "
    "and the users of the released items were measured with the rest: over all rounds and sums, the "
    "squares of sensitivity over noise add up to at most mu^2, with mu = sensitivity / "
    "composed_noise_scale."
)
_PROMISE = (
    "The operator promises that the input has at most max_users users. This is never checked against "
    "the data, since a run that refused or dropped users would reveal their number. With more users, "
    "the part of the sensitivity that is due to rounding, and the numerical slack, could exceed the "
    "bounds stated here."
)
_ITEM = (
    r"the item as it is; in tsv, backslash is written \\, a tab \t, a line feed \n, a carriage return "
    r"\r, and the empty item \e (beam_dpne.ngrams.decoding.unescape_item reads it)"
)
_SCORE = (
    "the noisy weight in the round in which the item was found, as the middle of a cell one 64th of "
    "the round's noise_stddev wide, rounded to six decimals"
)


def set_union_contents(plan: SetUnionPlan, released: Sequence[ItemSet]) -> Contents:
    """Returns the contents of the ledger of a release of items.

    Args:
      plan: Plan of the run.
      released: The released items, as one set.

    Raises:
      ValueError: The items are not those of a run under this plan.
    """
    (items,) = released
    _check_items(plan, items)
    columns, numbers = mechanism(plan)
    counts = counts_section(plan.count_share, plan.count_noise, "item")
    by_users = "users, then by falling " if plan.count_share else ""
    return Contents(
        program="set-union",
        sections={
            "mechanism_columns": {**columns, "released": "number of items in the release"},
            "mechanism": {**numbers, "released": len(items)},
            **counts.sections,
        },
        spent={"vocabulary_delta": plan.vocabulary_delta},
        slack_meaning=_SLACK,
        columns={
            "item": _ITEM,
            "score": _SCORE,
            **counts.columns,
            "order": f"by falling {by_users}score, then by the bytes of the item",
        },
        groups=groups_section(
            epsilon=plan.epsilon,
            delta=plan.delta,
            gaussian=_gaussian_noise(plan),
            found_alone="item",
        ),
        grounds={**_composition(plan), **promises(plan)},
    )


def _composition(plan: SetUnionPlan) -> dict[str, Any]:
    """Returns how the items and the numbers of users share the budget, if users were counted."""
    if plan.count_noise is None:
        return {}
    return {"composition": _COUNTED_TOGETHER}


def promises(plan: SetUnionPlan) -> dict[str, Any]:
    """Returns the operator's promise, where the guarantee of a set union needs it."""
    if not plan.update_policy.has_cutoff:
        return {}
    return {"promise": {"max_users": plan.max_users, "meaning": _PROMISE}}


def mechanism(plan: SetUnionPlan) -> tuple[dict[str, str], dict[str, Any]]:
    """Returns the meanings of the numbers of a set union's mechanism, and the numbers."""
    rounds = [
        {
            "round": each.number,
            "noise_scale": each.noise_stddev,
            "noise_stddev": each.noise_stddev,
            "threshold": each.threshold,
            "cutoff": each.cutoff,
            "cut": each.cut,
        }
        for each in plan.union_rounds
    ]
    numbers = {
        "policy": plan.policy,
        "meaning": _POLICIES[plan.policy.partition("_")[0]],
        "max_contributions": plan.contribution_limit,
        "noise": "gaussian",
        "sensitivity": plan.sensitivity,
        "sensitivity_norm": "l2",
        "rounding_bound": plan.rounding_bound,
        "composed_noise_scale": plan.composed_noise_scale,
        "cutoff_margin": plan.update_policy.cutoff_margin,
        "shards": plan.shard_count,
        "rounds": rounds,
    }
    return dict(_COLUMNS), numbers


def _gaussian_noise(plan: SetUnionPlan) -> GaussianNoise:
    """Returns the noise of all rounds together; the sensitivity includes rounding."""
    epsilon = plan.gaussian_epsilon
    mu = plan.sensitivity / plan.composed_noise_scale
    return GaussianNoise(epsilon=epsilon, delta=plan.gaussian_delta, mu=mu)


def _check_items(plan: SetUnionPlan, items: ItemSet) -> None:
    """Raises ValueError if the ledger would claim a guarantee that the run did not have."""
    wanted = plan.report()
    for name in ("noise_scale", "threshold", "sensitivity", "count_share"):
        if not math.isclose(wanted[name], items.report.get(name, 0), rel_tol=1e-12):
            raise ValueError(f"items must be of a run under this plan: its {name} is another one.")
    if (items.users is None) != (plan.count_noise is None):
        raise ValueError(
            "items must be of a run under this plan: they have numbers of users if, and only if, its "
            "count_share is above 0."
        )
