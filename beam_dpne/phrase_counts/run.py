"""The run that counts users of a list: its parameters, and how its users become numbers in memory."""

import dataclasses
from collections.abc import Iterable, Sequence

from beam_dpne.counts.measuring import Held
from beam_dpne.documents.cutting import of_laid_out
from beam_dpne.documents.private_run import PrivateRun
from beam_dpne.elements import progress
from beam_dpne.elements.batches import DocumentBlock, RowSums, UserBatch
from beam_dpne.elements.rows import GroupedPhraseCount, PhraseCount
from beam_dpne.lists.phrases import PhraseList
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.phrase_counts.elements import PhraseNumbers, phrase_table
from beam_dpne.phrase_counts.estimates import choose_bound, intervals, widths
from beam_dpne.phrase_counts.ledger import phrase_contents
from beam_dpne.phrase_counts.plan import PhraseCountsPlan
from beam_dpne.phrase_counts.sums import (
    Bound,
    held_phrases,
    noisy_excess,
    noisy_numbers,
    noisy_sizes,
    sum_excess,
    sum_numbers,
    sum_sizes,
)
from beam_dpne.reading.options import InputDescription
from beam_dpne.release.described import Form


def _row_type(_: PhraseCountsPlan) -> type[PhraseCount]:
    return PhraseCount


def _grouped_row_type(_: PhraseCountsPlan) -> type[GroupedPhraseCount]:
    return GroupedPhraseCount


PHRASES = Form(_row_type, phrase_table, phrase_contents)
GROUPED_PHRASES = Form(_grouped_row_type, phrase_table, phrase_contents)


@dataclasses.dataclass(eq=False, kw_only=True)
class PhraseCountsRun(PrivateRun):
    """The parameters of a count; `CountPhrases` documents them for its users."""

    plan: PhraseCountsPlan
    phrases: PhraseList
    group_field: str | None = None

    def __post_init__(self):
        super().__post_init__()
        if len(self.phrases) > self.plan.max_phrases:
            raise ValueError(
                f"`phrases` must be at most `max_phrases={self.plan.max_phrases}`, got "
                f"{len(self.phrases)}."
            )
        if (self.phrases.groups is not None) != self.is_grouped:
            raise ValueError("`phrases` must have groups if, and only if, `group_field` is given.")

    @property
    def row_description(self) -> InputDescription:
        """The fields by which the elements of a pipeline are read."""
        return dataclasses.replace(super().row_description, group_field=self.group_field)

    @property
    def form(self) -> Form:
        """How the numbers become a release."""
        return PHRASES if self.phrases.groups is None else GROUPED_PHRASES

    def public_digest(self) -> str:
        """Returns the digest of the list."""
        return self.phrases.sha256

    def release_in_memory(
        self, partitions: list[list[DocumentBlock]], run_key: RunKey, workers: int
    ) -> Sequence[PhraseNumbers]:
        """Returns the numbers, as `CountPhrases` releases them."""

        def held(batch: UserBatch) -> Held:
            return held_phrases(batch, self.phrases)

        users = list(of_laid_out(held, partitions, self.cutting(run_key), workers))
        partitions.clear()
        members = len(self.phrases)
        sizes = (sum_sizes(each, members) for each in users)
        bound = bound_of(sizes, members, self.plan, run_key)
        found = numbers_of(
            (sum_excess(each, bound) for each in users),
            (sum_numbers(each, bound) for each in users),
            self.phrases,
            bound=bound,
            plan=self.plan,
            run_key=run_key,
        )
        progress.enter(progress.RELEASED)
        return [found]


def bound_of(
    sizes: Iterable[RowSums], members: int, plan: PhraseCountsPlan, run_key: RunKey
) -> Bound:
    """Returns the bound, from the exact sizes of all users with noise.

    Args:
      sizes: exact sums over users, cut in any way.
      members: the number of phrases.
      plan: the plan of the run.
      run_key: bound to the run's parameters.
    """
    noisy = noisy_sizes(sizes, members, plan, run_key)
    return choose_bound(noisy, members, plan)


def numbers_of(
    excess: Iterable[RowSums],
    numbers: Iterable[RowSums],
    phrases: PhraseList,
    *,
    bound: Bound,
    plan: PhraseCountsPlan,
    run_key: RunKey,
) -> PhraseNumbers:
    """Returns the numbers of all phrases with their intervals, from exact sums with noise.

    Args:
      excess: exact sums over users, as `sum_excess` makes them, cut in any way.
      numbers: those of `sum_numbers`.
      phrases: the list.
      bound: the bound, which was chosen from noisy sizes.
      plan: the plan of the run.
      run_key: bound to the run's parameters.
    """
    measured = noisy_excess(excess, bound, plan, run_key) if bound.excess_share else 0.0
    found = widths(measured, bound, plan)
    noisy = noisy_numbers(numbers, bound, plan, run_key)
    return PhraseNumbers(
        ngrams=phrases.texts,
        groups=phrases.groups,
        users=intervals(noisy, found, plan.public_user_count).reshape(-1),
        bound=bound.most,
        excess_share=bound.excess_share,
        stddev=found.stddev,
        shortfall=found.shortfall,
        shortfall_stddev=found.shortfall_stddev,
    )
