"""The ledger of a release of items: the mechanism, its rounds, and the promise of the operator."""

from collections.abc import Sequence

from msgspec import UNSET

from beam_dpne.release.ledger import Contents
from beam_dpne.release.schema import UnionMechanism
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
    r"\r, what ends a line or a text for some readers as \uXXXX, and the empty item \e "
    "(beam_dpne.elements.rows.unescape_item reads it)"
)
_SCORE = (
    "the noisy weight in the round in which the item was found, as the middle of a cell one 64th of "
    "the round's noise_stddev wide, rounded to six decimals"
)


def set_union_contents(plan: SetUnionPlan, released: Sequence[ItemSet]) -> Contents:
    """Returns the contents of the ledger of a release of items, which is one set."""
    (items,) = released
    promise = {"max_users": plan.max_users, "meaning": _PROMISE}
    known = items.known_thresholds
    mechanism = UnionMechanism(
        policy=plan.policy,
        meaning=_POLICIES[plan.policy.partition("_")[0]],
        max_contributions=plan.contribution_limit,
        sensitivity=plan.sensitivity,
        rounding_bound=plan.rounding_bound,
        composed_noise_scale=plan.noise_stddev,
        cutoff_margin=plan.cutoff_margin if plan.has_cutoff else None,
        shards=plan.shard_count,
        rounds=[each._asdict() for each in plan.union_rounds],
        known_thresholds=UNSET if known is None else known.tolist(),
        released=len(items),
    )
    return Contents(
        found=mechanism,
        columns={"item": _ITEM, "score": _SCORE},
        composition=UNSET if plan.count_noise is None else _COUNTED_TOGETHER,
        promise=promise if plan.has_cutoff else UNSET,
        found_alone="item",
    )
