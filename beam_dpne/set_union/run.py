"""The run that releases items: its parameters, and how its users become a set in memory."""

import dataclasses
from collections.abc import Sequence

from beam_dpne.documents.cutting import of_laid_out
from beam_dpne.documents.private_run import PrivateRun
from beam_dpne.documents.tokenizers import Tokenizer
from beam_dpne.elements.batches import DocumentBlock
from beam_dpne.elements.rows import CountedItem, ReleasedItem
from beam_dpne.lists.known import KnownItems
from beam_dpne.lists.left_out import left_out_by, refuse_left_out
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.release.described import Form
from beam_dpne.set_union.elements import ItemSet, item_table, items_of_users
from beam_dpne.set_union.in_memory import UnionInMemory
from beam_dpne.set_union.ledger import set_union_contents
from beam_dpne.set_union.plan import SetUnionPlan


def _row_type(plan: SetUnionPlan) -> type[ReleasedItem] | type[CountedItem]:
    return CountedItem if plan.count_share else ReleasedItem


ITEMS = Form(_row_type, item_table, set_union_contents)


@dataclasses.dataclass(eq=False, kw_only=True)
class SetUnionRun(PrivateRun):
    """The parameters of a release of items; `PrivateSetUnion` documents them for its users."""

    plan: SetUnionPlan
    tokenizer: str | Tokenizer = "tokens"
    known: KnownItems | None = None

    def __post_init__(self):
        super().__post_init__()
        rules = left_out_by(self.tokenizer)
        if self.known is not None and rules is not None:
            # An item is one word, so that no phrase of several words can come of noise.
            words = self.known.words
            refuse_left_out([rules.of_words(words), rules.are_unfolded(words)])

    @property
    def form(self) -> Form:
        """How the released set becomes a release."""
        return ITEMS

    @property
    def max_tokens_per_user(self) -> int:
        """The largest number of a user's tokens that are used."""
        return self.plan.max_items_per_user

    def public_digest(self) -> str:
        """Returns the digest of the known items; "" if there are none."""
        # An empty list decides nothing, so that it must not change the noise either.
        return self.known.sha256 if self.known else ""

    def release_in_memory(
        self, partitions: list[list[DocumentBlock]], run_key: RunKey, workers: int
    ) -> Sequence[ItemSet]:
        """Returns the one released set, as `PrivateSetUnion` releases it."""
        cutting = self.cutting(run_key)
        users = list(of_laid_out(items_of_users, partitions, cutting, workers))
        partitions.clear()
        union = UnionInMemory(
            plan=self.plan, run_key=run_key, known=self.known or None, workers=workers
        )
        return [union.release(users)]
