"""`beam-dpne audit`: attacks on the mechanism of a plan, with made-up data."""

import argparse
import json
import os

from apache_beam.io.filesystems import FileSystems

from beam_dpne.audit.auditing import (
    EXCEEDED,
    PASSED,
    WEAK,
    Audit,
    Plan,
    audit_plan,
    statements,
)
from beam_dpne.audit.bounds import Bound
from beam_dpne.audit.plots import audit_plot, require_matplotlib
from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.cli import display
from beam_dpne.cli.options import options_of, with_defaults
from beam_dpne.cli.options_by_command import AUDIT, AUDITED
from beam_dpne.cli.privacy import plan_from_options, privacy_values
from beam_dpne.elements import progress
from beam_dpne.errors import UsageError
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.storage.access import check_access, directory_at
from beam_dpne.storage.directories import Directory, reason

_SCHEMA = "beam_dpne/audit/1"
# The exit status by verdict.
STATUS = {PASSED: 0, EXCEEDED: 3, WEAK: 4}
_OWN = ("mechanism", *(option.name for option in AUDIT["audit"]))


def run_command(parsed: argparse.Namespace, _beam_arguments: list[str]) -> None:
    """Audits a plan, prints what it shows, and writes the picture.

    Raises:
      UsageError: An option is wrong.
      SystemExit: With status 3 if a bound is above its claim, and 4 if a planted mistake was missed.
    """
    values = with_defaults(parsed, options_of(AUDIT))
    plan = _plan(parsed, values["mechanism"])
    picture = None if values["plot"] is None else _place(values["plot"])
    with display.progress_line(max_length=None, input_bytes=0, quiet=values["quiet"]):
        audit = audit_plan(
            plan,
            runs=values["runs"],
            confidence=values["confidence"],
            seed=values["seed"],
            processes=os.cpu_count() or 1,
            report=progress.enter,
        )
    if picture is not None:
        _draw(*picture, audit, str(values["plot"]))
    if values["json"]:
        shown = {"schema": _SCHEMA, "mechanism": values["mechanism"], **audit.to_dict()}
        print(json.dumps(shown, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        _print(audit, values["mechanism"])
    if picture is not None and not values["quiet"]:
        display.print_notice(f"beam-dpne: the picture is in {values['plot']}.")
    if STATUS[audit.verdict]:
        raise SystemExit(STATUS[audit.verdict])


def _plan(parsed: argparse.Namespace, mechanism: str | None) -> Plan:
    """Returns the plan that the options describe.

    Raises:
      UsageError: The mechanism is missing or unknown, or an option does not belong to it.
    """
    if mechanism not in AUDITED:
        got = "none" if mechanism is None else f"mechanism={mechanism}"
        raise UsageError(
            f"mechanism must be one of {', '.join(AUDITED)}, got {got}: beam-dpne audit MECHANISM."
        )
    options = AUDITED[mechanism]
    names = {option.name for option in options}
    for option in options_of(AUDIT):
        is_foreign = option.name not in names and option.name not in _OWN
        if is_foreign and getattr(parsed, option.name) is not None:
            raise UsageError(
                f"{option.name} must be left out with mechanism={mechanism}, which does not have it."
            )
    if mechanism == "ngrams":
        return plan_from_options(parsed)
    values = privacy_values(parsed, options)
    return SetUnionPlan(**values) if mechanism == "set-union" else BayesianPlan(**values)


def _place(path: str) -> tuple[Directory, str]:
    """Returns the directory and the name of the picture, which must be a new file.

    Raises:
      UsageError: The file exists or is no PNG, or its directory cannot be read.
      PlotsUnavailableError: matplotlib is not installed.
    """
    require_matplotlib()
    if not path.lower().endswith(".png"):
        raise UsageError(f"plot must be the path of a PNG file, got plot={path}.")
    is_plain = FileSystems.get_scheme(path) is None and not set(path) & set("/\\")
    folder, name = (".", path) if is_plain else FileSystems.split(path)
    check_access([], [folder])
    directory = directory_at(folder)
    try:
        directory.probe()
        taken = name in directory.names()
    except OSError as error:
        raise UsageError(
            f"plot must be a file that can be written, got plot={path}: {reason(error)}."
        ) from None
    if taken:
        raise UsageError(f"plot must be a new file, got plot={path}; name another one.")
    return directory, name


def _draw(directory: Directory, name: str, audit: Audit, path: str) -> None:
    picture = audit_plot(audit)
    try:
        with directory.locked():
            directory.put(name, picture)
    except OSError as error:
        raise UsageError(
            f"plot must be a file that can be written, got plot={path}: {reason(error)}."
        ) from None


def _print(audit: Audit, mechanism: str) -> None:
    title = (
        f"{mechanism}, ε = {audit.plan.epsilon:g}, δ = {audit.plan.delta:g}: {audit.runs:,} runs with "
        f"a user and without, confidence {audit.confidence:.4g}"
    )
    headings = ("attack on", "run with", "ε ≥", "Gaussian ε ≥", "claimed ε", "")
    table = display.aligned_table(title, headings, text=("attack on", "run with", ""))
    for played in audit.games:
        claimed = played.claim.epsilon
        digits = 2 if claimed >= 1 else 4
        claim = f"{claimed:.{digits}f}"
        state = "ABOVE THE CLAIM" if played.exceeds else "below"
        table.add_row(played.name, "the mechanism", *_cells(played.bound, digits), claim, state)
        for each in played.mistakes:
            state = "noticed" if each.is_noticed else "NOT NOTICED"
            mistake = f"mistake: {each.name}"
            table.add_row("", mistake, *_cells(each.bound, digits), claim, state)
        table.add_section()
    display.stdout_console().print(table)
    for line in statements(audit):
        display.print_line(line)


def _cells(bound: Bound, digits: int) -> tuple[str, str]:
    both = (bound.epsilon, bound.gaussian_epsilon)
    first, second = ("-" if each is None else f"{each:.{digits}f}" for each in both)
    return first, second
