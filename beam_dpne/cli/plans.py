"""`beam-dpne plan` forecasts what a plan would release, and `audit` attacks the mechanism of a plan."""

import dataclasses
import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from beam_dpne.accounting.composition import plan_of_each
from beam_dpne.accounting.expense import PLANS
from beam_dpne.audit.auditing import EXCEEDED, PASSED, WEAK, Audit, Finding, audit_plan, statements
from beam_dpne.audit.games import MECHANISM
from beam_dpne.cli import display
from beam_dpne.cli.settings import Auditing, Planning
from beam_dpne.documents.tokenizers import Tokenizer
from beam_dpne.errors import InputError, UsageError
from beam_dpne.evaluation.corpus import read_corpus
from beam_dpne.forecast.forecasting import MOST_REPEATS, Forecaster, LengthForecast, with_documents
from beam_dpne.forecast.needed_users import NUMBERS, typical_needs
from beam_dpne.forecast.profiles import PROFILES, read_profile
from beam_dpne.jobs import console
from beam_dpne.jobs.inputs import read_inputs, tokenizer_name, with_rules
from beam_dpne.jobs.made import Made
from beam_dpne.jobs.parameters import Quiet, Tokenizing
from beam_dpne.jobs.preparing import warn_of_large_delta
from beam_dpne.jobs.showing import Showing
from beam_dpne.lists.known import KnownNgrams, read_known
from beam_dpne.lists.parameters import KnownLists
from beam_dpne.ngrams.plan import NgramsPlan
from beam_dpne.reading.files import InputFile
from beam_dpne.reading.options import ReadOptions, names_of
from beam_dpne.release.publishing import write_file
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.storage.directories import check_access

_SCHEMA = "beam_dpne/audit/3"
_STATUS = {PASSED: 0, EXCEEDED: 3, WEAK: 4}


def plan(made: Made, _beam_arguments: list[str]) -> None:
    """Prints what an n-gram needs, or a forecast, and writes the plan to the file `output`.

    Raises:
      UsageError: parameters of a forecast are missing, or given without one.
    """
    asked = made[Planning]
    whole = _plan_of(made, asked.program)
    warn_of_large_delta(whole, _showing(made))
    one = plan_of_each(whole, asked.releases or 1)
    plans = _plans_to_forecast(whole, asked)
    if asked.output is not None:
        write_file(asked.output, one.to_json().encode(), overwrite=asked.overwrite)
    if asked.releases is not None:
        display.print_line(
            f"{asked.releases} releases under this plan have at most ε = {whole.epsilon:g} at δ = "
            f"{whole.delta:g} together. By the composition of their noise each may have ε = "
            f"{one.epsilon:g}; a sum of their ε would allow {whole.epsilon / asked.releases:.4g}:"
        )
    if plans:
        _forecast(made, plans)
    elif isinstance(one, NgramsPlan):
        _print_needs(one)
    elif isinstance(one, SetUnionPlan):
        rounds = [each._asdict() for each in one.union_rounds]
        display.print_table(f"Rounds of {one.policy}", rounds)
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


def _plan_of(made: Made, program: str) -> Any:
    """Returns the plan of a program.

    Raises:
      UsageError: The program was not the first argument, so that its parameters were not known.
    """
    kind = PLANS[program]
    if kind not in made:
        raise UsageError(
            f"program must be the first argument of the command, got {program} after others."
        )
    return made[kind]


def _plans_to_forecast(whole: Any, asked: Planning) -> list[NgramsPlan]:
    """Returns the plan of a release for each ε of the forecast; none if there is no forecast."""
    if asked.like is None:
        if asked.users or asked.documents_per_user or asked.epsilons or asked.known:
            raise UsageError(
                "users, documents_per_user, epsilons and known belong to a forecast; set like=FILES."
            )
        return []
    if asked.program != "ngrams":
        raise UsageError(f"like must be left out with {asked.program}: forecasts are of n-grams.")
    if asked.users is None:
        raise UsageError("users must be a public round number with --like.")
    if asked.known:
        whole.check_known()
    epsilons = asked.epsilons or (whole.epsilon / 2, whole.epsilon, 2 * whole.epsilon)
    plans = (dataclasses.replace(whole, epsilon=epsilon) for epsilon in sorted(set(epsilons)))
    return [plan_of_each(plan, asked.releases or 1) for plan in plans]


def _forecast(made: Made, plans: Sequence[NgramsPlan]) -> None:
    """Forecasts, and prints the table and its notes."""
    asked = made[Planning]
    like = names_of(made[Planning].like or "")
    users = asked.users or 0
    if tuple(like) == PROFILES and asked.documents_per_user is None:
        if asked.known:
            raise UsageError(
                "known must be left out with a built-in profile: give text for --like."
            )
        profile = read_profile(like[0])
        forecasts = [profile.forecast(plan, users) for plan in plans]
        notes = [profile.note]
    else:
        showing = _showing(made)
        forecaster = _forecaster(made, like, showing)
        forecasts = []
        for plan in plans:
            showing.advise(f"simulations for ε = {plan.epsilon:g}")
            forecasts.append(forecaster.forecast(plan))
        notes = [
            f"Simulated with {len(forecaster.crowd.users):,} users of the public text, who stand for "
            f"{max(1, forecaster.repeats):.3g} each."
        ]
        if forecaster.is_continued:
            notes.append(
                f"The number of users is more than {MOST_REPEATS:g} times that of the public text: the "
                "forecast continues a curve and is rough. More public text makes it better."
            )
    _print_forecast(users, plans, forecasts)
    for note in notes:
        display.print_line(note)


def _showing(made: Made) -> Showing:
    return console.showing(quiet=made[Quiet].quiet)


def _forecaster(made: Made, like: Sequence[str], showing: Showing) -> Forecaster:
    """Reads the public text, and deals its documents to made-up users if that is wanted."""
    asked = made[Planning]
    name = tokenizer_name(made)
    check_access(like, [])
    try:
        files, reading, _ = read_inputs(made[ReadOptions], like, name, showing=showing)
        tokenizer = with_rules(made[Tokenizing], name)
        with showing.progress(sum(file.size for file in files)):
            crowd = read_corpus(files, reading, tokenizer)
        known = _known(made, files, reading, tokenizer) if asked.known else None
    except (InputError, FileNotFoundError) as error:
        raise UsageError(f"like cannot be read: {error}") from None
    if asked.documents_per_user is not None:
        crowd = with_documents(crowd, asked.documents_per_user, np.random.default_rng([0, 0]))
    return Forecaster(crowd, asked.users or 0, known=known)


def _known(
    made: Made, like: Sequence[InputFile], reading: ReadOptions, tokenizer: str | Tokenizer
) -> KnownNgrams:
    """Returns the known n-grams of a forecast, whose text stands for the private one."""
    asked = made[Planning]
    lists = KnownLists(known=asked.known, known_min_count=asked.known_min_count)
    try:
        longest = made[NgramsPlan].max_length
        return read_known(lists, longest, tokenizer, like, reading=reading)
    except UsageError:
        raise UsageError(
            "known must be another text than --like, which stands for the private one: with the same "
            "text a forecast promises too much. Split it."
        ) from None
    except (InputError, FileNotFoundError) as error:
        raise UsageError(str(error)) from None


def _print_needs(plan: NgramsPlan) -> None:
    """Prints how many users an n-gram needs if its holders have 10, 100 or 1,000 n-grams each."""
    needs = {number: typical_needs(plan, number) for number in NUMBERS}
    rows = [
        {"length": length}
        | {
            f"{number:,}: {level}": _count(users)
            for number, each in needs.items()
            for level, users in zip(("50%", "99%"), each[length - 1], strict=True)
        }
        for length in range(1, plan.max_length + 1)
    ]
    display.print_table(
        f"Users that an n-gram needs, ε = {plan.epsilon:g}, δ = {plan.delta:g}", rows
    )
    display.print_line(
        "An n-gram is released with probability 50% and 99% if about so many users have it, and "
        "each of them has 10, 100 or 1,000 n-grams of every length, all equally rare. With frequent "
        "n-grams among them fewer users suffice. --users N --like PUBLIC_TEXT gives a forecast."
    )


def _print_forecast(
    users: int, plans: Sequence[NgramsPlan], forecasts: Sequence[Sequence[LengthForecast]]
) -> None:
    """Prints the table of a forecast, and below it the meaning of each column."""
    numbers = {x.users for lengths in forecasts for each in lengths for x in each.widths}
    headers = {number: f"{number:,} users" for number in sorted(numbers)}
    rows = [
        {"ε": f"{plan.epsilon:g}", "length": length, "n-grams": _count(each.released)}
        | dict(zip(("50%", "99%"), map(_count, each.needed), strict=True))
        | dict.fromkeys(headers.values())
        | {headers[x.users]: f"{_count(x.low):,}–{_count(x.high):,}" for x in each.widths}
        for plan, lengths in zip(plans, forecasts, strict=True)
        for length, each in enumerate(lengths, 1)
    ]
    display.print_table(f"Forecast for {users:,} users, δ = {plans[0].delta:g}", rows)
    display.print_line(
        "50% and 99%: an n-gram needs about this many users to be released with this probability. "
        "100 users, …: the typical interval users_low–users_high of an n-gram with so many."
    )


def _count(value: float | None) -> int | None:
    """Returns a number with three digits, since a forecast has no more.

    >>> _count(13_331.2), _count(0.7), _count(None)
    (13300, 1, None)
    """
    return None if value is None else round(float(f"{value:.3g}"))


def audit(made: Made, _beam_arguments: list[str]) -> None:
    """Audits a plan, and prints what it shows.

    Raises:
      UsageError: A parameter is wrong.
      SystemExit: With status 3 if a bound is above its claim, and 4 if a planted mistake was missed.
    """
    asked = made[Auditing]
    found = audit_plan(
        _plan_of(made, asked.program),
        runs=asked.runs,
        seed=asked.seed,
        processes=os.cpu_count() or 1,
    )
    if asked.json:
        shown = {"schema": _SCHEMA, "mechanism": asked.program, **found.to_dict()}
        print(json.dumps(shown, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        _print_audit(found, asked.program)
    status = _STATUS[found.verdict]
    if status:
        raise SystemExit(status)


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
