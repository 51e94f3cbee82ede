"""The ledger of a release of a set union: the mechanism, on what it rests, and what came of it."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from beam_dpne.mechanism.group_privacy import GaussianNoise, groups_section
from beam_dpne.reading.options import InputDescription
from beam_dpne.release.grounds import FAR_TAILS_MEANING, promises
from beam_dpne.release.ledger import Part, whole_ledger
from beam_dpne.release.release_notes import NO_NOTES, ReleaseNotes
from beam_dpne.set_union.elements import ItemSet
from beam_dpne.set_union.plan import SetUnionPlan

_SHARDS = (
    "Users are divided among shards by a keyed hash; each shard has a histogram of its own, up to "
    "cutoff / shards"
)
_POLICIES = {
    "count": "each user adds 1 to each of at most max_contributions items of its own",
    "weighted": "each user divides one unit of weight, in the norm of the sensitivity, evenly among at "
    "most max_contributions items of its own",
    "policy": "users come one after the other, in the order of a keyed hash; each moves at most "
    "max_contributions items of its own towards the cutoff, by one unit in all, in the norm of the "
    f"sensitivity; items at the cutoff get nothing. {_SHARDS}",
    "screened": "two rounds of policy_gaussian, with a quarter and three quarters of the budget; the "
    f"second is about the items that the first has neither found nor closed. {_SHARDS}",
    "greedy": "users come one after the other, in the order of a keyed hash; each gives every item of "
    "its own 2^-50 and pours one unit of weight in all into them, the most frequent first, each item "
    f"up to the cutoff. {_SHARDS}",
    "mad": "each user divides its weight evenly; what an item gets beyond the cutoff is given back to "
    "the users it came from, and each spreads a discounted part of it over all its items",
}
_COLUMNS = {
    "meaning": "how users' weights come about",
    "sensitivity": "how far one user moves the weights of a round, at most, in the "
    "norm named beside it, in units of weight; rounding_bound is in it",
    "rounding_bound": "how much rounding may add, over all users that follow in sequence, if there are "
    "at most max_users of the plan; 0 where all arithmetic is exact",
    "composed_noise_scale": "lambda of Laplace noise or sigma of Gaussian noise, of one mechanism of "
    "that sensitivity as private as all rounds together",
    "cutoff_margin": "how far a cutoff lies over its threshold, in scales of the noise; null for "
    "policies without one",
    "shards": "histograms that the users are divided among",
    "rounds": "one after the other; most policies have one. noise_scale: lambda or sigma; "
    "noise_stddev: its "
    "standard deviation; threshold: items whose noisy weight is above it are released, if their "
    "weight is positive; cutoff: users add nothing beyond it; cut: items whose noisy weight is below "
    "it are closed for good, null in the last round",
}
_SLACK = (
    "What floating-point arithmetic may cost of epsilon: every decision's probability is right to a "
    "relative 1e-12 (Laplace noise: 2e-12). It is subtracted from epsilon before the noise is "
    "calibrated, and its factor from both deltas."
)
_ITEM = (
    r"as it is; in tsv, backslash is \\, tab \t, line feed \n, carriage return \r, and the empty item "
    r"is \e (beam_dpne.ngrams.decoding.unescape_item reads it)"
)
_SCORE = (
    "the noisy weight in the round in which the item was found, to the middle of a cell one 64th of "
    "its noise_stddev wide, rounded to six decimals"
)


def set_union_ledger(
    *,
    plan: SetUnionPlan,
    items: ItemSet,
    parts: Sequence[Part],
    run_key_given: bool,
    tokenizer: str | Callable[..., Any],
    described: InputDescription | None = None,
    notes: ReleaseNotes = NO_NOTES,
) -> dict[str, Any]:
    """Returns the ledger of a release of items.

    Args:
      plan: of the run.
      items: what it released.
      parts: files of the release, in order.
      run_key_given: whether the run key was given instead of fresh.
      tokenizer: its name, or the function itself.
      described: how records became documents, which says what one user is; None if nobody said.
      notes: what the operator says of the release.

    Raises:
      ValueError: if the items or parts are not those of a run under this plan.
    """
    _check_items(plan, items)
    columns, found = mechanism(plan)
    return whole_ledger(
        "set-union",
        plan=plan,
        grounds=promises(plan),
        groups=_groups(plan),
        spent=_spent(plan),
        sections={
            "mechanism_columns": {**columns, "released": "items in the release"},
            "mechanism": {**found, "released": len(items)},
        },
        columns={
            "item": _ITEM,
            "score": _SCORE,
            "order": "by falling score, then the item's bytes",
        },
        parts=parts,
        run_key_given=run_key_given,
        tokenizer=tokenizer,
        described=described,
        notes=notes,
    )


def mechanism(plan: SetUnionPlan) -> tuple[dict[str, str], dict[str, Any]]:
    """Returns what the numbers of a set union's mechanism mean, and the numbers."""
    numbers = {
        "policy": plan.policy,
        "meaning": _POLICIES[plan.policy.partition("_")[0]],
        "max_contributions": plan.contribution_limit,
        **_calibrated(plan),
    }
    return dict(_COLUMNS), numbers


def _groups(plan: SetUnionPlan) -> dict[str, Any]:
    return groups_section(
        epsilon=plan.epsilon,
        delta=plan.delta,
        gaussian=None if plan.noise_kind == "laplace" else _gaussian_noise(plan),
        has_laplace=plan.noise_kind == "laplace",
        found_alone="item",
    )


def _gaussian_noise(plan: SetUnionPlan) -> GaussianNoise:
    """All rounds together; rounding is in the sensitivity."""
    return GaussianNoise(
        epsilon=plan.epsilon - plan.numerical_slack,
        delta=plan.gaussian_delta,
        mu=plan.sensitivity / plan.composed_noise_scale,
    )


def _spent(plan: SetUnionPlan) -> dict[str, Any]:
    return {
        "gaussian_delta": plan.gaussian_delta,
        "vocabulary_delta": plan.vocabulary_delta,
        "far_tails": plan.far_tails,
        "far_tails_meaning": FAR_TAILS_MEANING,
        "numerical_slack": plan.numerical_slack,
        "numerical_slack_meaning": _SLACK,
    }


def _calibrated(plan: SetUnionPlan) -> dict[str, Any]:
    """Users move the weights by one unit; the noise is as large as the budget wants."""
    return {
        "noise": plan.noise_kind,
        "sensitivity": plan.sensitivity,
        "sensitivity_norm": "l1" if plan.noise_kind == "laplace" else "l2",
        "rounding_bound": plan.rounding_bound,
        "composed_noise_scale": plan.composed_noise_scale,
        "cutoff_margin": plan.update_policy.cutoff_margin,
        "shards": plan.shard_count,
        "rounds": [
            {
                "round": each.number,
                "noise_scale": each.noise.scale,
                "noise_stddev": each.noise.stddev,
                "threshold": each.threshold,
                "cutoff": each.cutoff,
                "cut": each.cut,
            }
            for each in plan.union_rounds
        ],
    }


def _check_items(plan: SetUnionPlan, items: ItemSet) -> None:
    """A ledger with another run's plan would claim a guarantee that nobody gave."""
    wanted = plan.report()
    for name in ("noise_scale", "threshold", "sensitivity"):
        if not math.isclose(wanted[name], items.report.get(name, 0), rel_tol=1e-12):
            raise ValueError(f"items must be of a run under this plan: its {name} is another one.")
