"""`beam-dpne plan` forecasts what a plan would release, and `audit` attacks the mechanism of a plan."""

import json
import os

from beam_dpne.accounting.composition import plan_of_share, share_of
from beam_dpne.accounting.expense import Plan
from beam_dpne.accounting.series import check_releases_per_user
from beam_dpne.audit.auditing import (
    EXCEEDED,
    PASSED,
    WEAK,
    Audit,
    Finding,
    audit_plan,
    audit_series,
    statements,
)
from beam_dpne.audit.games import MECHANISM
from beam_dpne.audit.series_games import AuditedSeries
from beam_dpne.cli import display
from beam_dpne.cli.settings import Auditing
from beam_dpne.errors import UsageError
from beam_dpne.jobs import console
from beam_dpne.jobs.asking import Planning
from beam_dpne.jobs.made import Made
from beam_dpne.jobs.parameters import Quiet
from beam_dpne.jobs.planning import Forecast, Planned, plan_in, planned
from beam_dpne.ngrams.plan import NgramsPlan
from beam_dpne.phrase_counts.plan import PhraseCountsPlan
from beam_dpne.release.publishing import write_file
from beam_dpne.set_union.plan import SetUnionPlan

_SCHEMA = "beam_dpne/audit/3"
_STATUS = {PASSED: 0, EXCEEDED: 3, WEAK: 4}


def plan(made: Made, _beam_arguments: list[str]) -> None:
    """Prints what an n-gram needs, or a forecast, and writes the plan to the file `output`.

    Raises:
      UsageError: parameters of a forecast are missing, or given without one.
    """
    asked = made[Planning]
    found = planned(made, plan_in(made, asked.program), console.showing(quiet=made[Quiet].quiet))
    whole = found.whole
    one = found.plan
    if asked.output is not None:
        write_file(asked.output, one.to_json().encode(), overwrite=asked.overwrite)
    if found.of_series:
        _print_series(found, asked.releases)
        return
    if asked.releases is not None:
        display.print_line(
            f"{asked.releases} releases under this plan have at most ε = {whole.epsilon:g} at δ = "
            f"{whole.delta:g} together. By the composition of their noise each may have ε = "
            f"{one.epsilon:g}; a sum of their ε would allow {whole.epsilon / asked.releases:.4g}:"
        )
    if found.forecast is not None:
        _print_forecast(found.forecast)
    elif isinstance(one, NgramsPlan):
        _print_needs(found)
    elif isinstance(one, SetUnionPlan):
        display.print_table(f"Rounds of {one.policy}", found.rows)
    elif isinstance(one, PhraseCountsPlan):
        _print_widths(found)
    noise = (
        f"σ = {one.noise_stddev:.5f} of everything together at sensitivity {one.sensitivity:.6g}"
    )
    if one.count_noise is not None:
        noise = f"{noise}, {one.count_noise:.4f} of numbers of users"
    display.print_line(
        f"The plan has ε = {one.epsilon:g}, δ = {one.delta:g}: noise {noise}; δ for the noise "
        f"{one.gaussian_delta:.3g}, for words or items of one user {one.vocabulary_delta:.3g}, and "
        "1/1000 of both is kept for the imperfections of noise."
    )
    if asked.output is not None:
        display.print_notice(f"the plan is in {asked.output}.")


def _print_series(found: Planned, releases: int | None) -> None:
    """Prints the budget of a release of a series, and a forecast, by the releases per user."""
    whole = found.whole
    display.print_line(
        f"A series of {releases} releases has ε = {whole.epsilon:g} at δ = {whole.delta:g}. If each "
        "user takes part in releases_per_user of them at most, a release of this plan may have:"
    )
    budgets = [
        {"releases_per_user": times, "epsilon": plan.epsilon, "delta": plan.delta}
        for times, plan in found.of_series.items()
    ]
    display.print_table("Each release of a series", budgets)
    if found.forecast is not None:
        _print_forecast(found.forecast)


def _print_needs(found: Planned) -> None:
    """Prints how many users an n-gram needs if its holders have 10, 100 or 1,000 n-grams each."""
    plan = found.plan
    display.print_table(
        f"Users that an n-gram needs, ε = {plan.epsilon:g}, δ = {plan.delta:g}", found.rows
    )
    display.print_line(
        "An n-gram is released with probability 50% and 99% if about so many users have it, and "
        "each of them has 10, 100 or 1,000 n-grams of every length, all equally rare. With frequent "
        "n-grams among them fewer users suffice. --users N --like PUBLIC_TEXT gives a forecast."
    )


def _print_widths(found: Planned) -> None:
    """Prints half the width of the intervals of a count."""
    plan = found.plan
    display.print_table(
        f"Half the width of an interval in users, ε = {plan.epsilon:g}, δ = {plan.delta:g}",
        found.rows,
    )
    display.print_line(
        "An interval reaches about so far to both sides if most users have at most so many phrases of "
        "the list; the few who have more widen it by about half of their number. The number of all "
        "users does not matter."
    )


def _print_forecast(forecast: Forecast) -> None:
    """Prints the table of a forecast, and below it the meaning of each column."""
    title = f"Forecast for {forecast.users:,} users"
    if not forecast.releases_per_user:
        title = f"{title}, δ = {forecast.plans[0].delta:g}"
    display.print_table(title, forecast.rows)
    display.print_line(
        "50% and 99%: an n-gram needs about this many users to be released with this probability. "
        "100 users, …: the typical interval users_low–users_high of an n-gram with so many."
    )
    for note in forecast.notes:
        display.print_line(note)


def audit(made: Made, _beam_arguments: list[str]) -> None:
    """Audits a plan, and prints what it shows.

    Raises:
      UsageError: A parameter is wrong.
      SystemExit: With status 3 if a bound is above its claim, and 4 if a planted mistake was missed.
    """
    asked = made[Auditing]
    found = _audited(plan_in(made, asked.program), asked)
    if asked.json:
        shown = {"schema": _SCHEMA, "mechanism": asked.program, **found.to_dict()}
        print(json.dumps(shown, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        _print_audit(found, asked.program)
    status = _STATUS[found.verdict]
    if status:
        raise SystemExit(status)


def _audited(plan: Plan, asked: Auditing) -> Audit:
    """Plays the games of a plan, or of a series whose ε and δ a plan has.

    Raises:
      UsageError: One of the two numbers of a series is missing, or there is no such series.
    """
    processes = os.cpu_count() or 1
    if asked.releases is None and asked.releases_per_user is None:
        return audit_plan(plan, runs=asked.runs, seed=asked.seed, processes=processes)
    if asked.releases is None or asked.releases_per_user is None:
        raise UsageError("`releases` and `releases_per_user` must be given together, for a series.")
    check_releases_per_user(asked.releases_per_user, asked.releases)
    share = share_of(plan.epsilon, plan.delta, asked.releases_per_user)
    return audit_series(
        plan,
        plan_of_share(plan, share),
        AuditedSeries(asked.releases, asked.releases_per_user),
        runs=asked.runs,
        seed=asked.seed,
        processes=processes,
    )


def _found(finding: Finding) -> str:
    """Says what a bound shows: of a mistake whether it was noticed, else the side of the claim."""
    if finding.run_with != MECHANISM:
        return "noticed" if finding.is_above else "MISSED"
    return "ABOVE" if finding.is_above else "below"


def _print_audit(audit: Audit, mechanism: str) -> None:
    title = (
        f"{mechanism}, ε = {audit.plan.epsilon:g}, δ = {audit.plan.delta:g}: {audit.runs:,} runs with "
        f"a user and without, confidence {audit.confidence:.4g}"
    )
    rows = [{**each._asdict(), "found": _found(each)} for each in audit.findings]
    names = ("attack_on", "run_with", "epsilon", "gaussian_epsilon", "claim", "found")
    display.print_table(title, rows, names)
    for line in statements(audit):
        display.print_line(line)
