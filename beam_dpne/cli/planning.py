"""`beam-dpne plan`: a plan as a file, what an n-gram needs under it, or a forecast from public text."""

import contextlib
import dataclasses
import math
import os
from collections.abc import Iterator, Sequence

import numpy as np

from beam_dpne.accounting.composition import plan_of_each
from beam_dpne.cli import display, jobs, parameters, parsing
from beam_dpne.cli.parsing import Made
from beam_dpne.cli.settings import Forecasting, Planning
from beam_dpne.errors import InputError, UsageError
from beam_dpne.evaluation.corpus import read_corpus
from beam_dpne.forecast.forecasting import (
    MOST_REPEATS,
    Forecaster,
    LengthForecast,
    with_documents,
)
from beam_dpne.forecast.needed_users import MOST_USERS, NUMBERS, typical_needs
from beam_dpne.forecast.profiles import PROFILES, read_profile
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.headers import check_fields
from beam_dpne.storage.access import check_access


def run(made: Made, _beam_arguments: list[str]) -> None:
    """Prints what an n-gram needs, or a forecast, and writes the plan to the file `output`."""
    whole, planning = made[PrivacyPlan], made[Planning]
    jobs.warn_of_large_delta(whole)
    plan = whole if planning.releases is None else plan_of_each(whole, planning.releases)
    plans = _plans(made)
    if planning.output is not None:
        parsing.write_file("output", planning.output, plan.to_json().encode())
    if planning.releases is not None:
        display.print_line(
            f"{planning.releases} releases under this plan have at most ε = {whole.epsilon:g} at δ = "
            f"{whole.delta:g} together. Each may have:"
        )
    if plans is None:
        _print_needs(plan)
    else:
        _forecast(made, plans)
    display.print_budget(plan)
    if planning.output is not None:
        display.print_notice(f"beam-dpne: the plan is in {planning.output}.")


def _plans(made: Made) -> list[PrivacyPlan] | None:
    """Returns the plan of a release for each ε of the forecast; None if there is no forecast.

    Raises:
      UsageError: parameters of a forecast are missing, or given without one.
    """
    whole, forecasting = made[PrivacyPlan], made[Forecasting]
    if forecasting.like is None:
        for name in ("users", "documents_per_user", "epsilons"):
            if getattr(forecasting, name) is not None:
                raise UsageError(
                    f"{name} belongs to a forecast, which needs like: public text, or {PROFILES[0]}."
                )
        return None
    if forecasting.users is None or forecasting.users > MOST_USERS:
        raise UsageError(
            f"users must be a public round number of at most {MOST_USERS} with like, got "
            f"users={forecasting.users}."
        )
    epsilons = forecasting.epsilons or (whole.epsilon / 2, whole.epsilon, 2 * whole.epsilon)
    return [_plan_at(epsilon, made) for epsilon in sorted(set(epsilons))]


def _plan_at(epsilon: float, made: Made) -> PrivacyPlan:
    releases = made[Planning].releases
    try:
        plan = dataclasses.replace(made[PrivacyPlan], epsilon=epsilon)
        return plan if releases is None else plan_of_each(plan, releases)
    except ValueError as error:
        raise UsageError(f"epsilons has {epsilon:g}, which has no plan: {error}") from None


def _forecast(made: Made, plans: Sequence[PrivacyPlan]) -> None:
    """Forecasts, and prints the table and its notes."""
    forecasting = made[Forecasting]
    users, like = forecasting.users or 0, jobs.as_list(forecasting.like or ())
    if like[0] in PROFILES:
        if len(like) > 1 or forecasting.documents_per_user is not None:
            raise UsageError(
                f"like must be alone, without files and documents_per_user, with {like[0]}, a built-in "
                "profile. Write ./ before the name of a file."
            )
        profile = read_profile(like[0])
        _print_forecast(
            users, plans, [profile.forecast(plan, users) for plan in plans], [profile.note]
        )
        display.print_line(f"Public text: built-in profile {like[0]}.")
        return
    forecaster = _forecaster(made, like)
    forecasts = []
    for plan in plans:
        if not made[parameters.Quiet].quiet:
            display.print_notice(f"beam-dpne: simulations for ε = {plan.epsilon:g}")
        forecasts.append(forecaster.forecast(plan))
    _print_forecast(users, plans, forecasts, _notes(forecaster))
    names = ", ".join(os.path.basename(path.rstrip("/")) for path in like)
    display.print_line(f"Public text: {names}.")


def _forecaster(made: Made, like: Sequence[str]) -> Forecaster:
    """Reads the public text, and deals its documents to made-up users if that is wanted."""
    forecasting = made[Forecasting]
    tokenizer = jobs.tokenizer_name(made)
    reading = jobs.reading_options(made, tokenizer)
    check_access(like, [])
    with _about_like():
        files = match_inputs(like, reading.input_format)
        check_fields(files, reading)
        size, quiet = sum(file.size for file in files), made[parameters.Quiet].quiet
        with display.progress_line(max_length=None, input_bytes=size, quiet=quiet):
            crowd = read_corpus(files, reading, tokenizer)
    if forecasting.documents_per_user is not None:
        rng = np.random.default_rng([forecasting.seed, 0])
        crowd = with_documents(crowd, forecasting.documents_per_user, rng)
    return Forecaster(crowd, forecasting.users or 0, seed=forecasting.seed)


@contextlib.contextmanager
def _about_like() -> Iterator[None]:
    """Says of an error about the public text that it is about `like`."""
    try:
        yield
    except (InputError, FileNotFoundError) as error:
        raise UsageError(f"like cannot be read: {error}") from None


def _notes(forecaster: Forecaster) -> list[str]:
    """Returns the notes that a reader needs to judge the forecast."""
    public = len(forecaster.crowd.users)
    if forecaster.repeats <= 1:
        return [f"Simulated with {public:,} users of the public text."]
    notes = [
        f"{public:,} users of the public text stand for {forecaster.repeats:.3g} users each in the "
        "simulations."
    ]
    if forecaster.is_continued:
        notes.append(
            f"The number of users is more than {MOST_REPEATS:g} times that of the public text: the "
            "forecast continues a curve and is rough. More public text makes it better."
        )
    return notes


def _print_needs(plan: PrivacyPlan) -> None:
    """Prints how many users an n-gram needs if its holders have 10, 100 or 1,000 n-grams each."""
    needs = [typical_needs(plan, number) for number in NUMBERS]
    headings = [f"{number:,}: {level}" for number in NUMBERS for level in ("50 %", "99 %")]
    title = f"Users that an n-gram needs, ε = {plan.epsilon:g}, δ = {plan.delta:g}"
    rows = []
    for length in range(1, plan.max_length + 1):
        pairs = [each[length - 1] for each in needs]
        rows.append([str(length), *(_count(number) for pair in pairs for number in pair)])
    display.print_table(title, ("length", *headings), rows)
    display.print_line(
        "An n-gram is released with probability 50 % and 99 % if about so many users have it, and "
        "each of them has 10, 100 or 1,000 n-grams of every length, all equally rare. With frequent "
        "n-grams among them fewer users suffice. --users N --like PUBLIC_TEXT gives a forecast."
    )


def _print_forecast(
    users: int,
    plans: Sequence[PrivacyPlan],
    forecasts: Sequence[Sequence[LengthForecast]],
    notes: Sequence[str],
) -> None:
    """Prints the table and the notes."""
    numbers = sorted(
        {width.users for lengths in forecasts for each in lengths for width in each.widths}
    )
    rows = []
    for plan, lengths in zip(plans, forecasts, strict=True):
        for length, each in enumerate(lengths, 1):
            widths = {width.users: width for width in each.widths}
            cells = (
                f"{_count(widths[number].low)}–{_count(widths[number].high)}"
                if number in widths
                else "-"
                for number in numbers
            )
            epsilon = f"{plan.epsilon:g}" if length == 1 else ""
            needed = map(_count, each.needed)
            rows.append([epsilon, str(length), _count(each.released), *needed, *cells])
    display.print_table(
        f"Forecast for {users:,} users, δ = {plans[0].delta:g}",
        ("ε", "length", "n-grams", "50 %", "99 %", *(f"{number:,} users" for number in numbers)),
        rows,
    )
    display.print_line(
        "50 % and 99 %: an n-gram needs about this many users to be released with this probability."
    )
    if numbers:
        display.print_line(
            "100 users, 1,000 users, …: the typical interval users_low–users_high of an n-gram with so "
            "many."
        )
    for note in notes:
        display.print_line(note)


def _count(number: float | None) -> str:
    """Returns a number with three digits, since a forecast has no more.

    >>> _count(13_331.2), _count(0.7), _count(None)
    ('13,300', '1', '-')
    """
    if number is None:
        return "-"
    digits = max(0, math.floor(math.log10(number)) - 2) if number >= 1 else 0
    return f"{round(number, -digits):,.0f}"
