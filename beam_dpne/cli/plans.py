"""`beam-dpne plan`, and how the options make a plan."""

import argparse
import pathlib

from beam_dpne.cli import display
from beam_dpne.cli.errors import UsageError
from beam_dpne.cli.options import PRIVACY, with_defaults
from beam_dpne.plan import PrivacyPlan

_SINGLE = tuple(option for option in PRIVACY if option.name != "plan")


def run_command(given: argparse.Namespace, beam_arguments: list[str]) -> None:
    """Prints the table of a plan, and writes it where asked."""
    if beam_arguments:
        raise UsageError(f"beam-dpne plan has no option {beam_arguments[0].split('=')[0]}.")
    plan = plan_from_options(given)
    if given.output is not None:
        _write(pathlib.Path(given.output), plan.to_json())
    display.print_plan(plan)
    if given.output is not None:
        display.print_notice(f"beam-dpne: the plan is in {given.output}.")


def plan_from_options(given: argparse.Namespace) -> PrivacyPlan:
    """Returns the plan that the options describe, one by one or as a file.

    Raises:
      UsageError: if a parameter is missing, wrong, or given twice.
    """
    if given.plan is None:
        return _plan_from_single(given)
    both = [option.name for option in _SINGLE if getattr(given, option.name) is not None]
    if both:
        raise UsageError(f"--plan stands for the single parameters; leave out --{both[0]}.")
    try:
        text = pathlib.Path(given.plan).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"plan cannot be read, got {given.plan} ({type(error).__name__})."
        ) from None
    return PrivacyPlan.from_json(text)


def _plan_from_single(given: argparse.Namespace) -> PrivacyPlan:
    values = with_defaults(given, _SINGLE)
    missing = [name for name in ("epsilon", "delta") if values[name] is None]
    if missing:
        raise UsageError(
            f"{' and '.join(missing)} must be given, there is no default: --epsilon is the privacy "
            "budget of the whole run, 1 to 4 is common for text; --delta is well below one over "
            "the number of users, e.g. 1e-7 for a million users."
        )
    return PrivacyPlan(**values)


def _write(path: pathlib.Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"output cannot be written, got {path} ({error.strerror}).") from None
