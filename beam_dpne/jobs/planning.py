"""A plan before a run: what it would release, by public text and users, or what it needs."""

import dataclasses
import types
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from beam_dpne.accounting.composition import plan_of_each, plan_of_share, share_of
from beam_dpne.accounting.expense import PLANS, Plan
from beam_dpne.accounting.series import check_releases_per_user
from beam_dpne.documents.tokenizers import Tokenizer
from beam_dpne.errors import InputError, UsageError
from beam_dpne.evaluation.corpus import read_corpus
from beam_dpne.forecast.forecasting import MOST_REPEATS, Forecaster, LengthForecast, with_documents
from beam_dpne.forecast.needed_users import NUMBERS, typical_needs
from beam_dpne.forecast.profiles import PROFILES, Profile, read_profile
from beam_dpne.jobs.asking import Planning
from beam_dpne.jobs.deltas import warn_of_large_delta
from beam_dpne.jobs.inputs import read_inputs, tokenizer_name, with_rules
from beam_dpne.jobs.made import Made
from beam_dpne.jobs.parameters import Tokenizing
from beam_dpne.jobs.showing import Showing, lines_of
from beam_dpne.lists.known import KnownNgrams, read_known
from beam_dpne.lists.parameters import KnownLists
from beam_dpne.ngrams.plan import NgramsPlan
from beam_dpne.phrase_counts.plan import PhraseCountsPlan
from beam_dpne.reading.files import InputFile
from beam_dpne.reading.options import ReadOptions, names_of
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.storage.directories import check_access


class Forecast(NamedTuple):
    """What plans would release.

    Attributes:
      users: the public number of users.
      plans: a plan for each ε.
      lengths: the forecast of each length, for each plan.
      notes: how it was made.
      releases_per_user: of a series, in how many releases one user takes part, for each plan; else
        empty.
    """

    users: int
    plans: Sequence[NgramsPlan]
    lengths: Sequence[Sequence[LengthForecast]]
    notes: Sequence[str]
    releases_per_user: Sequence[int] = ()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each plan and length."""
        of_plans = self._rows_of_plans
        if not self.releases_per_user:
            return [row for rows in of_plans for row in rows]
        return [
            {"releases_per_user": times, **row}
            for times, rows in zip(self.releases_per_user, of_plans, strict=True)
            for row in rows
        ]

    @property
    def _rows_of_plans(self) -> list[list[dict[str, Any]]]:
        """For each plan, a row for each length."""
        numbers = {x.users for lengths in self.lengths for each in lengths for x in each.widths}
        headers = {number: f"{number:,} users" for number in sorted(numbers)}
        return [
            [
                {"ε": f"{plan.epsilon:g}", "length": length, "n-grams": _count(each.released)}
                | dict(zip(("50%", "99%"), map(_count, each.needed), strict=True))
                | dict.fromkeys(headers.values())
                | {headers[x.users]: f"{_count(x.low):,}–{_count(x.high):,}" for x in each.widths}
                for length, each in enumerate(lengths, 1)
            ]
            for plan, lengths in zip(self.plans, self.lengths, strict=True)
        ]


# What a forecast of a series is of.
_ALL_TAKE_PART = (
    "It is of a release in which all these users take part, such as the first. Who has used up "
    "releases_per_user is missing later: for such a release, give the smaller number of users "
    "that you expect by what is public."
)
# Rows of the table of widths of a count.
_PHRASES_OF_A_USER = (1, 4, 16, 64, 256, 1024)


class Planned(NamedTuple):
    """A plan, and what is known of it before a run; it prints as text.

    Attributes:
      whole: the plan of all releases together.
      plan: the plan of each of them; of a series the first one of `of_series`.
      forecast: what would be released; None unless public text was given.
      of_series: the plan of each release of a series, by the number of releases in which one user
        takes part at most; empty if the releases are of no series.
    """

    whole: Plan
    plan: Plan
    forecast: Forecast | None
    of_series: Mapping[int, Plan] = types.MappingProxyType({})

    def __repr__(self) -> str:
        title = f"{self.plan.program}, epsilon {self.plan.epsilon:g}, delta {self.plan.delta:g}"
        return "\n".join(lines_of(title, self.rows))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The forecast, or how many users an n-gram needs, or rounds of a set union, or widths.

        Without a forecast a series has the budget of each of its releases.
        """
        if self.forecast is not None:
            return self.forecast.rows
        if self.of_series:
            return [
                {"releases_per_user": times, "epsilon": plan.epsilon, "delta": plan.delta}
                for times, plan in self.of_series.items()
            ]
        if isinstance(self.plan, NgramsPlan):
            return _needs(self.plan)
        if isinstance(self.plan, SetUnionPlan):
            return [each._asdict() for each in self.plan.union_rounds]
        if isinstance(self.plan, PhraseCountsPlan):
            return _widths(self.plan)
        return []


def _widths(plan: PhraseCountsPlan) -> list[dict[str, Any]]:
    """Returns half the width of intervals, by how many phrases of the list a user has at most."""
    from beam_dpne.phrase_counts.estimates import expected_half

    return [
        {"phrases_of_a_user": most, "half_width": expected_half(plan, most)}
        for most in _PHRASES_OF_A_USER
    ]


def planned(made: Made, whole: Plan, showing: Showing) -> Planned:
    """Returns what is known of a plan, with a forecast if public text is given; no data are read.

    Args:
      made: the groups of parameters of a forecast.
      whole: the plan of all releases together.
      showing: how the operator is told and shown what happens.

    Raises:
      UsageError: parameters of a forecast are missing, or given without one.
    """
    asked = made[Planning]
    warn_of_large_delta(whole, showing)
    of_series = _plans_of_series(whole, asked)
    one = next(iter(of_series.values()), None) or plan_of_each(whole, asked.releases or 1)
    plans = _plans_to_forecast(whole, asked)
    if plans and of_series:
        plans = [each for each in of_series.values() if isinstance(each, NgramsPlan)]
    forecast = _forecast(made, plans, showing) if plans else None
    if forecast is not None and of_series:
        notes = [*forecast.notes, _ALL_TAKE_PART]
        times = [each for each, plan in of_series.items() if plan in forecast.plans]
        forecast = forecast._replace(releases_per_user=times, notes=notes)
    return Planned(whole, one, forecast, of_series)


def _plans_of_series(whole: Plan, asked: Planning) -> dict[int, Plan]:
    """Returns the plan of a release of a series, by the releases in which one user takes part.

    Raises:
      UsageError: There is no such series, or a parameter does not go with it.
    """
    if asked.releases_per_user is None:
        return {}
    if asked.releases is None:
        raise UsageError("`releases` must be given with `releases_per_user`.")
    check_releases_per_user(max(asked.releases_per_user), asked.releases)
    if asked.epsilons is not None:
        raise UsageError(
            "`epsilons` must be left out with `releases_per_user`, whose budget is epsilon."
        )
    if asked.output is not None:
        raise UsageError(
            "`output` must be left out with `releases_per_user`: a series gives each run its "
            "epsilon and delta, which a plan must not have."
        )
    return {
        times: plan_of_share(whole, share_of(whole.epsilon, whole.delta, times))
        for times in sorted(set(asked.releases_per_user))
    }


def plan_in(made: Made, program: str) -> Plan:
    """Returns the plan of a program.

    Raises:
      UsageError: The program was not the first argument, so that its parameters were not known.
    """
    kind = PLANS[program]
    if kind not in made:
        raise UsageError(
            f"`program` must be the first argument of the command, got {program} after others."
        )
    return made[kind]


def _plans_to_forecast(whole: Any, asked: Planning) -> list[NgramsPlan]:
    """Returns the plan of a release for each ε of the forecast; none if there is no forecast."""
    if asked.like is None:
        if asked.users or asked.documents_per_user or asked.epsilons or asked.known:
            raise UsageError(
                "`users`, `documents_per_user`, `epsilons` and `known` belong to a forecast; set "
                "`like=FILES`."
            )
        return []
    if asked.program != "ngrams":
        raise UsageError(f"`like` must be left out with {asked.program}: forecasts are of n-grams.")
    if asked.users is None:
        raise UsageError("`users` must be a public round number with --like.")
    if asked.known:
        whole.check_known()
    epsilons = asked.epsilons or (whole.epsilon / 2, whole.epsilon, 2 * whole.epsilon)
    plans = (dataclasses.replace(whole, epsilon=epsilon) for epsilon in sorted(set(epsilons)))
    return [plan_of_each(plan, asked.releases or 1) for plan in plans]


def _forecast(made: Made, plans: Sequence[NgramsPlan], showing: Showing) -> Forecast:
    asked = made[Planning]
    like = names_of(asked.like or "")
    users = asked.users or 0
    if tuple(like) == PROFILES and asked.documents_per_user is None:
        if asked.known:
            raise UsageError(
                "`known` must be left out with a built-in profile: give text for --like."
            )
        return _of_profile(read_profile(like[0]), plans, users)
    forecaster = _forecaster(made, plans[0], like, showing)
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
    return Forecast(users, plans, forecasts, notes)


def _of_profile(profile: Profile, plans: Sequence[NgramsPlan], users: int) -> Forecast:
    """Returns the forecasts of the plans whose budgets a profile has; it refuses if it has none."""
    found = [plan for plan in plans if profile.has_budget_of(plan)]
    notes = [profile.note]
    if left := [f"{plan.epsilon:.4g}" for plan in plans if plan not in found]:
        notes.append(
            f"No forecast for ε = {', '.join(left)}: {profile.budgets_told}. Public text of yours "
            "gives one."
        )
    of_plans = [profile.forecast(plan, users) for plan in found or plans]
    return Forecast(users, found, of_plans, notes)


def _forecaster(made: Made, plan: NgramsPlan, like: Sequence[str], showing: Showing) -> Forecaster:
    """Reads the public text, and deals its documents to made-up users if that is wanted."""
    asked = made[Planning]
    name = tokenizer_name(made)
    check_access(like, [])
    try:
        files, reading, _ = read_inputs(made[ReadOptions], like, name, showing=showing)
        tokenizer = with_rules(made[Tokenizing], name)
        with showing.progress(sum(file.size for file in files)):
            crowd = read_corpus(files, reading, tokenizer)
        known = _known(made, plan, files, reading, tokenizer) if asked.known else None
    except (InputError, FileNotFoundError) as error:
        raise UsageError(
            str(error).replace("`input`", "`like`").replace("`input=", "`like=")
        ) from None
    if asked.documents_per_user is not None:
        crowd = with_documents(crowd, asked.documents_per_user, np.random.default_rng([0, 0]))
    return Forecaster(crowd, asked.users or 0, known=known)


def _known(
    made: Made,
    plan: NgramsPlan,
    like: Sequence[InputFile],
    reading: ReadOptions,
    tokenizer: str | Tokenizer,
) -> KnownNgrams:
    """Returns the known n-grams of a forecast, whose text stands for the private one."""
    asked = made[Planning]
    lists = KnownLists(known=asked.known, known_min_count=asked.known_min_count)
    try:
        longest = plan.max_length
        return read_known(lists, longest, tokenizer, like, reading=reading)
    except UsageError:
        raise UsageError(
            "`known` must be another text than --like, which stands for the private one: with the same "
            "text a forecast promises too much. Split it."
        ) from None
    except (InputError, FileNotFoundError) as error:
        raise UsageError(str(error)) from None


def _needs(plan: NgramsPlan) -> list[dict[str, Any]]:
    """Returns how many users an n-gram needs if its holders have 10, 100 or 1,000 n-grams each."""
    needs = {number: typical_needs(plan, number) for number in NUMBERS}
    return [
        {"length": length}
        | {
            f"{number:,}: {level}": _count(users)
            for number, each in needs.items()
            for level, users in zip(("50%", "99%"), each[length - 1], strict=True)
        }
        for length in range(1, plan.max_length + 1)
    ]


def _count(value: float | None) -> int | None:
    """Returns a number with three digits, since a forecast has no more.

    >>> _count(13_331.2), _count(0.7), _count(None)
    (13300, 1, None)
    """
    return None if value is None else round(float(f"{value:.3g}"))
