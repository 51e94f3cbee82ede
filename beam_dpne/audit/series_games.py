"""The game of a series: one user who is in the input of every release, or of none.

In each release of a series a user may take part as often as the series allows, and is then left out.
The two worlds differ in one user, who has records in every release. Who takes part is decided by the
functions of the product, on a private folder of participants. What the attacker sees of one release is
that of the game of noisy numbers of the plan; releases in which the user does not take part are those
of the world without the user. The attacker adds up what releases say, since they are independent given
who takes part, and sees how many first releases together say most.

The claim is that of the series: ε and δ of all its releases.
"""

import functools
import pathlib
import tempfile
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from beam_dpne.audit.games import MECHANISM, Claim, Game, Play, Seen
from beam_dpne.documents.participants import Participation, SeriesPlace, create_participants
from beam_dpne.mechanism.randomness import RunKey

# The name of the made-up series; its key is fresh, and changes nothing that is seen.
_ID = "0" * 32
_RECORDED = "One release is published before those who take part are recorded, and fails."
_ONCE_MORE = "Users take part in one release more."


class AuditedSeries(NamedTuple):
    """A series that is attacked.

    Attributes:
      releases: the number of its releases.
      releases_per_user: in how many of them a user takes part at most.
    """

    releases: int
    releases_per_user: int


def series_game(of_release: Game, claim: Claim, series: AuditedSeries) -> Game:
    """Returns the game of a series.

    Args:
      of_release: the game of one release, under the plan of each. Its attacker sees the logarithm of a
        likelihood ratio, up to a factor and a constant.
      claim: of the whole series, for what the attacker sees.
      series: the series.
    """
    play = functools.partial(_play, of_release.plays[MECHANISM], series)
    return Game(
        name=f"{of_release.name}, in a series",
        claim=claim,
        plays={
            MECHANISM: play,
            _ONCE_MORE: functools.partial(play, more=1),
            _RECORDED: functools.partial(play, is_recorded_late=True),
        },
    )


def _play(
    of_release: Play,
    series: AuditedSeries,
    runs: int,
    key: RunKey,
    *,
    more: int = 0,
    is_recorded_late: bool = False,
) -> Seen:
    """Plays a series for so many users in each world, each of whom is attacked alone.

    Args:
      of_release: plays one release.
      series: the series.
      runs: the number of users in each world.
      key: of all releases.
      more: in how many releases more users take part, a planted mistake beyond 0.
      is_recorded_late: whether the first release is published, and fails before its participants are
        recorded, so that it is made again; a planted mistake.
    """
    users = pa.array([f"user {number}" for number in range(runs)])
    with_user: list[np.ndarray] = []
    without: list[np.ndarray] = []
    tries = [*range(1, series.releases + 1)]
    if is_recorded_late:
        tries = [1, *tries]
    with tempfile.TemporaryDirectory() as folder:
        private = f"{folder}/private"
        create_participants(private, _ID)
        for place, number in enumerate(tries):
            participation = _participation(series, number, folder, private, more)
            digests = participation.digests(users)
            may = participation.may_take_part(digests)
            is_lost = is_recorded_late and place == 0
            if not is_lost:
                participation.record([digests[may]], texts=[])
            own = key.bound_to(f"release {place}")
            seen = of_release(runs, own.bound_to("taking part"))
            left_out = of_release(runs, own.bound_to("left out"))
            with_user.append(np.where(may, seen.with_user[:, 0], left_out.without[:, 0]))
            without.append(seen.without[:, 0])
    return Seen(*(np.cumsum(each, axis=0).T for each in (with_user, without)))


def _participation(
    series: AuditedSeries, number: int, folder: str, private: str, more: int
) -> Participation:
    """Returns who may take part in a release."""
    name = f"{number:04}-{0:012x}"
    # The note of the run, as a run writes it before it records who takes part.
    pathlib.Path(folder, f"{name}.json").touch()
    place = SeriesPlace(
        id=_ID,
        number=number,
        releases=series.releases,
        releases_per_user=series.releases_per_user + more,
        epsilon=1.0,
        delta=1e-6,
    )
    return Participation(place=place, path=folder, participants=private, name=name)
