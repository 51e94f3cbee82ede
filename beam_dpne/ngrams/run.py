"""The run that releases n-grams: its parameters, and how its users become sets in memory."""

import dataclasses

from beam_dpne.documents.private_run import PrivateRun
from beam_dpne.elements.batches import DocumentBlock
from beam_dpne.elements.rows import CountedGroupedNgram, CountedNgram, GroupedNgram, ReleasedNgram
from beam_dpne.lists.known import KnownNgrams
from beam_dpne.lists.left_out import left_out_by
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams.elements import GROUPED_ROOT, ROOT, GramSet
from beam_dpne.ngrams.in_memory import InMemory, release_partitions
from beam_dpne.ngrams.known import root_of
from beam_dpne.ngrams.ledger import ngrams_contents
from beam_dpne.ngrams.plan import NgramsPlan
from beam_dpne.ngrams.released_rows import ReleasedRows
from beam_dpne.reading.options import InputDescription
from beam_dpne.release.described import Form


def _row_type(plan: NgramsPlan) -> type[ReleasedNgram] | type[CountedNgram]:
    return CountedNgram if plan.count_share else ReleasedNgram


def _grouped_row_type(plan: NgramsPlan) -> type[GroupedNgram] | type[CountedGroupedNgram]:
    return CountedGroupedNgram if plan.count_share else GroupedNgram


NGRAMS = Form(_row_type, ReleasedRows.of, ngrams_contents)
GROUPED_NGRAMS = Form(_grouped_row_type, ReleasedRows.of, ngrams_contents)


@dataclasses.dataclass(eq=False, kw_only=True)
class NgramsRun(PrivateRun):
    """The parameters of a release of n-grams; `PrivateNgrams` documents them for its users."""

    plan: NgramsPlan
    known: KnownNgrams | None = None
    group_field: str | None = None

    def __post_init__(self):
        super().__post_init__()
        if self.known is not None:
            self.plan.check_known()
            self.known.check_left_out(self.tokenizer)
        if self.group_field is not None and self.plan.pruning == "single":
            raise ValueError("`pruning` must be 'both' with `group_field`, got `pruning='single'`.")

    @property
    def form(self) -> Form:
        """How the released sets become a release."""
        return GROUPED_NGRAMS if self.is_grouped else NGRAMS

    @property
    def row_description(self) -> InputDescription:
        """The fields by which the elements of a pipeline are read."""
        return dataclasses.replace(super().row_description, group_field=self.group_field)

    @property
    def start(self) -> GramSet:
        """The root without known n-grams, from which words begin."""
        return GROUPED_ROOT if self.is_grouped else ROOT

    @property
    def known_root(self) -> GramSet | None:
        """The root of the known n-grams that this run can use; None if there are none."""
        if not self.known:
            return None
        return root_of(self.known, self.plan.max_length, is_grouped=self.is_grouped)

    def public_digest(self) -> str:
        """Returns the digest of the known n-grams that decide the run; "" if there are none."""
        # An empty list decides nothing, so that it must not change the noise either.
        return self.known.sha256 if self.known and self.known_root else ""

    def release_in_memory(
        self, partitions: list[list[DocumentBlock]], run_key: RunKey, workers: int
    ) -> tuple[GramSet, ...]:
        """Returns S_1, …, S_T, as `PrivateNgrams` releases them."""
        loop = InMemory(
            plan=self.plan,
            run_key=run_key,
            root=self.known_root,
            left_out=left_out_by(self.tokenizer),
            start=self.start,
        )
        return release_partitions(loop, partitions, workers)
