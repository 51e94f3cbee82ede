"""The forecast of `beam-dpne plan`: from public text and a number of users, or for typical users."""

import argparse
import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from beam_dpne.accounting.division import plan_of_each
from beam_dpne.cli import display
from beam_dpne.cli.options import options_of, with_defaults
from beam_dpne.cli.options_by_command import PLAN
from beam_dpne.documents.tokenizers import Tokenizer, resolve_tokenizer
from beam_dpne.errors import InputError, UsageError
from beam_dpne.evaluation.corpus import read_corpus
from beam_dpne.evaluation.plots import names_text
from beam_dpne.forecast.crowd import with_documents
from beam_dpne.forecast.forecasting import MOST_REPEATS, Forecaster, LengthForecast
from beam_dpne.forecast.profiles import PROFILES, read_profile
from beam_dpne.forecast.simulation import MOST_USERS
from beam_dpne.forecast.typical import NUMBERS, typical_needs
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.reading.files import InputFile, match_inputs
from beam_dpne.reading.headers import check_fields
from beam_dpne.reading.options import ReadOptions
from beam_dpne.storage.access import check_access

_ONLY_WITH_LIKE = ("users", "documents_per_user", "epsilons", "seed")
_READING = tuple(option.name for option in PLAN["reading the public text"])
_MOST_DOCUMENTS = 10_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForecastJob:
    """The checked options of a forecast.

    Attributes:
      plans: the plan at each ε, ascending.
      users: number of users.
      profile: name of a built-in profile, or None.
      files: the public text, if there is no profile.
      reading: the options with which it is read.
      tokenizer: a tokenizer's name, or a function.
      documents_per_user: mean number of documents of a made-up user, or None.
      seed: the seed of all draws.
      quiet: whether no progress is shown.
    """

    plans: Sequence[PrivacyPlan]
    users: int
    profile: str | None
    files: Sequence[InputFile]
    reading: ReadOptions
    tokenizer: str | Tokenizer
    documents_per_user: float | None
    seed: int
    quiet: bool

    @property
    def text_name(self) -> str:
        """Name of the public text, without folders."""
        if self.profile is not None:
            return f"built-in profile {self.profile}"
        return names_text([file.path for file in self.files])


def job_from_options(parsed: argparse.Namespace, whole: PrivacyPlan) -> ForecastJob | None:
    """Checks the options of a forecast; returns None if none is asked for.

    Raises:
      UsageError, ValueError, FileNotFoundError: if a parameter is wrong.
    """
    if not parsed.like:
        _refuse_without_like(parsed)
        return None
    values = with_defaults(parsed, options_of(PLAN))
    if values["users"] is None:
        raise UsageError("users must be given with like: --users N, a public round number.")
    _check_range("users", values["users"], 1, MOST_USERS)
    _check_range("seed", values["seed"], 0, 2**31)
    documents = values["documents_per_user"]
    if documents is not None and not 1 <= documents <= _MOST_DOCUMENTS:
        raise UsageError(
            f"documents_per_user must be from 1 to {_MOST_DOCUMENTS:,}, got {documents:g}."
        )
    plans = _plans(whole, values["epsilons"], values["releases"])
    profile = _profile(values["like"])
    files: Sequence[InputFile] = ()
    reading, tokenizer = ReadOptions(), "words"
    if profile is not None:
        _refuse_with_profile(parsed)
    else:
        files, reading, tokenizer = _text(parsed, values)
    return ForecastJob(
        plans=plans,
        profile=profile,
        files=files,
        reading=reading,
        tokenizer=tokenizer,
        **{name: values[name] for name in ("users", "documents_per_user", "seed", "quiet")},
    )


def run_job(job: ForecastJob) -> None:
    """Forecasts, prints the table and its notes, and draws the picture."""
    if job.profile is not None:
        profile = read_profile(job.profile)
        forecasts = [profile.forecast(plan, job.users) for plan in job.plans]
        notes = [profile.note]
    else:
        forecasts, notes = _simulated(job)
    _print(job, forecasts, notes)


def print_needs(plan: PrivacyPlan) -> None:
    """Prints how many users an n-gram needs if its holders have 10, 100 or 1,000 n-grams each."""
    needs = [typical_needs(plan, number) for number in NUMBERS]
    headings = [f"{number:,}: {level}" for number in NUMBERS for level in ("50 %", "99 %")]
    table = display.aligned_table(
        f"Users that an n-gram needs, ε = {plan.epsilon:g}, δ = {plan.delta:g}",
        ("length", *headings),
    )
    for length in range(1, plan.max_length + 1):
        pairs = [each[length - 1] for each in needs]
        table.add_row(str(length), *(_count(number) for pair in pairs for number in pair))
    console = display.stdout_console()
    console.print(table)
    console.print(
        "An n-gram is released with probability 50 % and 99 % if about so many users have it, and "
        "each of them has 10, 100 or 1,000 n-grams of every length, all equally rare. With frequent "
        "n-grams among them fewer users suffice. --users N --like PUBLIC_TEXT gives a forecast.",
        soft_wrap=True,
    )


def _refuse_without_like(parsed: argparse.Namespace) -> None:
    for name in (*_ONLY_WITH_LIKE, *_READING):
        if getattr(parsed, name) is not None:
            raise UsageError(
                f"{name} belongs to a forecast, which needs like: --like PUBLIC_TEXT, or --like "
                f"{PROFILES[0]}."
            )


def _refuse_with_profile(parsed: argparse.Namespace) -> None:
    for name in ("documents_per_user", "seed", *_READING):
        if getattr(parsed, name) is not None:
            raise UsageError(
                f"{name} must be left out with like={parsed.like[0]}, a built-in profile, which is "
                "made already. Write ./ before the name of a file."
            )


def _check_range(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise UsageError(f"{name} must be from {least} to {most:,}, got {name}={value}.")


def _profile(like: Sequence[str]) -> str | None:
    """Returns the name of a built-in profile, or None for files."""
    named = [name for name in like if name in PROFILES]
    if named and len(like) > 1:
        raise UsageError(f"like must be one profile or files, got {', '.join(like)}.")
    return named[0] if named else None


def _plans(
    whole: PrivacyPlan, epsilons: Sequence[float] | float | None, releases: int | None
) -> list[PrivacyPlan]:
    """Returns the plan of a release for each ε of the forecast."""
    if epsilons is None:
        epsilons = (whole.epsilon / 2, whole.epsilon, 2 * whole.epsilon)
    values = sorted(set(epsilons if isinstance(epsilons, Sequence) else (epsilons,)))
    plans = []
    for epsilon in values:
        if not (math.isfinite(epsilon) and epsilon > 0):
            raise UsageError(f"epsilons must be finite numbers > 0, got {epsilon:g}.")
        try:
            plan = dataclasses.replace(whole, epsilon=epsilon)
            plans.append(plan if releases is None else plan_of_each(plan, releases))
        except ValueError as error:
            raise UsageError(f"epsilons has {epsilon:g}, which has no plan: {error}") from None
    return plans


def _text(
    parsed: argparse.Namespace, values: dict
) -> tuple[Sequence[InputFile], ReadOptions, str | Tokenizer]:
    """Checks the files of public text, of which only heads are read, and how they are read."""
    tokenizer = values["tokenizer"]
    if parsed.tokenizer is None and values["input_format"] == "sequences":
        tokenizer = "whitespace"
    resolve_tokenizer(tokenizer)
    check_access(values["like"], [])
    names = {field.name for field in dataclasses.fields(ReadOptions)}
    reading = ReadOptions(
        text_is_tokens=tokenizer == "tokens",
        **{name: value for name, value in values.items() if name in names},
    )
    with _about_like():
        files = match_inputs(values["like"], values["input_format"])
        check_fields(files, reading)
    return files, reading, tokenizer


@contextlib.contextmanager
def _about_like() -> Iterator[None]:
    """Says of an error about the public text that it is about `like`."""
    try:
        yield
    except (InputError, FileNotFoundError) as error:
        raise UsageError(f"like cannot be read: {error}") from None


def _simulated(job: ForecastJob) -> tuple[list[Sequence[LengthForecast]], list[str]]:
    """Reads the public text, and forecasts by simulations."""
    size = sum(file.size for file in job.files)
    with (
        _about_like(),
        display.progress_line(max_length=None, input_bytes=size, quiet=job.quiet),
    ):
        crowd = read_corpus(job.files, job.reading, job.tokenizer)
    if job.documents_per_user is not None:
        rng = np.random.default_rng([job.seed, 0])
        crowd = with_documents(crowd, job.documents_per_user, rng)
    forecaster = Forecaster(crowd, job.users, seed=job.seed)
    forecasts = []
    for plan in job.plans:
        with _progress(plan.epsilon, forecaster.simulations, job.quiet) as step:
            forecasts.append(forecaster.forecast(plan, step))
    return forecasts, _notes(forecaster)


@contextlib.contextmanager
def _progress(epsilon: float, simulations: int, quiet: bool) -> Iterator[Callable[[], None]]:
    """Says on stderr how far the simulations for one ε are."""
    start, done = time.monotonic(), 0

    def step() -> None:
        nonlocal done
        done += 1
        if not quiet and simulations > 1 and done < simulations:
            seconds = time.monotonic() - start
            display.print_notice(
                f"beam-dpne: ε = {epsilon:g}: {done} of {simulations} simulations, {seconds:.0f} s"
            )

    yield step


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


def _print(
    job: ForecastJob, forecasts: Sequence[Sequence[LengthForecast]], notes: Sequence[str]
) -> None:
    """Prints the table and the notes."""
    numbers = sorted(
        {width.users for lengths in forecasts for each in lengths for width in each.widths}
    )
    headings = ("ε", "length", "n-grams", "50 %", "99 %")
    table = display.aligned_table(
        f"Forecast for {job.users:,} users, δ = {job.plans[0].delta:g}",
        (*headings, *(f"{number:,} users" for number in numbers)),
    )
    for plan, lengths in zip(job.plans, forecasts, strict=True):
        for length, each in enumerate(lengths, 1):
            widths = {width.users: width for width in each.widths}
            table.add_row(
                f"{plan.epsilon:g}" if length == 1 else "",
                str(length),
                _count(each.released),
                *map(_count, each.needed),
                *(
                    f"{_count(widths[number].low)}–{_count(widths[number].high)}"
                    if number in widths
                    else "-"
                    for number in numbers
                ),
            )
        table.add_section()
    console = display.stdout_console()
    console.print(table)
    console.print(f"Public text: {job.text_name}.", soft_wrap=True)
    console.print(
        "50 % and 99 %: an n-gram needs about this many users to be released with this probability.",
        soft_wrap=True,
    )
    if numbers:
        console.print(
            "100 users, 1,000 users, …: the typical interval users_low–users_high of an n-gram with so "
            "many.",
            soft_wrap=True,
        )
    for note in notes:
        console.print(note, soft_wrap=True)


def _count(number: float | None) -> str:
    """Returns a number with three digits, since a forecast has no more.

    >>> _count(13_331.2), _count(0.7), _count(None)
    ('13,300', '1', '-')
    """
    if number is None:
        return "-"
    digits = max(0, math.floor(math.log10(number)) - 2) if number >= 1 else 0
    return f"{round(number, -digits):,.0f}"
