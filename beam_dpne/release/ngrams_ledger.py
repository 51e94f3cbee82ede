"""The ledger of a release of n-grams: each length's limits, budget, noise and released number."""

import math
from collections.abc import Sequence
from typing import Any

from beam_dpne.mechanism.group_privacy import GaussianNoise, groups_section
from beam_dpne.ngrams.decoding import LengthReport
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.ngrams.strategies import LengthPlan
from beam_dpne.ngrams.vocabulary import union_plan
from beam_dpne.release.ledger import (
    FAR_TAILS_MEANING,
    Contents,
    individual_budgets,
    whole_ledger,
)
from beam_dpne.release.set_union_ledger import mechanism, promises

_SLACK = (
    "The part of epsilon that pays for floating-point arithmetic: the probability of every decision is "
    "right to a relative 1e-12, and a user changes at most max_tokens_per_user decisions in one round "
    "of one length. It is subtracted from epsilon before the noise is calibrated, and both deltas are "
    "multiplied by exp(-numerical_slack)."
)
_PUBLIC = (
    "The words are public: they cost nothing and are not released. The column valid of length 1 is "
    "their number."
)
_TOGETHER = (
    "The words were found by a set union whose Gaussian noise is one part of the run's noise: the "
    "squares of sensitivity over noise add up to 1 / composed_noise_stddev^2 over all lengths."
)
_RELEASED = "number of n-grams of this length in the release"
_VALID = (
    "number of candidates of this length, whether or not anybody has them; null for single words, "
    "unless the words are public: then it is the number of the words"
)
_SPURIOUS = "upper bound on the expected number of released n-grams that nobody has"
_LENGTHS_COLUMNS = {
    "one_round": {
        "noise_stddev": "standard deviation of the noise in units of weight: composed_noise_stddev / "
        "sqrt(budget_share), where composed_noise_stddev is that of one Gaussian mechanism as "
        "private as all lengths together; 0 for words that are public",
        "threshold": "n-grams with a noisy weight above it are released; null if no n-gram of this "
        "length could be released",
        "released": _RELEASED,
        "valid": _VALID,
        "expected_spurious_at_most": _SPURIOUS,
    },
    "adaptive": {
        "noise_stddev": "standard deviation of the noise of every round, in units of weight; over all "
        "lengths and rounds together, the squared weights that one user sends add up to at most "
        "(1 / composed_noise_stddev)^2; 0 for words that are public",
        "threshold": "threshold of the last round; null if no n-gram of this length could be released",
        "released": _RELEASED,
        "valid": _VALID,
        "expected_spurious_at_most": f"{_SPURIOUS}, in all rounds together",
        "rounds": "one entry for each round, in order. loadings: factors of the noisy weights of the "
        "rounds so far in the evidence; evidence_stddev: standard deviation of the noise in that sum; "
        "threshold: n-grams with evidence above it are found; cut: n-grams with evidence below it are "
        "closed and get no further weight, null in the last round; null_probability: probability that "
        "an n-gram which nobody has is found in this round",
    },
}
_TEXT = (
    r"the words, joined by one blank; within a word, backslash is written \\, a blank \s, a tab \t, a "
    r"line feed \n and a carriage return \r, and the empty word \e (beam_dpne.split_ngram reads it)"
)
_SCORES = {
    "one_round": "the noisy weight, as the middle of a cell one 64th of noise_stddev wide, rounded to "
    "six decimals; it is above the threshold of the length",
    "adaptive": "the noisy weight, estimated from the evidence of all rounds until the n-gram was "
    "found (of single words from that round alone), in units of the weights of round 1, "
    "as the middle of a cell one 64th of the evidence's standard deviation wide, rounded to six "
    "decimals",
}


def ngrams_ledger(
    *,
    plan: PrivacyPlan,
    facts: Sequence[LengthReport],
    **common: Any,
) -> dict[str, Any]:
    """Returns the ledger of a release of n-grams.

    Args:
      plan: of the run.
      facts: of each length, in any order.
      common: the arguments of `whole_ledger` that do not depend on the program.

    Raises:
      ValueError: if facts or parts are not those of one run under this plan.
    """
    ordered = sorted(facts, key=lambda fact: fact.length)
    _check_facts(plan, ordered)
    contents = Contents(
        program="ngrams",
        plan=plan,
        grounds=_grounds(plan),
        groups=_groups(plan),
        spent={
            "gaussian_delta": plan.gaussian_delta,
            "vocabulary_delta": plan.vocabulary_delta,
            "composed_noise_stddev": plan.noise_stddev,
            "far_tails": plan.far_tails,
            "far_tails_meaning": FAR_TAILS_MEANING,
            "numerical_slack": plan.numerical_slack,
            "numerical_slack_meaning": _SLACK,
        },
        sections={
            **_vocabulary(plan),
            "lengths_columns": dict(_LENGTHS_COLUMNS[plan.strategy]),
            "lengths": [
                _length(length, fact, with_rounds=plan.strategy_value.has_user_budgets)
                for length, fact in zip(plan.lengths, ordered, strict=True)
            ],
        },
        columns={
            "length": "number of words in the n-gram",
            "ngram": _TEXT,
            "score": _SCORES[plan.strategy],
            "order": "by length, then by falling score, then by the bytes of the n-gram",
        },
    )
    return whole_ledger(contents, **common)


def _grounds(plan: PrivacyPlan) -> dict[str, Any]:
    """Returns the theorems and promises on which the guarantee rests."""
    grounds: dict[str, Any] = {}
    if plan.user_budgets == "individual":
        grounds |= individual_budgets(plan.noise_stddev)
    if plan.has_union_vocabulary:
        grounds |= {"composition": _TOGETHER}
        grounds |= promises(union_plan(plan))
    return grounds


def _groups(plan: PrivacyPlan) -> dict[str, Any]:
    """All noise is one Gaussian mechanism's."""
    return groups_section(
        epsilon=plan.epsilon,
        delta=plan.delta,
        gaussian=GaussianNoise(
            epsilon=plan.gaussian_epsilon, delta=plan.gaussian_delta, mu=1 / plan.noise_stddev
        ),
        has_laplace=False,
        found_alone=None if plan.has_public_vocabulary else "word",
    )


def _vocabulary(plan: PrivacyPlan) -> dict[str, Any]:
    """Returns the section on the words, unless the strategy found them."""
    if plan.has_public_vocabulary:
        return {"vocabulary": {"policy": "public", "meaning": _PUBLIC}}
    if not plan.has_union_vocabulary:
        return {}
    columns, found = mechanism(union_plan(plan))
    return {"vocabulary_columns": columns, "vocabulary": found}


def _check_facts(plan: PrivacyPlan, facts: Sequence[LengthReport]) -> None:
    """Raises ValueError if the ledger would claim a guarantee that the run did not have."""
    if [fact.length for fact in facts] != [length.length for length in plan.lengths]:
        raise ValueError(
            f"facts must be of the plan's lengths 1 to {plan.max_length}, "
            f"got {[fact.length for fact in facts]}."
        )
    wanted = [length.noise_stddev for length in plan.lengths]
    if plan.has_union_vocabulary:
        wanted[0] = union_plan(plan).noise.stddev
    for noise_stddev, fact in zip(wanted, facts, strict=True):
        if not math.isclose(noise_stddev, fact.noise_stddev, rel_tol=1e-12):
            raise ValueError(
                f"facts must be of a run under this plan: at length {fact.length} the noise has "
                f"deviation {fact.noise_stddev}, the plan says {noise_stddev}."
            )
    first, found = plan.lengths[0].threshold, facts[0].threshold
    if first is not None and (found is None or found < first):
        raise ValueError(
            "facts must be of a run under this plan: its vocabulary threshold is below the plan's."
        )


def _length(length: LengthPlan, fact: LengthReport, *, with_rounds: bool) -> dict[str, Any]:
    return {
        "length": length.length,
        "budget_share": length.budget_share,
        "max_contributions": length.max_contributions,
        "noise_stddev": fact.noise_stddev,
        "threshold": fact.threshold,
        "released": fact.released,
        "valid": fact.valid,
        "expected_spurious_at_most": fact.spurious_bound,
        **({"rounds": [each._asdict() for each in fact.rounds]} if with_rounds else {}),
    }
