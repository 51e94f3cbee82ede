"""The order of the steps of a run: the loop over lengths, and in each length the loop over rounds.

This order is written here only. What a step does is said by a `Steps` object: `TransformSteps` applies
transforms to PCollections (`PrivateNgrams`), `ArraySteps` calls the same kernels on arrays
(`in_memory`). So what tests and attacks find out about arrays holds for the pipeline.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from beam_dpne.ngrams.plan import PrivacyPlan

Users = TypeVar("Users")
Sent = TypeVar("Sent")
Histogram = TypeVar("Histogram")
Drawn = TypeVar("Drawn")
Standing = TypeVar("Standing")
Released = TypeVar("Released")


class Steps(Protocol[Users, Sent, Histogram, Drawn, Standing, Released]):
    """The steps of a run, each of which one way of computing does in its own manner.

    `previous` is S_{k−1}, and None at length 1; `present` are the sets of n-grams that were open or
    found after each of the rounds before.
    """

    def give_words(self, length: int) -> Released:
        """Returns a public vocabulary as S_1."""
        ...

    def unite_words(self, length: int, users: Users) -> Released:
        """Returns S_1 by a policy of set union."""
        ...

    def prune(
        self, length: int, users: Users, previous: Released, present: Standing | None
    ) -> Users:
        """Keeps of the users' positions what S_{k−1} leaves."""
        ...

    def limit(self, length: int, users: Users) -> Sent:
        """Returns equal weights for at most Δ_k n-grams of each user ("one_round")."""
        ...

    def spend(
        self,
        length: int,
        round_number: int,
        users: Users,
        previous: Released | None,
        present: Sequence[Standing],
    ) -> tuple[Sent, Users]:
        """Returns what users send in a round, and the users with what they have left."""
        ...

    def draw_spurious(self, length: int, previous: Released) -> Drawn:
        """Draws members of V_k as noise alone would release them."""
        ...

    def add_up(
        self,
        length: int,
        round_number: int,
        sent: Sent,
        drawn: Drawn | None,
        still_open: Histogram | None,
    ) -> Histogram:
        """Adds up weights; `drawn` is of the first round, `still_open` of later ones."""
        ...

    def decide_round(
        self, length: int, round_number: int, histogram: Histogram, previous: Released | None
    ) -> tuple[Standing, Histogram]:
        """Returns what is open or found after a round that is not the last, for users and sums."""
        ...

    def release(self, length: int, histogram: Histogram, previous: Released | None) -> Released:
        """Returns S_k from the histogram of the last round."""
        ...


def release_lengths(
    steps: Steps[Users, Sent, Histogram, Drawn, Standing, Released],
    plan: PrivacyPlan,
    users: Users,
) -> tuple[Released, ...]:
    """Returns S_1, …, S_T.

    References: DPNE Algorithm 1, "for k = 1 to T".
    """
    released: list[Released] = []
    present = None
    for length in range(1, plan.max_length + 1):
        previous = released[-1] if released else None
        if previous is not None:
            users = steps.prune(length, users, previous, present)
        if length not in plan.private_lengths:
            found = steps.give_words(length)
        elif length not in plan.strategy_lengths:
            found = steps.unite_words(length, users)
        elif plan.is_adaptive:
            rounds = plan.rounds_of(length)
            found, users, present = settle_length(steps, length, rounds, users, previous)
        else:
            found = release_length(steps, length, users, previous)
        released.append(found)
    return tuple(released)


def release_length(
    steps: Steps[Users, Sent, Histogram, Drawn, Standing, Released],
    length: int,
    users: Users,
    previous: Released | None,
) -> Released:
    """Returns S_k in the paper's one round, from positions and S_{k−1}.

    References: DPNE Algorithm 1, the body of the loop.
    """
    sent = steps.limit(length, users)
    drawn = None if previous is None else steps.draw_spurious(length, previous)
    return steps.release(length, steps.add_up(length, 1, sent, drawn, None), previous)


def settle_length(
    steps: Steps[Users, Sent, Histogram, Drawn, Standing, Released],
    length: int,
    rounds: int,
    users: Users,
    previous: Released | None,
) -> tuple[Released, Users, Standing | None]:
    """Settles a length in rounds, each on what the round before left open.

    Returns:
      S_k, the users with what they have left, and the set in whose terms their positions are.
    """
    drawn = None if previous is None else steps.draw_spurious(length, previous)
    present: list[Standing] = []
    still_open = None
    for number in range(1, rounds):
        sent, users = steps.spend(length, number, users, previous, present)
        histogram = steps.add_up(length, number, sent, drawn, still_open)
        stands, still_open = steps.decide_round(length, number, histogram, previous)
        present.append(stands)
        drawn = None  # Drawn n-grams are in the histogram since the first round.
    sent, users = steps.spend(length, rounds, users, previous, present)
    histogram = steps.add_up(length, rounds, sent, drawn, still_open)
    found = steps.release(length, histogram, previous)
    return found, users, present[-1] if present else None
