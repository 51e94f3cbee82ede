"""The series of a run: its share of the budget, its number, and what is noted of it."""

import contextlib
import dataclasses
import datetime
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from beam_dpne.accounting.composition import plan_of_share, share_of
from beam_dpne.accounting.expense import expense_of_plan
from beam_dpne.accounting.population import CountedLedger, Note, read_counted
from beam_dpne.accounting.series import (
    Series,
    check_series_places,
    new_name,
    only_run_of,
    open_series,
)
from beam_dpne.documents.participants import Participation, SeriesPlace
from beam_dpne.documents.private_run import PrivateRun
from beam_dpne.errors import BudgetError, UsageError
from beam_dpne.jobs.budgets import key_digests, same_people_of
from beam_dpne.jobs.made import Made
from beam_dpne.jobs.parameters import Running, Writing
from beam_dpne.jobs.showing import Showing
from beam_dpne.reading.options import InputDescription
from beam_dpne.release.ledger import user_sentence
from beam_dpne.release.places import check_no_release_in, check_not_below, check_outside
from beam_dpne.release.schema import ReleaseNotes
from beam_dpne.storage.directories import absolute_path
from beam_dpne.storage.objects import is_in_store
from beam_dpne.storage.paths import is_local


def check_series(
    running: Running, output: str | None, *, is_here: bool, is_template: bool = False
) -> None:
    """Checks the folders of a series, and that the run can be of one.

    Args:
      running: the parameters that name the folders.
      output: the directory of the release, or None if it is not known.
      is_here: whether this process does all the work of the run, alone or as the one worker of an
        engine, or forks of it do. Workers elsewhere need folders that each of them reaches, and on
        which one of two runs has a number: those on object stores. The locks of a disk that machines
        share may be those of one machine, and its files may be seen late on another one.
      is_template: whether a classic template is made of the run.

    Raises:
      UsageError: One folder is missing, in a release, or where workers may not reach it; or the run has
        another budget, or is a classic template.
    """
    if running.series is None and running.participants is None:
        return
    if running.series is None or running.participants is None:
        raise UsageError(
            "`series` and `participants` must be given together, the folder of the series and its "
            "private folder."
        )
    if running.budget is not None:
        raise UsageError(
            "`budget` must be left out with series, which keeps its own. Add ledgers of the series to "
            "another budget: beam-dpne account --budget FOLDER --add RELEASE."
        )
    if is_template:
        raise UsageError(
            "`series` must be left out with --template_location: a template is run many times, and is "
            "one release of the series, whose number would be frozen in it."
        )
    if not (is_here or (is_in_store(running.series) and is_in_store(running.participants))):
        raise UsageError(
            "`series` and `participants` must both be on an object store that all workers reach, got "
            f"`series={running.series}` and `participants={running.participants}`: the engine has "
            "workers elsewhere, one of which records who takes part. Or run without --runner, with "
            "--runner DirectRunner, or on an engine on this machine with --environment_type LOOPBACK."
        )
    check_series_places(running.series, running.participants)
    for name, folder in (("series", running.series), ("participants", running.participants)):
        check_outside(name, folder, output)
        if output is not None:
            check_not_below(name, folder, output)
            check_no_release_in(name, folder, output)


def placed(private: PrivateRun, running: Running) -> PrivateRun:
    """Returns a run with its place in its series, and with its share of the budget.

    Under a run key with which a release of the series was made, or tried, with the same parameters, it
    is that release again. Else it is the next one.

    Raises:
      UsageError: The input names no users, or no release is possible within the budget.
      BudgetError: The series has had all its releases, or one under this run key with other parameters,
        or a folder is missing, damaged, of another series, or older than the other one.
    """
    refuse_records_without_users(private.described or private.row_description)
    series = open_series(running.series or "")
    participants = absolute_path(running.participants or "")
    counted = series.counted(participants)
    share = share_of(series.cap.epsilon, series.cap.delta, series.releases_per_user)

    def at(number: int, name: str) -> PrivateRun:
        plan = plan_of_share(private.plan, share)
        participation = Participation(
            place=series.place(number), path=series.path, participants=participants, name=name
        )
        return dataclasses.replace(private, plan=plan, participation=participation)

    own = key_digests(private)
    of_this_key = [
        (number, name, run.run_key)
        for number, (name, run) in counted.items()
        if own is not None and run.run_key and run.run_key.commitment == own.commitment
    ]
    for number, name, run_key in of_this_key:
        again = at(number, name)
        if key_digests(again) == run_key:
            return again
    number = len(counted) + 1
    if of_this_key:
        raise BudgetError(
            f"release {of_this_key[-1][0]} of the series was made or tried under this run key with "
            f"other parameters or lists, so that this run would not repeat it: it would be "
            f"release {number}, and spend as much again. Give the parameters of the first try, or, "
            "for another release, a fresh run key."
        )
    if number > series.releases:
        raise BudgetError(
            f"`series` must have a release left, but {running.series} has had all its "
            f"{series.releases}. Make a new series, whose budget adds to that of this one."
        )
    return at(number, new_name(number))


def refuse_records_without_users(described: InputDescription) -> None:
    """Raises UsageError if records name no users, so that none could be found in two releases."""
    if described.format == "sequences" or "record_is_user" in dict(described.details):
        raise UsageError(
            "`series` must be left out if records have no users, as with `record_is_user`: nobody "
            "could be found in two releases. Name a `user_field`."
        )


def _note_of(made: Made, private: PrivateRun) -> Note:
    """Returns what is noted of a run that has its place in a series."""
    output = made[Writing].output if Writing in made else ""
    return Note(
        program=private.plan.program,
        output=absolute_path(output).rstrip("/") if output else "",
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        unit=made[ReleaseNotes].unit if ReleaseNotes in made else None,
        expense=expense_of_plan(private.plan),
        same_people=same_people_of(made),
        run_key=key_digests(private),
        series=None if private.participation is None else private.participation.place,
        users=user_sentence(private.described),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class StartingParticipation(Participation):
    """The participation in a release that starts when its participants are recorded.

    It is for a step of somebody's pipeline, whose launcher is not ours and cannot keep a lock for the
    time of the run. One step has the lock while it writes the note and records who takes part, and
    nothing is published before its end. That is enough:

    - Two runs that took one number when they were built: the second one to get the lock finds the first
      one's list, and is refused before it records or publishes anything. Without locks, on an object
      store, the second one to make that list is refused.
    - A run that starts after that step finds its list, and so takes the next number, whether the first
      one has published, still works, or was killed.
    - Whom a run leaves out follows from the lists of the numbers before its own, which are whole when
      it takes its number and never change, so that they may be read before the step.
    - The step may be repeated: after its end the note and the list are those of this run, with the same
      texts, and before its end there is no list and the number is free.

    Attributes:
      note: What is noted of the run.
    """

    note: Note

    def __reduce__(self):
        return _starting, (self.place, self.path, self.participants, self.name, self.note)

    def record(self, users: Sequence[np.ndarray], texts: Sequence[np.ndarray]) -> None:
        """Notes the run, and records its participants, while no other run of the series is at work.

        Raises:
          BudgetError: The series does not allow the run, or another one is at work, or as of
            `Participation.record`.
        """
        with only_run_of(self.path, self.participants):
            open_series(self.path).start(self, self.note)
            super().record(users, texts)


def _starting(
    place: SeriesPlace, path: str, participants: str, name: str, note: Note
) -> StartingParticipation:
    return StartingParticipation(
        place=place, path=path, participants=participants, name=name, note=note
    )


def starting(made: Made, private: PrivateRun) -> PrivateRun:
    """Returns a run with its place in its series, which starts when its participants are recorded.

    Args:
      made: the groups of parameters of the run, which name the series.
      private: the run.

    Raises:
      UsageError, BudgetError: as of `placed`.
    """
    run = placed(private, made[Running])
    own = run.participation
    if own is None:
        return run
    note = _note_of(made, run)
    participation = _starting(own.place, own.path, own.participants, own.name, note)
    return dataclasses.replace(run, participation=participation)


def settle(participation: Participation, output: str, tell: Callable[[str], None]) -> None:
    """Puts the ledger of a published release into its series, or tells why that is not possible."""
    try:
        open_series(participation.path).settle(participation, read_counted(output))
    except BudgetError as error:
        # A release that was published is whole, whatever its series says of it.
        tell(str(error))


class Started(NamedTuple):
    """A run of a series whose note is written.

    Attributes:
      series: the series.
      participation: the place of the run in it.
    """

    series: Series
    participation: Participation

    def settle(self, ledger: CountedLedger) -> None:
        """Puts the ledger of the release in the place of the note.

        Raises:
          BudgetError: It is not a release of this run, or voids the guarantee.
        """
        self.series.settle(self.participation, ledger)


@contextlib.contextmanager
def started_series(made: Made, private: PrivateRun, showing: Showing) -> Iterator[Started | None]:
    """Notes a run in its series, if it has one, for whose time no other run of it starts.

    Of a run that failed it tells whether it counts.

    Raises:
      BudgetError: The series does not allow the run, which has not started.
    """
    participation = private.participation
    if participation is None:
        yield None
        return
    series = open_series(participation.path)
    with only_run_of(participation.path, participation.participants):
        series.start(participation, _note_of(made, private))
        try:
            yield Started(series, participation)
        except BaseException:
            showing.tell(_left(series, participation))
            raise


def _left(series: Series, participation: Participation) -> str:
    """Returns what is told of a run that failed, whose note is removed if it does not count."""
    number = participation.place.number
    if series.forget(participation):
        told = (
            "the series does not count this run: nothing was published, and nobody has taken part."
        )
        if is_local(participation.participants):
            return told
        return f"{told} A job of it that is still at work makes it count when it records them."
    return (
        f"the series counts release {number}, since those who take part in it are recorded. A run with "
        "the run key, the input and the parameters of its first try repeats it."
    )
