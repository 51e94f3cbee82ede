"""The ledger of a release of n-grams: what each length was allowed, spent, and released."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from beam_dpne.mechanism.group_privacy import GaussianNoise, groups_section
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.ngrams.report import LengthReport
from beam_dpne.ngrams.strategies import LengthPlan
from beam_dpne.ngrams.vocabulary import union_plan
from beam_dpne.reading.description import InputDescription
from beam_dpne.release.grounds import (
    FAR_TAILS_MEANING,
    individual_budgets,
    promises,
    union_composition,
)
from beam_dpne.release.ledger import Part, whole_ledger
from beam_dpne.release.release_notes import NO_NOTES, ReleaseNotes
from beam_dpne.release.set_union_ledger import mechanism
from beam_dpne.set_union.policies import LAPLACE_POLICIES

_SLACK = (
    "What floating-point arithmetic may cost of epsilon: every decision's probability is right to "
    "a relative 1e-12, and a user changes at most max_tokens_per_user decisions in a round of a "
    "length. It is subtracted from epsilon before the noise is calibrated, and its factor from both "
    "deltas."
)
_PUBLIC = (
    "given as public: they cost nothing and are not released; valid of length 1 is their number"
)
_RELEASED = "n-grams of this length in the release"
_VALID = (
    "candidates of this length, held by somebody or not; null for single words, and how many they are "
    "where they were given as public"
)
_SPURIOUS = "expected number of released n-grams that nobody holds, at most"
_LENGTHS_COLUMNS = {
    "one_round": {
        "noise_stddev": "standard deviation of the noise in units of weight: composed_noise_stddev / "
        "sqrt(budget_share), where composed_noise_stddev is that of one Gaussian mechanism as "
        "private as all lengths together; 0 for words that were given as public",
        "threshold": "noisy weights above it are released; null where nothing could be",
        "released": _RELEASED,
        "valid": _VALID,
        "expected_spurious_at_most": _SPURIOUS,
    },
    "adaptive": {
        "noise_stddev": "standard deviation of the noise of every round, in units of weight; what a "
        "user may send is (1 / composed_noise_stddev)^2 in squared weights, over all lengths and "
        "rounds together; 0 for words that were given as public",
        "threshold": "of the last round; null where nothing could be released",
        "released": _RELEASED,
        "valid": _VALID,
        "expected_spurious_at_most": f"{_SPURIOUS}, in all rounds",
        "rounds": "one after the other. loadings: what the noisy weights of the rounds so far count in "
        "the evidence; evidence_stddev: standard deviation of the noise in that sum; threshold: "
        "n-grams whose evidence is above it are found; cut: those below it are closed for good, null "
        "in the last round; null_probability: that an n-gram which nobody holds is found in this round",
    },
}
_TEXT = (
    r"its words joined by one blank; in a word, backslash is \\, blank \s, tab \t, line feed "
    r"\n, carriage return \r, and the empty word is \e (beam_dpne.split_ngram reads it)"
)
_SCORES = {
    "one_round": "the noisy weight, to the middle of a cell one 64th of noise_stddev wide, rounded to "
    "six decimals; above the length's threshold",
    "adaptive": "the noisy weight by the evidence of all rounds until the n-gram was found (of that "
    "round alone for single words), in units of what round 1 sends, to the middle of a cell one 64th "
    "of the evidence's standard deviation wide, rounded to six decimals",
}


def ngrams_ledger(
    *,
    plan: PrivacyPlan,
    facts: Sequence[LengthReport],
    parts: Sequence[Part],
    run_key_given: bool,
    tokenizer: str | Callable[..., Any],
    described: InputDescription | None = None,
    notes: ReleaseNotes = NO_NOTES,
) -> dict[str, Any]:
    """Returns the ledger of a release of n-grams.

    Args:
      plan: of the run.
      facts: of each length, in any order.
      parts: files of the release, in order.
      run_key_given: whether the run key was given instead of fresh.
      tokenizer: its name, or the function itself.
      described: how records became documents, which says what one user is; None if nobody said.
      notes: what the operator says of the release.

    Raises:
      ValueError: if facts or parts are not those of one run under this plan.
    """
    ordered = sorted(facts, key=lambda fact: fact.length)
    _check_facts(plan, ordered)
    return whole_ledger(
        "ngrams",
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
            "length": "words in the n-gram",
            "ngram": _TEXT,
            "score": _SCORES[plan.strategy],
            "order": "by length, then falling score, then the bytes of the n-gram",
        },
        parts=parts,
        run_key_given=run_key_given,
        tokenizer=tokenizer,
        described=described,
        notes=notes,
    )


def _grounds(plan: PrivacyPlan) -> dict[str, Any]:
    promised = promises(union_plan(plan)) if plan.has_union_vocabulary else {}
    return {**individual_budgets(plan), **union_composition(plan), **promised}


def _groups(plan: PrivacyPlan) -> dict[str, Any]:
    """All noise is one Gaussian mechanism's, but for words under a Laplace policy."""
    return groups_section(
        epsilon=plan.epsilon,
        delta=plan.delta,
        gaussian=GaussianNoise(
            epsilon=plan.gaussian_epsilon, delta=plan.gaussian_delta, mu=1 / plan.noise_stddev
        ),
        has_laplace=plan.vocabulary_policy in LAPLACE_POLICIES,
        found_alone=None if plan.has_public_vocabulary else "word",
    )


def _vocabulary(plan: PrivacyPlan) -> dict[str, Any]:
    """How words were found, if not by the strategy."""
    if plan.has_public_vocabulary:
        return {"vocabulary": {"policy": "public", "meaning": _PUBLIC}}
    if not plan.has_union_vocabulary:
        return {}
    columns, found = mechanism(union_plan(plan))
    return {"vocabulary_columns": columns, "vocabulary": found}


def _check_facts(plan: PrivacyPlan, facts: Sequence[LengthReport]) -> None:
    """A ledger with another run's plan would claim a guarantee that nobody gave."""
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
        **({"rounds": [own._asdict() for own in fact.rounds]} if with_rounds else {}),
    }
