"""What all programs are given: the parameters of a run that turns documents into a release.

Each program adds its own parameters (`NgramsRun`, `SetUnionRun`, `BayesianRun`), and says how users
become released sets in memory. Its transform has the same parameters, and does the same as steps of a
pipeline.
"""

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any, cast

from beam_dpne.documents.cutting import Cutting
from beam_dpne.documents.participants import Participation
from beam_dpne.documents.rows import checked_names
from beam_dpne.documents.run_keys import RunKeys, key_context, require_identified
from beam_dpne.documents.tokenizers import Tokenizer, resolve_tokenizer
from beam_dpne.elements.batches import DocumentBlock
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.reading.options import InputDescription, names_of, one_or_several
from beam_dpne.validation import check_integer

# Fields whose types are checked, since another one would fail far from its cause; a type that is named
# by a string is of a module that need not be loaded.
_CHECKED = ("plan", "run_key", "public", "known")


@dataclasses.dataclass(eq=False, kw_only=True)
class PrivateRun(abc.ABC):
    """The parameters that the runs of all programs have.

    Attributes:
      plan: the parameters of the mechanism.
      tokenizer: name of the tokenizer, or a function over Arrow arrays.
      partitions: the number of hash partitions of users, at least 1.
      run_key: the secret of the run; None for a fresh one.
      described: how records became documents, if they were read from files.
      user_field: the name of the field with the user, or several names.
      text_field: the name of the field with the text, or several names.
      participation: who may take part, if the release is of a series.
    """

    plan: Any
    tokenizer: str | Tokenizer = "words"
    partitions: int = 8
    run_key: RunKey | None = dataclasses.field(default=None, repr=False)
    described: InputDescription | None = None
    user_field: str | Sequence[str] = "user"
    text_field: str | Sequence[str] = "text"
    participation: Participation | None = None

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            kind = cast("Any", field.type)
            if field.name not in _CHECKED or isinstance(kind, str):
                continue
            if not isinstance(value, kind):
                name = getattr(kind, "__name__", kind)
                raise TypeError(f"`{field.name}` must be {name}, got {type(value).__name__}.")
        check_integer("partitions", self.partitions, 1)
        checked_names(self.user_field, self.text_field)
        fields = self.row_description
        checked_names(self.user_field, self.text_field, fields.group_field)
        if self.described and (self.described.group_field is None) != (fields.group_field is None):
            raise ValueError(
                "`group_field` must be given if, and only if, described names one, got `group_field="
                f"{fields.group_field!r}` and {self.described.group_field!r} in described."
            )
        resolve_tokenizer(self.tokenizer)

    @property
    @abc.abstractmethod
    def form(self) -> Any:
        """How the released sets become a release, a `release.described.Form`."""

    @property
    def row_description(self) -> InputDescription:
        """The fields by which the elements of a pipeline are read."""
        names = names_of(self.text_field)
        users = one_or_several(names_of(self.user_field))
        return InputDescription(user_field=users, text_fields=names)

    @property
    def is_grouped(self) -> bool:
        """Whether documents have groups."""
        return self.row_description.group_field is not None

    @property
    def histogram_ranges(self) -> int:
        """The number of ranges of a histogram in a pipeline, which is smaller than the corpus."""
        return -(-self.partitions // 4)

    @property
    def max_tokens_per_user(self) -> int:
        """The largest number of a user's tokens that are used."""
        return self.plan.max_tokens_per_user

    def public_digest(self) -> str:
        """Returns the digest of the public data that decides the run; "" if there are none."""
        return ""

    def run_keys(self) -> RunKeys:
        """Returns the run key, or a fresh one, before and after it is bound to this run's context.

        The context is that of `key_context`.

        Raises:
          ValueError: if a key is given, and nothing identifies the tokenizer.
        """
        if self.run_key is not None:
            require_identified(self.tokenizer)
        context = key_context(
            self.plan,
            self.tokenizer,
            described=self.described,
            rows=self.row_description,
            public=self.public_digest(),
            series=None if self.participation is None else self.participation.place,
        )
        own = self.run_key or RunKey.generate()
        return RunKeys(own, own.bound_to(context))

    def cutting(self, run_key: RunKey) -> Cutting:
        """Returns how the documents are tokenized and cut, under a key that is bound to the run."""
        return Cutting(
            run_key=run_key,
            tokenizer=self.tokenizer,
            partitions=self.partitions,
            max_tokens_per_user=self.max_tokens_per_user,
            is_grouped=self.is_grouped,
            participation=self.participation,
        )

    @abc.abstractmethod
    def release_in_memory(
        self, partitions: list[list[DocumentBlock]], run_key: RunKey, workers: int
    ) -> Sequence[Any]:
        """Returns the released sets: what the program's transform releases, bit for bit.

        Args:
          partitions: the documents of each partition of users; they are let go when they are laid out.
          run_key: the key, bound to the run's parameters.
          workers: the largest number of processes that work at the same time; it changes no release.
        """
