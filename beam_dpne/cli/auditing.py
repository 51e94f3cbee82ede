"""`beam-dpne audit`: attacks on the mechanism of a plan, with made-up data."""

import dataclasses
import json
import os

from beam_dpne.audit.auditing import EXCEEDED, PASSED, WEAK, Audit, Plan, audit_plan, statements
from beam_dpne.audit.games import MECHANISM
from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.cli import display, parsing
from beam_dpne.cli.parsing import Made
from beam_dpne.cli.settings import Auditing
from beam_dpne.errors import UsageError
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.set_union.plan import SetUnionPlan

_SCHEMA = "beam_dpne/audit/2"
# The exit status by verdict.
_STATUS = {PASSED: 0, EXCEEDED: 3, WEAK: 4}
_PLANS = {"ngrams": PrivacyPlan, "set-union": SetUnionPlan, "bayesian": BayesianPlan}


def run(made: Made, _beam_arguments: list[str]) -> None:
    """Audits a plan, and prints what it shows.

    Raises:
      UsageError: A parameter is wrong.
      SystemExit: With status 3 if a bound is above its claim, and 4 if a planted mistake was missed.
    """
    auditing = made[Auditing]
    plan = _plan(auditing)
    audit = audit_plan(
        plan,
        runs=auditing.runs,
        confidence=auditing.confidence,
        seed=auditing.seed,
        processes=os.cpu_count() or 1,
    )
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
        claimed = played.game.claim.epsilon
        digits = 2 if claimed >= 1 else 4
        for name, bound in played.bounds.items():
            is_mistake = name != MECHANISM
            game, run = ("", f"mistake: {name}") if is_mistake else (played.game.name, name)
            states = ("NOT NOTICED", "noticed") if is_mistake else ("below", "ABOVE THE CLAIM")
            numbers = (f"{each:.{digits}f}" for each in (*bound, claimed))
            rows.append([game, run, *numbers, states[played.is_above(name)]])
    headings = ("attack on", "run with", "ε ≥", "Gaussian ε ≥", "claimed ε", "")
    display.print_table(title, headings, rows)
    for line in statements(audit):
        display.print_line(line)
