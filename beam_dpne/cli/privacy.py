"""The privacy parameters that options describe, as the plan of each program.

They are checked before Apache Beam is loaded, which takes longer than everything here. For the same
reason (ε, δ) are checked before the plans are loaded, which need SciPy.
"""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from beam_dpne.cli.options import Option, with_defaults
from beam_dpne.cli.options_by_command import BAYESIAN, PLAN, SET_UNION
from beam_dpne.cli.parsing import read_text
from beam_dpne.errors import UsageError
from beam_dpne.validation import as_float, check_budget, check_least_delta

if TYPE_CHECKING:
    from beam_dpne.bayesian.plan import BayesianPlan
    from beam_dpne.ngrams.plan import PrivacyPlan
    from beam_dpne.set_union.plan import SetUnionPlan

_SINGLE = tuple(option for option in PLAN["privacy"] if option.name != "plan")


def plan_from_options(parsed: argparse.Namespace) -> "PrivacyPlan":
    """Returns the plan that the options describe, by single parameters or by a file.

    Raises:
      UsageError: if a parameter is missing, wrong, or given twice.
    """
    if parsed.plan is not None:
        both = [option.name for option in _SINGLE if getattr(parsed, option.name) is not None]
        if both:
            raise UsageError(f"--plan stands for the single parameters; leave out --{both[0]}.")
        from beam_dpne.ngrams.plan import PrivacyPlan

        text = read_text(parsed.plan, "plan", "a JSON file as written by `beam-dpne plan`")
        return PrivacyPlan.from_json(text)
    values = privacy_values(parsed, _SINGLE)
    from beam_dpne.ngrams.plan import PrivacyPlan

    return PrivacyPlan(**values)


def privacy_values(
    parsed: argparse.Namespace, options: Sequence[Option], common: str = "1 to 4 is common for text"
) -> dict[str, Any]:
    """Returns the values of the options for privacy.

    Args:
      parsed: parsed options.
      options: those for privacy.
      common: advice on epsilon, for the error.

    Raises:
      UsageError: if epsilon or delta is missing.
      ValueError: if one of them is out of its range.
    """
    values = with_defaults(parsed, options)
    missing = [name for name in ("epsilon", "delta") if values[name] is None]
    if missing:
        raise UsageError(
            f"{' and '.join(missing)} must be given, there is no default: --epsilon is the privacy "
            f"budget of the whole run, {common}; --delta is well below one over "
            "the number of users, e.g. 1e-7 for a million users."
        )
    epsilon, delta = as_float("epsilon", values["epsilon"]), as_float("delta", values["delta"])
    check_budget(epsilon, delta)
    check_least_delta(delta)
    return values


def set_union_plan(parsed: argparse.Namespace) -> "SetUnionPlan":
    """Returns the plan of `beam-dpne set-union`; raises ValueError if a parameter is wrong."""
    values = privacy_values(parsed, SET_UNION["privacy"])
    from beam_dpne.set_union.plan import SetUnionPlan

    return SetUnionPlan(**values)


def bayesian_plan(parsed: argparse.Namespace) -> "BayesianPlan":
    """Returns the plan of `beam-dpne bayesian`; raises ValueError if a parameter is wrong."""
    values = privacy_values(parsed, BAYESIAN["privacy"], "0.1 to 1 is common here")
    from beam_dpne.bayesian.plan import BayesianPlan

    return BayesianPlan(**values)


PLANS = {
    "ngrams": plan_from_options,
    "set-union": set_union_plan,
    "bayesian": bayesian_plan,
    "plan": plan_from_options,
}


def check_parameters(parsed: argparse.Namespace) -> None:
    """Checks the privacy parameters of a program that has some; raises ValueError."""
    if parsed.program in PLANS:
        PLANS[parsed.program](parsed)
