"""The steps from documents to users: BatchDocuments, GroupByUser, and DocumentsTransform, their user.

`DocumentsTransform` is the base of the transforms from documents to releases.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import AsIter, PCollection
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints.schemas import named_fields_from_element_type

from beam_dpne.documents import tokenizers
from beam_dpne.documents.blocks import TEXT, USER, distinct_users, lay_out
from beam_dpne.documents.cutting import Cutter, Cutting
from beam_dpne.documents.participants import Participation
from beam_dpne.documents.private_run import PrivateRun
from beam_dpne.documents.rows import batch_of_rows, checked_names, documents_of, values_of
from beam_dpne.elements import progress
from beam_dpne.elements.batches import DocumentBlock, UserBatch
from beam_dpne.elements.bundles import UnhintedTransform, apply
from beam_dpne.elements.encoding import SetStore, spill
from beam_dpne.engines import check_options
from beam_dpne.errors import BudgetError
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.reading.options import names_of
from beam_dpne.validation import check_integer

# Beam 2.77 turns tables of Arrow and data frames of pandas into rows by the position of their columns:
# it pairs the names of the first table with the values of all later ones, so that users and texts of a
# file with another order of columns change places. No later step can see this. Classes are compared by
# name, so that Beam's data frames and pandas are not imported for it.
_BY_POSITION = {"_ArrowTableToBeamRows", "DataFrameToRowsFn", "UnbatchPandas"}
_ROWS_IN_BATCH = 10_000
# A constant is part of the job's graph, whose size the engines limit.
_LARGEST_CONSTANT = 2**20


@dataclasses.dataclass(eq=False, kw_only=True)
class BatchDocuments(beam.PTransform):
    """Gathers documents of every form into record batches of users and texts.

    Input: documents, bounded and in the global window. Rows with field names (NamedTuple, `beam.Row`
    and all other elements with a schema, dict, dataclass), `pyarrow.RecordBatch` and `pyarrow.Table`
    are read by name, in any order of their fields, and their other fields are ignored. Plain tuples
    are (user, text), with a group_field (user, text, group), and nothing else is read by position. A
    user is str, or a value that identifies, such as an integer or a UUID, and is the same user as its
    text (`reading.ids`); so is a group. A text is str, or a list of str for the tokenizer `tokens`.
    Rows that Beam makes of tables or data frames are refused, since they may have wrong names.

    Output: `pyarrow.RecordBatch` with columns `user` (string, or the 16-byte names that `ReadDocuments`
    gives to sequences), `text` (string, or list of string) and, with a group_field, `group` (string),
    without nulls.

    Privacy: not private.

    Cost: no shuffle.

    Attributes:
      user_field: Name of the field that holds the user, which is the unit that the guarantee protects,
        or names of several whose values are a user together.
      text_field: Name of the field that holds the text, or several names. Then each text is a document
        of its user, and a text that is None is left out if the row has another text.
      group_field: Name of the field that holds the group, of 1 to 256 characters without control
        characters, or None.

    Raises:
      ValueError: Two fields are the same, the input is unbounded or not in the
        global window, comes from a source of Beam that may give rows wrong names, or its element type
        lacks the fields or has them with other types.
      ValueError, TypeError: While running: an element lacks the fields or has other types. The message
        holds no value of the element.

    Example:
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     documents = pipeline | beam.Create([("ann", "to be"), ("bob", "or not")])
      ...     batches = documents | BatchDocuments()
      ...     _ = batches | beam.Map(lambda batch: print(batch.num_rows, batch.schema.names))
      2 ['user', 'text']

    References: none.
    """

    user_field: str | Sequence[str] = USER
    text_field: str | Sequence[str] = TEXT
    group_field: str | None = None

    def __post_init__(self):
        super().__init__()
        checked_names(self.user_field, self.text_field, self.group_field)

    def expand(self, documents: PCollection) -> PCollection[pa.RecordBatch]:
        """Checks the input and its known element type, and adds the step that makes batches."""
        names = checked_names(self.user_field, self.text_field, self.group_field)
        is_grouped = self.group_field is not None
        require_one_release(documents)
        for step in steps_before(documents):
            kinds = {type(step.transform), type(getattr(step.transform, "fn", None))}
            if any(kind.__name__ in _BY_POSITION for kind in kinds):
                raise ValueError(
                    f"documents must not come from the step {step.full_label!r}, where Beam pairs "
                    "values with the names of fields by their position, so that users and texts may "
                    "change places. Read the files by name, with ReadDocuments, "
                    "ReadFromParquetBatched, or ReadFromParquet without as_rows."
                )
        users = len(names_of(self.user_field))
        by_position = not check_known_fields(documents.element_type, names, is_grouped, users)
        batch = beam.ParDo(_Batch(names, by_position, is_grouped, users))
        return apply(documents, "Batch", batch, pa.RecordBatch)


def require_one_release(documents: PCollection) -> None:
    """Checks that the documents give one release, since a user contributes to each release anew.

    Raises:
      TypeError: The input is not one PCollection.
      ValueError: The input is unbounded, or not in the global window with its default trigger.
    """
    if not isinstance(documents, PCollection):
        raise TypeError(
            f"documents must be one PCollection, got {type(documents).__name__}. A result with several "
            "outputs has the documents as one of them, such as `documents` of ReadDocuments."
        )
    if not documents.is_bounded or not documents.windowing.is_default():
        raise ValueError(
            "documents must be bounded and in the global window with its default trigger: a release "
            "for each window would spend epsilon and delta each time. Read documents that are "
            "complete, such as the files of one month, and apply beam.WindowInto(GlobalWindows())."
        )


def steps_before(documents: PCollection) -> Iterator[Any]:
    """Yields the steps from which elements come, also by side inputs, and the steps around them."""
    seen: set[int] = set()
    waiting: list[Any] = [documents]
    while waiting:
        step = getattr(waiting.pop(), "producer", None)
        if step is None or id(step) in seen:
            continue
        seen.add(id(step))
        waiting += [*step.inputs, *(side.pvalue for side in step.side_inputs)]
        while step is not None:
            yield step
            step = step.parent


def known_fields(element_type: Any) -> dict[str, Any]:
    """Returns the types of the fields of rows by name, and nothing for elements without a schema."""
    try:
        return dict(named_fields_from_element_type(element_type))
    except (KeyError, TypeError, ValueError):
        return {}


def check_known_fields(
    element_type: Any, names: Sequence[str], is_grouped: bool = False, users: int = 1
) -> bool:
    """Checks the fields of a PCollection's elements, and returns whether they are known.

    Plain tuples may be read by position only if they are not, since a tuple could be in the order of
    those fields.

    Raises:
      ValueError: A field is missing.
    """
    fields = known_fields(element_type)
    for place, name in enumerate(names if fields else ()):
        is_group = is_grouped and place == len(names) - 1
        option = "user_field" if place < users else "group_field" if is_group else "text_field"
        if name not in fields:
            raise ValueError(
                f"`{option}` must name a field of the documents, got `{option}={name!r}`. Their "
                f"fields are {', '.join(fields)}."
            )
    return bool(fields)


class _Batch(beam.DoFn):
    """Gathers the rows of a bundle in columns, and checks the columns of record batches."""

    def __init__(self, names: Sequence[str], by_position: bool, is_grouped: bool, users: int):
        self._names = names
        # A plain tuple has one text; no tuple has the size 0.
        of_tuples = 3 if is_grouped else 2
        self._tuple_size = of_tuples if by_position and users == 1 else 0
        self._users = users
        self._is_grouped = is_grouped

    def start_bundle(self):
        self._rows: list[Sequence[Any]] = []

    def process(self, element) -> Iterator[pa.RecordBatch]:
        if isinstance(element, pa.RecordBatch | pa.Table):
            for batch in element.to_batches() if isinstance(element, pa.Table) else [element]:
                yield documents_of(batch, self._names, self._is_grouped, self._users)
            return
        self._rows.append(values_of(element, self._names, self._tuple_size))
        if len(self._rows) >= _ROWS_IN_BATCH:
            yield self._flush()

    def finish_bundle(self) -> Any:
        if self._rows:
            yield GlobalWindows.windowed_value(self._flush())

    def _flush(self) -> pa.RecordBatch:
        rows = self._rows
        self._rows = []
        batch = batch_of_rows(rows, self._names, self._is_grouped, self._users)
        return documents_of(batch, self._names, self._is_grouped, self._users)


@dataclasses.dataclass(eq=False, kw_only=True)
class GroupByUser(beam.PTransform):
    """Tokenizes documents and groups them by user, in the only shuffle of the corpus.

    A user with more than `max_tokens_per_user` tokens keeps a random subset of the documents. The
    subset is drawn by a keyed hash of their tokens, so that it does not depend on their order.

    Input: `pyarrow.RecordBatch` with columns `user` and `text`, as `BatchDocuments` gives them. `user`
    is a string, or 16 bytes that identify the user. With groups, each document's group, in the column
    `group`, is put in front of each of its words (`with_group`).

    Output: `UserBatch` of length 0, one or more for each partition that is not empty.

    Privacy: not private. Users are distinguished by 128 bits of a keyed hash.

    Cost: one shuffle of the tokens, which are 32-bit integers, with each block's distinct words. A
    worker holds one partition.

    Attributes:
      tokenizer: Name, or function over Arrow arrays (see `tokenizers`).
      partitions: Number of hash partitions of users, at least 1.
      max_tokens_per_user: Largest number of a user's tokens, at least 1.
      run_key: Secret key of the run.
      is_grouped: Whether documents have groups.
      participation: Who may take part, if the release is of a series. All others are left out, and
        those who take part are recorded before any of them is laid out. None without a series.

    Raises:
      ValueError: A parameter is out of range.

    Example:
      >>> import numpy as np
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import RunKey
      >>> from beam_dpne.steps import BatchDocuments
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     users = (pipeline | beam.Create([("ann", "to be"), ("ann", "not to be")])
      ...              | BatchDocuments() | GroupByUser(run_key=RunKey.generate()))
      ...     _ = users | beam.Map(lambda batch: print(len(batch.users), np.sort(batch.ids)))
      1 [-1 -1  0  0  1  1  2]

    References: DPNE Algorithm 1, the input: "each user i has some text w_i".
    """

    run_key: RunKey = dataclasses.field(repr=False)
    tokenizer: str | tokenizers.Tokenizer = "words"
    partitions: int = 8
    max_tokens_per_user: int = 1_000_000
    is_grouped: bool = False
    participation: Participation | None = None

    def __post_init__(self):
        super().__init__()
        check_integer("partitions", self.partitions, 1)
        check_integer("max_tokens_per_user", self.max_tokens_per_user, 1)
        tokenizers.resolve_tokenizer(self.tokenizer)

    def expand(self, documents: PCollection[pa.RecordBatch]) -> PCollection[UserBatch]:
        """Tokenizes documents, cuts blocks by user, groups them, and lays out positions."""
        require_one_release(documents)
        cutting = Cutting(
            run_key=self.run_key,
            tokenizer=self.tokenizer,
            partitions=self.partitions,
            max_tokens_per_user=self.max_tokens_per_user,
            is_grouped=self.is_grouped,
            participation=self.participation,
        )
        cut = beam.ParDo(_TokenizeAndPartition(cutting))
        blocks = apply(documents, "Tokenize", cut, tuple[int, DocumentBlock])
        recorded = None if self.participation is None else _recorded(blocks, self.participation)
        grouped = blocks | "ByUser" >> beam.GroupByKey()
        place = beam.FlatMap(
            _laid_out, recorded, max_tokens=self.max_tokens_per_user, run_key=self.run_key
        )
        return apply(grouped, "LayOut", place, UserBatch)


def _recorded(
    blocks: PCollection[tuple[int, DocumentBlock]], participation: Participation
) -> AsIter:
    """Returns a side input that is there when those who take part are recorded: what `_record` does."""
    digests = blocks | "Digests" >> beam.Map(_digests_of)
    once = blocks.pipeline | "Once" >> beam.Create([None])
    recorded = once | "Record" >> beam.Map(
        _record, AsIter(cast("PCollection", digests)), participation=participation
    )
    return AsIter(cast("PCollection", recorded))


def _digests_of(block: tuple[int, DocumentBlock]) -> tuple[int, np.ndarray, np.ndarray]:
    number, documents = block
    return number, distinct_users(documents.users), documents.texts


def _record(
    _: None,
    digests: Iterable[tuple[int, np.ndarray, np.ndarray]],
    *,
    participation: Participation,
) -> dict[int, bytes]:
    """Records those who take part; returns the sums of the digests of each partition."""
    listed = list(digests)
    participation.record([users for _, users, _ in listed], [texts for _, _, texts in listed])
    partitions: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
    for number, users, texts in listed:
        partitions.setdefault(number, []).append((users, texts))
    return {number: _sums_of(blocks) for number, blocks in partitions.items()}


def _sums_of(blocks: Sequence[tuple[np.ndarray, np.ndarray]]) -> bytes:
    """Returns the sums of distinct digests of users and of those of their texts, modulo 2^64.

    Args:
      blocks: (n, 2) uint64 digests of users, and the (2,) uint64 digest of texts, of each block.
    """
    users = distinct_users(np.concatenate([users for users, _ in blocks]))
    texts = np.array([texts for _, texts in blocks])
    return b"".join(each.sum(axis=0, dtype=np.uint64).tobytes() for each in (users, texts))


def _as_recorded(blocks: Iterable[DocumentBlock], sums: bytes | None) -> Iterator[DocumentBlock]:
    """Yields blocks, and fails after the last one if their users or texts are not those recorded.

    An engine that has lost the blocks reads the input again for one of the two steps that take them. If
    it has changed, a user could be in a release and not in its list; and with other texts of the same
    users, a repetition by the first ones would have the noise of this run.
    """
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for block in blocks:
        found.append((block.users, block.texts))
        yield block
    if _sums_of(found) != sums:
        raise BudgetError(
            "`input` must stay as it is while a run of a series is at work, but others than those who "
            "are recorded, or other texts of theirs, were read from it. The release counts, and was "
            "not published."
        )


def _laid_out(
    partition: tuple[int, Iterable[DocumentBlock]],
    recorded: Iterable[dict[int, bytes]] | None,
    *,
    max_tokens: int,
    run_key: RunKey,
) -> Iterator[UserBatch]:
    progress.enter("users")
    number, blocks = partition
    if recorded is not None:
        (sums,) = recorded
        # Nothing is laid out before the last block has been taken.
        blocks = _as_recorded(blocks, sums.get(number))
    return lay_out((number, blocks), max_tokens=max_tokens, run_key=run_key)


class _TokenizeAndPartition(beam.DoFn):
    """Turns a bundle's record batches into blocks of documents for each partition."""

    def __init__(self, cutting: Cutting):
        self._cutting = cutting

    def start_bundle(self):
        # What a bundle that failed has left is not of this one.
        self._cutter = Cutter(self._cutting)

    def process(self, batch: pa.RecordBatch) -> Iterator[tuple[int, DocumentBlock]]:
        progress.enter("read", None)
        for blocks in self._cutter.answer(batch):
            yield from blocks

    def finish_bundle(self) -> Any:
        for blocks in self._cutter.answer(None):
            yield from map(GlobalWindows.windowed_value, blocks)


@dataclasses.dataclass(eq=False, kw_only=True)
class DocumentsTransform(PrivateRun, UnhintedTransform):
    """The common part of `PrivateNgrams`, `PrivateSetUnion` and `BayesianCounts`.

    Each of them has the parameters of its run, and documents them for its users.

    Attributes:
      store: where sets and public data go that are too large for an element or for the job's graph.
    """

    store: SetStore | None = None

    def __post_init__(self):
        UnhintedTransform.__post_init__(self)
        super().__post_init__()

    @classmethod
    def of(cls, run: PrivateRun, store: SetStore | None) -> "DocumentsTransform":
        """Returns the transform with the parameters of a run of its program."""
        given = {field.name: getattr(run, field.name) for field in dataclasses.fields(run)}
        return cls(**given, store=store)

    def grouped_by_user(self, documents: PCollection, run_key: RunKey) -> PCollection[UserBatch]:
        """Checks the pipeline's options, and brings the documents of each user together."""
        batch = BatchDocuments(
            user_field=self.user_field,
            text_field=self.text_field,
            group_field=self.row_description.group_field,
        )
        batches = documents | "BatchDocuments" >> batch
        check_options(documents.pipeline)
        group = GroupByUser(
            tokenizer=self.tokenizer,
            partitions=self.partitions,
            max_tokens_per_user=self.max_tokens_per_user,
            run_key=run_key,
            is_grouped=self.is_grouped,
            participation=self.participation,
        )
        return cast("PCollection", batches | "GroupByUser" >> group)


def create_public(batch: Any, store: SetStore | None) -> beam.Create:
    """Returns the source of one public batch, which is in the job's graph unless it is large.

    Args:
      batch: a public vocabulary or public counts.
      store: where a batch goes that is too large for the graph. With None, or with a store into which
        the launcher puts no files, it stays in the graph.
    """
    if store is None or not store.from_launch:
        return beam.Create([batch])
    limit = min(store.limit, _LARGEST_CONSTANT)
    return beam.Create([spill(batch, dataclasses.replace(store, limit=limit))])
