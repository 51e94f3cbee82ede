"""`beam-dpne audit`: attacks on the mechanism of a plan, with made-up data."""

import dataclasses
import json
import os

from beam_dpne.audit.auditing import EXCEEDED, PASSED, WEAK, Audit, Plan, audit_plan, statements
from beam_dpne.audit.bounds import Bound
from beam_dpne.audit.plots import audit_plot, require_matplotlib
from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.cli import display, parsing
from beam_dpne.cli.parsing import Made
from beam_dpne.cli.settings import Auditing
from beam_dpne.errors import UsageError
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.set_union.plan import SetUnionPlan

_SCHEMA = "beam_dpne/audit/1"
# The exit status by verdict.
_STATUS = {PASSED: 0, EXCEEDED: 3, WEAK: 4}
_PLANS = {"ngrams": PrivacyPlan, "set-union": SetUnionPlan, "bayesian": BayesianPlan}


def run(made: Made, _beam_arguments: list[str]) -> None:
    """Audits a plan, prints what it shows, and writes the picture.

    Raises:
      UsageError: A parameter is wrong.
      SystemExit: With status 3 if a bound is above its claim, and 4 if a planted mistake was missed.
    """
    auditing = made[Auditing]
    plan = _plan(auditing)
    if auditing.plot is not None:
        require_matplotlib()
        if not auditing.plot.lower().endswith(".png"):
            raise UsageError(f"plot must be the path of a PNG file, got plot={auditing.plot}.")
    audit = audit_plan(
        plan,
        runs=auditing.runs,
        confidence=auditing.confidence,
        seed=auditing.seed,
        processes=os.cpu_count() or 1,
    )
    if auditing.plot is not None:
        parsing.write_file("plot", auditing.plot, audit_plot(audit))
    if auditing.json:
        shown = {"schema": _SCHEMA, "mechanism": auditing.mechanism, **audit.to_dict()}
        print(json.dumps(shown, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        _print(audit, auditing.mechanism)
    if _STATUS[audit.verdict]:
        raise SystemExit(_STATUS[audit.verdict])


def _plan(auditing: Auditing) -> Plan:
    """Returns the plan that the file and the budget describe; raises UsageError if one is missing."""
    kind = _PLANS[auditing.mechanism]
    known = {field.name for field in dataclasses.fields(kind)}
    values = parsing.read_parameters(auditing.plan, known) if auditing.plan else {}
    for name in ("epsilon", "delta"):
        value = getattr(auditing, name)
        if (value is None) == (name not in values):
            raise UsageError(f"{name} must be given once, as {name} or in the file of plan.")
        values.setdefault(name, value)
    return kind(**values)


def _print(audit: Audit, mechanism: str) -> None:
    title = (
        f"{mechanism}, ε = {audit.plan.epsilon:g}, δ = {audit.plan.delta:g}: {audit.runs:,} runs with "
        f"a user and without, confidence {audit.confidence:.4g}"
    )
    rows = []
    for played in audit.games:
        claimed = played.claim.epsilon
        digits = 2 if claimed >= 1 else 4
        claim = f"{claimed:.{digits}f}"
        state = "ABOVE THE CLAIM" if played.exceeds else "below"
        bounds = _cells(played.bound, digits)
        rows.append([played.name, "the mechanism", *bounds, claim, state])
        for each in played.mistakes:
            state = "noticed" if each.is_noticed else "NOT NOTICED"
            bounds = _cells(each.bound, digits)
            rows.append(["", f"mistake: {each.name}", *bounds, claim, state])
    headings = ("attack on", "run with", "ε ≥", "Gaussian ε ≥", "claimed ε", "")
    display.print_table(title, headings, rows)
    for line in statements(audit):
        display.print_line(line)


def _cells(bound: Bound, digits: int) -> tuple[str, str]:
    both = (bound.epsilon, bound.gaussian_epsilon)
    first, second = ("-" if each is None else f"{each:.{digits}f}" for each in both)
    return first, second
