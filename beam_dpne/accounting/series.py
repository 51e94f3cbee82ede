"""A series: a folder with a budget that releases share in each of which a user takes part, or does not.

It is a budget folder with one more idea. `series.json` states the budget (ε, δ), and that each user
takes part in so many releases at most. Each release has a number and a file: a note when its run
starts, and a copy of its ledger when it is published. What is public stands here; who took part stands
in a private folder (`documents.participants`).

The steps of a run, at any of which it may be killed, are:

1. The note is written.
2. The participants are recorded in the private folder, and a mark says so here.
3. The release is published.
4. A copy of the ledger replaces the note.

After step 1 alone nothing was published, so that the next run takes the same number. After step 2 the
release counts, whatever was published: its number is given, and its participants have taken part. A
run with the same run key and parameters repeats it, with the same participants and the same bytes.
Step 4 is made up for by the next run.

On a disk one run is at work at a time: it holds locks on both folders. On an object store several may
start with one number, of which one records its participants (see `documents.participants`). The others
are refused in step 2, and publish nothing.
"""

import contextlib
import dataclasses
import re
import shlex
import types
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from beam_dpne.accounting.budget import Cap, json_bytes, read_run, spent_text
from beam_dpne.accounting.composition import Total
from beam_dpne.accounting.population import (
    Counted,
    CountedLedger,
    Note,
    check_together,
    check_unit,
    read_counted,
    total_of,
)
from beam_dpne.documents.participants import (
    Participation,
    SeriesPlace,
    create_participants,
    mark_recorded,
    marked,
    open_participants,
)
from beam_dpne.documents.state_files import KEY_NAME, SERIES_NAME, as_budget_error, read_state
from beam_dpne.errors import BudgetError, UsageError
from beam_dpne.release.places import check_outside, real_path
from beam_dpne.storage.directories import (
    absolute_path,
    check_access,
    directory_at,
    keeps_files,
)
from beam_dpne.storage.objects import is_in_store
from beam_dpne.storage.paths import is_local
from beam_dpne.storage.private import take_lock

# The file of a release: its number, and a random name of the try that has it.
_RELEASE = re.compile(r"(\d{4,})-[0-9a-f]{12}\.json")
_SUFFIX = ".json"
_OLDER = (
    "Use the newest copies of both folders, and no others. Without them the series has no further "
    "release: make a new series, whose budget adds to that of this one."
)


class _File(msgspec.Struct, kw_only=True, tag_field="schema", tag="beam_dpne/series/1"):
    """The content of `series.json`."""

    what: str = (
        "The privacy budget of a series of releases, in each of which a user takes part or does not. "
        "Every other file in this folder whose name ends in .json is the ledger of a release of the "
        "series, or the note of a run that has started."
    )
    id: Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}\Z")]
    releases: Annotated[int, Meta(ge=1)]
    releases_per_user: Annotated[int, Meta(ge=1)]
    epsilon: Annotated[float, Meta(gt=0)]
    delta: Annotated[float, Meta(gt=0, lt=1)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Series:
    """A series; its releases are read from its folder each time.

    Attributes:
      path: Folder of the series.
      id: Random name of the series.
      releases: Largest number of its releases.
      releases_per_user: Largest number of them in which one user takes part.
      cap: (ε, δ) of all its releases together.
    """

    path: str
    id: str
    releases: int
    releases_per_user: int
    cap: Cap

    def place(self, number: int) -> SeriesPlace:
        """Returns the place of the release of a number."""
        return SeriesPlace(
            id=self.id,
            number=number,
            releases=self.releases,
            releases_per_user=self.releases_per_user,
            epsilon=self.cap.epsilon,
            delta=self.cap.delta,
        )

    def runs(
        self, recorded: Mapping[int, str] = types.MappingProxyType({})
    ) -> dict[int, tuple[str, Counted]]:
        """Returns the name and the note or ledger of each release, by its number and in order.

        Of several tries of one number the one is returned whose participants are recorded. If those of
        none are, none has published anything.

        Args:
          recorded: Releases whose participants are in the private folder, with the names of files.

        Raises:
          BudgetError: A file is missing, cannot be read, or is not of this series.
        """
        marks = marked(self.path)
        tries = self._tries()
        found: dict[int, tuple[str, Counted]] = {}
        for number, runs in sorted(tries.items()):
            decided = {name for name, run in runs.items() if isinstance(run, CountedLedger)}
            decided |= {each[number] for each in (marks, recorded) if number in each}
            if len(decided) > 1:
                raise BudgetError(
                    f"The series {self.path} must have one run for each number, but {number} has two. "
                    f"{_OLDER}"
                )
            name = decided.pop() if decided else max(runs)
            if name in runs:
                found[number] = (name, runs[name])
        if [*found] != [*range(1, max([0, *tries, *marks]) + 1)]:
            raise BudgetError(
                f"The series {self.path} must have the files of all its releases, but has only those "
                f"of {', '.join(map(str, found))}. {_OLDER}"
            )
        return found

    def _tries(self) -> dict[int, dict[str, Counted]]:
        """Returns the notes and ledgers in the folder by number and name."""
        directory = directory_at(self.path)
        with as_budget_error(f"the series {self.path} cannot be read"):
            files = sorted(directory.names())
        found: dict[int, dict[str, Counted]] = {}
        for file in files:
            if not file.endswith(_SUFFIX) or file == SERIES_NAME or file.startswith("."):
                continue
            named = _RELEASE.fullmatch(file)
            run = read_run(directory, file)
            number = int(named[1]) if named else 0
            if run.series != self.place(number):
                raise BudgetError(
                    f"{directory.path_of(file)} must be a release of this series, which has written "
                    "it. Take it out of the folder; account adds up releases of several series."
                )
            found.setdefault(number, {})[file.removesuffix(_SUFFIX)] = run
        return found

    def total(self, runs: Mapping[int, tuple[str, Counted]]) -> Total | None:
        """Returns what one user has spent at most at the δ of the series; None without releases."""
        return total_of(dict(runs.values()), self.cap.delta) if runs else None

    def counted(self, participants: str) -> dict[int, tuple[str, Counted]]:
        """Returns the releases that count, after checks that both folders fit together.

        A release counts if its participants are recorded. One that has only started has published
        nothing.

        Args:
          participants: The private folder.

        Raises:
          BudgetError: A folder is missing, damaged, of another series, or older than the other one.
        """
        # First what is written later, for runs that are at work meanwhile.
        marks = marked(self.path)
        recorded = open_participants(participants, self.id).recorded()
        runs = self.runs(recorded)
        for number in recorded:
            if number not in runs:
                raise BudgetError(
                    f"`series` and `participants` must fit together, but {participants} has "
                    f"participants of release {number} that {self.path} does not know. {_OLDER}"
                )
        for number, (_, run) in runs.items():
            is_old = number < len(runs) or number in marks or isinstance(run, CountedLedger)
            if number not in recorded and is_old:
                raise BudgetError(
                    f"`participants` must be the newest copy, but {participants} has no "
                    f"participants of release {number}, which {self.path} has. {_OLDER}"
                )
        return {number: found for number, found in runs.items() if number in recorded}

    def start(self, participation: Participation, note: Note) -> None:
        """Notes that a run starts, or refuses it.

        Args:
          participation: The place of the release, and the name of its file.
          note: What is noted of the run.

        Raises:
          BudgetError: The run has another place now, or another unit or users than the releases before,
            knows a release about the same people that is not of the series, or exceeds the budget.
        """
        counted = self.counted(participation.participants)
        number = participation.place.number
        name = participation.name
        earlier = {each: found for each, found in counted.items() if each != number}
        is_again = number in counted and counted[number][0] == name
        if not is_again and number != len(counted) + 1:
            raise BudgetError(
                f"another run of the series {self.path} was at work meanwhile. Start this one again."
            )
        for each, (other, _) in counted.items():
            # A run was killed between the list of its participants and the mark.
            mark_recorded(self.path, each, other)
            self._settle_late(each, counted)
        if number in counted and isinstance(counted[number][1], CountedLedger):
            # It is the same release again, whose ledger stays.
            return
        self._check(note, earlier)
        self._remove_lost(counted)
        self._write(name, json_bytes(note))

    def settle(self, participation: Participation, found: CountedLedger) -> None:
        """Replaces the note of a run by a copy of the ledger that the run has published.

        Raises:
          BudgetError: The ledger is not of this release; or the release is another one than that of an
            earlier run under its key (see `population.check_together`).
        """
        if found.series != participation.place:
            raise BudgetError(
                f"{found.path} must be of release {participation.place.number} of the series."
            )
        number = participation.place.number
        name, run = self.runs().get(number, ("", None))
        if name != participation.name:
            raise BudgetError(
                f"release {number} of the series {self.path} must be that of this run, but it is that "
                f"of another one. {_OLDER}"
            )
        if isinstance(run, CountedLedger):
            check_together({name: run, found.path: found})
        else:
            self._write(name, found.data)

    def forget(self, participation: Participation) -> bool:
        """Removes the note of a run that has failed before its participants were recorded.

        Returns:
          Whether the run does not count; if it does, nothing is changed.
        """
        with contextlib.suppress(BudgetError):
            counted = self.counted(participation.participants)
            name, _ = counted.get(participation.place.number, ("", None))
            if name != participation.name:
                # Without a lock a worker may go on, and record participants: they need the note.
                if is_local(self.path) and is_local(participation.participants):
                    self._remove([participation.name])
                return True
        return False

    def _settle_late(self, number: int, counted: dict[int, tuple[str, Counted]]) -> None:
        """Replaces the note of a run that was killed when it had published, if its release is there."""
        name, run = counted[number]
        if not isinstance(run, Note) or not run.output:
            return
        with contextlib.suppress(BudgetError):
            found = read_counted(run.output)
            if found.series == run.series and run.run_key in (None, found.run_key):
                self._write(name, found.data)
                counted[number] = (name, found)

    def _check(self, note: Note, earlier: Mapping[int, tuple[str, Counted]]) -> None:
        """Raises BudgetError if a run does not belong to the releases before, or exceeds the budget."""
        others = [run for _, run in earlier.values()]
        check_unit(note.unit, [run.unit for run in others])
        if named := {run.users for run in others} - {note.users}:
            raise BudgetError(
                "all releases of a series must name their users in one way, since digests of ids are "
                f"compared: {', '.join(map(str, named))} in the releases before, and here {note.users}."
            )
        ledgers = {run.sha256 for run in others if isinstance(run, CountedLedger)}
        if not {*note.same_people} <= ledgers:
            raise BudgetError(
                "`known_same_people` and `phrases_same_people` must be left out, or the releases that "
                "they are about must be of the series: what others have spent is not in its budget."
            )
        together = {**dict(earlier.values()), "this run": note}
        total = total_of(together, self.cap.delta)
        if total.epsilon > self.cap.epsilon:
            raise BudgetError(
                f"The series {self.path} does not allow this run: it has epsilon {self.cap.epsilon:g} "
                f"at delta {self.cap.delta:g}, and the total would be {spent_text(total)}."
            )

    def _remove_lost(self, counted: Mapping[int, tuple[str, Counted]]) -> None:
        """Removes notes of runs whose number another run has; where it is free, one may be at work."""
        for number, runs in self._tries().items():
            if number in counted:
                self._remove([name for name in runs if name != counted[number][0]])

    def _remove(self, names: Iterable[str]) -> None:
        directory = directory_at(self.path)
        directory.names()  # A directory of a bucket deletes only what it has seen.
        directory.remove([name + _SUFFIX for name in names])

    def _write(self, name: str, data: bytes) -> None:
        with as_budget_error(f"the series {self.path} cannot be written"):
            directory_at(self.path).put(name + _SUFFIX, data)


def new_name(number: int) -> str:
    """Returns a name for the file of a release, which no other try has."""
    return f"{number:04}-{uuid.uuid4().hex[:12]}"


def create_series(
    path: str,
    participants: str,
    *,
    releases: int,
    releases_per_user: int,
    epsilon: float,
    delta: float,
) -> Series:
    """Makes the two folders of a new series.

    Args:
      path: New folder of the series, whose files are public.
      participants: New folder for the participants, as secret as the data.
      releases: Largest number of releases.
      releases_per_user: Largest number of releases in which one user takes part.
      epsilon: ε of all releases together.
      delta: δ of all releases together.

    Raises:
      BudgetError: A folder is there, or cannot be made.
      UsageError: A user may take part in more releases than there are, or a folder is in a release or
        in the other one, or neither on a disk nor on an object store.
    """
    check_releases_per_user(releases_per_user, releases)
    check_series_places(path, participants)
    check_access([], [path, participants])
    name = uuid.uuid4().hex
    directory = directory_at(path)
    with as_budget_error(f"the series {path} cannot be written"):
        if directory.names():
            raise BudgetError(f"`series` must be a new or empty folder, got {path}.")
        # First the private folder: without it, the series would refuse every run.
        create_participants(participants, name)
        file = _File(
            id=name,
            releases=releases,
            releases_per_user=releases_per_user,
            epsilon=epsilon,
            delta=delta,
        )
        directory.replace(SERIES_NAME, json_bytes(file), seen=None)
        if not (keeps_files(path, SERIES_NAME) and keeps_files(participants, KEY_NAME)):
            raise BudgetError("`series` and `participants` must be on stores that keep conditions.")
    return open_series(path)


def check_releases_per_user(releases_per_user: int, releases: int) -> None:
    """Checks in how many releases of a series a user may take part.

    Raises:
      UsageError: They are more than the series has.
    """
    if releases_per_user > releases:
        raise UsageError(
            "`releases_per_user` must be at most `releases`, got "
            f"`releases_per_user={releases_per_user}` and `releases={releases}`."
        )


def check_series_places(path: str, participants: str) -> None:
    """Checks that the two folders of a series are where they can be, and neither in the other.

    Raises:
      UsageError: One is on a file system that neither locks folders nor has conditional writes, in a
        release, or in the other one.
    """
    for name, folder in (("series", path), ("participants", participants)):
        if not is_local(folder) and not is_in_store(folder):
            raise UsageError(
                f"`{name}` must be a folder on this machine or on gs://, s3:// or azfs://, got "
                f"`{name}={folder}`: two runs at once could take one number of the series there."
            )
        check_outside(name, folder)
    public = real_path(path) + "/"
    private = real_path(participants) + "/"
    if public.startswith(private) or private.startswith(public):
        raise UsageError(
            "`participants` must be outside the folder of the series, and the series outside of "
            f"it, got `participants={participants}` and `series={path}`: one is as secret as the "
            "data, and the other is public."
        )


def open_series(path: str) -> Series:
    """Returns the series in a folder; its releases are not read.

    Raises:
      BudgetError: There is none, or it is damaged.
    """
    command = (
        f"beam-dpne series create {shlex.quote(path)} --participants DIR --releases N "
        "--releases_per_user C --epsilon E --delta D"
    )
    file = read_state(path, SERIES_NAME, _File, option="series", command=command)
    return Series(
        path=absolute_path(path),
        id=file.id,
        releases=file.releases,
        releases_per_user=file.releases_per_user,
        cap=Cap(epsilon=file.epsilon, delta=file.delta),
    )


def with_share(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns parameters of a run of a series with an ε and a δ, with which its other ones are checked.

    No run has them: `jobs.series` replaces them by those of its share of the budget.

    Raises:
      UsageError: ε or δ is given.
      BudgetError: There is no series.
    """
    series = open_series(values["series"])
    cap = series.cap
    for name in ("epsilon", "delta"):
        if values.get(name) is not None:
            raise UsageError(
                f"`{name}` must be left out with series, got `{name}={values[name]}`: the series gives "
                f"each release its share of ε = {cap.epsilon:g} and δ = {cap.delta:g}."
            )
    # No plan refuses an ε of 1 as too small for it; whether one fits the share is found later.
    return {
        **values,
        "epsilon": max(1.0, cap.epsilon),
        "delta": cap.delta / series.releases_per_user,
    }


@contextlib.contextmanager
def only_run_of(path: str, participants: str) -> Iterator[None]:
    """Keeps other runs from a series while this one is at work, as far as its folders are on a disk.

    Both folders are locked, since a copy of one of them would have a lock of its own. On an object
    store conditional writes decide which of two runs has a number, when it is taken.

    Args:
      path: Folder of the series.
      participants: The private folder.

    Raises:
      BudgetError: Another run is at work, or the file system has no locks.
    """
    with contextlib.ExitStack() as stack:
        for name, folder in (("series", path), ("participants", participants)):
            if not is_local(folder):
                continue
            try:
                handle = take_lock(stack, real_path(folder), waits=False)
            except BlockingIOError:
                raise BudgetError(
                    "another run of the series is at work. Wait until it has ended; who takes part in "
                    "this one follows from who took part in that one."
                ) from None
            if handle is None:
                raise BudgetError(
                    f"`{name}` must be a folder that can be locked, got {folder}. Put it on a disk of "
                    "this machine."
                )
        yield
