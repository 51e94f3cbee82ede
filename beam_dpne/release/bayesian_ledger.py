"""The ledger of n-gram probabilities: its mechanism, in numbers and in words."""

from collections.abc import Callable, Sequence
from typing import Any

from beam_dpne.bayesian.counting import NgramProbabilities
from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.mechanism.group_privacy import GaussianNoise, groups_section
from beam_dpne.reading.description import InputDescription
from beam_dpne.release.grounds import FAR_TAILS_MEANING
from beam_dpne.release.ledger import Part, whole_ledger
from beam_dpne.release.release_notes import NO_NOTES, ReleaseNotes

_MODES = {
    "counts": "each user adds to at most max_contributions distinct n-grams of the public vocabulary, "
    "to each at most max_count; every n-gram of the vocabulary gets Gaussian noise, rounded to whole "
    "counts, whether or not anybody has it; probabilities are computed from noisy and public counts "
    "alone",
    "log_global": "f = min(1, decay * users / max_count) * ln(counts + 1) of each n-gram, rounded to a "
    "grid, with Gaussian noise on that grid; gram_bound holds over all databases, and the mean of the "
    "logarithms, which the paper subtracts, is left out, since softmax does not see it; then weighted "
    "with the public logarithms, and softmax",
}
_COLUMNS = {
    "meaning": "how a probability comes about",
    "max_count": "C, how often one user's n-gram counts, at most",
    "max_contributions": "W, distinct n-grams that one user adds, at most",
    "public": "the public vocabulary with its counts, which nothing protects: how many n-grams, of how "
    "many words, and the SHA-256 of n-grams and counts (beam_dpne.PublicCounts.fingerprint)",
    "released": "n-grams with a probability: all of the public vocabulary",
    "gram_bound": "how far one user may move one n-gram's value, before it is rounded to the grid: C, "
    "or under log_global a bound over all databases",
    "grid": "the step of the released values, in counts or logarithms; the noise is on this grid",
    "sensitivity": "how far one user may move all values in l2, rounding to the grid included, "
    "whatever the database: under counts C * sqrt(W)",
    "noise_stddev": "sigma, before it is rounded to the grid, in counts or logarithms",
}
_WEIGHT_COLUMNS = {
    "decay": "S, in w = min(1, S * users / max_count)",
    "public_weight": "the weight of the public logarithms; the private ones have the rest",
}
_SLACK = (
    "What floating-point arithmetic and 128 bits may cost of epsilon: the probability of each noisy "
    "integer is right to a relative 2e-12, or 1e-13 * sigma in steps of the grid if that is more, "
    "outside far tails whose probability is subtracted from delta. It is subtracted from epsilon "
    "before the noise is calibrated, and its factor from delta."
)
_PUBLIC = (
    "the public counts: every n-gram of theirs gets a probability, and if they were made from the "
    "private data, what they tell of it; if that was a private release, its epsilon and delta are added"
)
_FILE_COLUMNS = {
    "ngram": "its words, joined by one blank; see beam_dpne.join_tokens",
    "probability": "nine significant digits; all of them sum to 1 up to that rounding",
    "order": "by falling probability, then the n-gram's bytes",
}


def bayesian_ledger(
    *,
    plan: BayesianPlan,
    found: NgramProbabilities,
    parts: Sequence[Part],
    run_key_given: bool,
    tokenizer: str | Callable[..., Any],
    described: InputDescription | None = None,
    notes: ReleaseNotes = NO_NOTES,
) -> dict[str, Any]:
    """Returns the ledger of n-gram probabilities.

    Args:
      plan: of the run.
      found: what it released.
      parts: files of the release, in order.
      run_key_given: whether the run key was given instead of fresh.
      tokenizer: its name, or the function itself.
      described: how records became documents, which says what one user is; None if nobody said.
      notes: what the operator says of the release.

    Raises:
      ValueError: if the probabilities or parts are not those of a run under this plan.
    """
    _check(plan, found)
    return whole_ledger(
        "bayesian",
        plan=plan,
        grounds={},
        groups=_groups(plan),
        spent=_spent(plan),
        sections={
            "mechanism_columns": _columns(plan),
            "mechanism": {**_mechanism(plan, found), "released": len(found)},
        },
        columns=_FILE_COLUMNS,
        parts=parts,
        run_key_given=run_key_given,
        tokenizer=tokenizer,
        described=described,
        notes=notes,
        not_protected=[_PUBLIC],
    )


def _groups(plan: BayesianPlan) -> dict[str, Any]:
    noise = GaussianNoise(
        epsilon=plan.epsilon - plan.numerical_slack,
        delta=plan.gaussian_delta,
        mu=plan.sensitivity / plan.noise_stddev,
    )
    return groups_section(epsilon=plan.epsilon, delta=plan.delta, gaussian=noise)


def _columns(plan: BayesianPlan) -> dict[str, str]:
    weights = {} if plan.mode == "counts" else _WEIGHT_COLUMNS
    return {**_COLUMNS, **weights}


def _mechanism(plan: BayesianPlan, found: NgramProbabilities) -> dict[str, Any]:
    apart = ("mode", "numerical_slack", "gaussian_delta")
    facts = {name: value for name, value in found.facts.items() if name not in apart}
    return {"mode": plan.mode, "meaning": _MODES[plan.mode], **facts}


def _spent(plan: BayesianPlan) -> dict[str, Any]:
    return {
        "gaussian_delta": plan.gaussian_delta,
        "far_tails": plan.far_tails,
        "far_tails_meaning": FAR_TAILS_MEANING,
        "numerical_slack": plan.numerical_slack,
        "numerical_slack_meaning": _SLACK,
    }


def _check(plan: BayesianPlan, found: NgramProbabilities) -> None:
    """Refuses probabilities of another run, which do not have the guarantee that the ledger states."""
    wanted = plan.facts()
    if any(found.facts.get(name) != value for name, value in wanted.items()):
        raise ValueError("probabilities must be of a run under this plan.")
    if found.guarantee != plan.guarantee:
        raise ValueError("probabilities must have the guarantee of this plan.")
