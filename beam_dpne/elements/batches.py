"""The elements of the pipelines: arrays for many users or many grams at a time, and their coder.

A k-gram is a pair of small integers in one int64 (`pack_pairs`): the id of its prefix in S_{k−1}, and
either the id of its suffix in S_{k−1} (pruning "both") or of its last word in S_1 (pruning "single").
Ids are ranks in the sorted released set, so they are the same on every runner, and the keys of S_k
sort like its grams, word by word. At k = 1 grams are strings, in Arrow arrays.
"""

import dataclasses
import json
from collections.abc import Iterator
from typing import Any, TypeVar

import apache_beam as beam
import numpy as np
import pyarrow as pa

from beam_dpne.elements import side_inputs as stored
from beam_dpne.elements.side_inputs import SetStore, StoredFile
from beam_dpne.mechanism.cells import LengthRule, RoundRule

NO_GRAM = -1
SECOND_BITS = 32
# Engines take elements of 64 MB, but queue and sort many at a time (deploy/flink/config.yaml).
MAX_ELEMENT_BYTES = 4 * 2**20


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class DocumentBlock:
    """Tokenized documents on their way to their users' partition.

    Attributes:
      users: (d, 2) uint64, the 128-bit keyed hash of each document's user.
      offsets: (d + 1,) int64, where each document's tokens begin in `codes`.
      codes: (t,) int32, tokens as indices into `words`.
      words: distinct tokens of the block, Arrow strings.
    """

    users: np.ndarray
    offsets: np.ndarray
    codes: np.ndarray
    words: pa.Array


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class UserBatch:
    """Many users' positions (CSR): which released gram starts at each of them.

    Attributes:
      length: of the grams that the ids stand for; at 0 the ids are indices into `words`.
      round: 0: ids are ranks in S_length; r ≥ 1: rows of what stands after round r of that length
        (`StandingGrams`).
      size: number of such grams: ids are in range(size).
      users: (n, 2) uint64, 128-bit keyed hashes; a user is in one batch only.
      offsets: (n + 1,) int64, where each user's positions begin.
      ids: (p,) int32, the id of the gram that starts here, −1 where there is none; each document
        ends with a −1, so no gram crosses a border.
      word_ids: (p,) int32, the id in S_1 of the word here (pruning "single" only, length ≥ 1).
      vocabulary_size: |S_1| (length ≥ 1).
      words: the batch's distinct words (length 0 only).
      word_hashes: (words, 2) uint64, their keyed hashes (length 0 only).
      left: (n,) int64, what each user may still spend, in units of 2^-56; None before it has spent.
    """

    length: int
    size: int
    users: np.ndarray
    offsets: np.ndarray
    ids: np.ndarray
    round: int = 0
    word_ids: np.ndarray | None = None
    vocabulary_size: int = 0
    words: pa.Array | None = None
    word_hashes: np.ndarray | None = None
    left: np.ndarray | None = None


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Contributions:
    """Per user the distinct candidate grams of one length (CSR), and the weight given to each.

    Attributes:
      length: k.
      users: (n, 2) uint64.
      offsets: (n + 1,) int64, where each user's grams begin.
      keys: (m,) int64, ascending within a user; packed pairs, at k = 1 indices into `words`.
      weights: (m,) int64 in units of 2^-32, 0 for grams beyond the user's limit; None before
        `LimitContributions` or `SpendBudgets`.
      round: r, from 1.
      words: distinct words (k = 1 only).
      word_hashes: (words, 2) uint64 (k = 1 only).
    """

    length: int
    users: np.ndarray
    offsets: np.ndarray
    keys: np.ndarray
    weights: np.ndarray | None = None
    round: int = 1
    words: pa.Array | None = None
    word_hashes: np.ndarray | None = None


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class HistogramShard:
    """One hash range of H_k: every gram that some user holds, also at weight 0.

    In later rounds, every one of them that still stands: that is open, or found already.

    Attributes:
      length: k.
      keys: (m,) int64, ascending, distinct; at k = 1 the row numbers of `words`.
      weights: (m,) int64, sums in units of 2^-32.
      round: r, from 1.
      earlier: (r − 1, m) int64, the sums of earlier rounds; None in the first, and in pieces that
        hold only what users sent.
      found: (m,) int8, the round in which a gram was found, 0 while it is open; None with `earlier`.
      cells: (m,) int64, of the round in which it was found, or of the last one; None with `earlier`.
      words: (k = 1 only).
      word_hashes: (m, 2) uint64 (k = 1 only).
      spurious_keys: (s,) int64: grams drawn from this range of V_k; those that somebody holds are
        dropped by `NoisyThreshold`.
      spurious_cells: (s,) int64, the cells of their noise.
      spurious_rounds: (s,) int8, the rounds in which they are found.
      rule: what decides this length (length ≥ 2, or later rounds); it comes with the spurious grams.
    """

    length: int
    keys: np.ndarray
    weights: np.ndarray
    round: int = 1
    earlier: np.ndarray | None = None
    found: np.ndarray | None = None
    cells: np.ndarray | None = None
    words: pa.Array | None = None
    word_hashes: np.ndarray | None = None
    spurious_keys: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    spurious_cells: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    spurious_rounds: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int8))
    rule: LengthRule | None = None


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class SpuriousGrams:
    """Grams that noise alone lifts over the threshold, before those that somebody holds are dropped.

    Attributes:
      length: k.
      keys: (s,) int64, ascending, distinct.
      cells: (s,) int64.
      rounds: (s,) int8, the rounds in which they are found.
      rule: what they were drawn by, and what decides the grams that somebody holds.
    """

    length: int
    keys: np.ndarray
    cells: np.ndarray
    rounds: np.ndarray
    rule: LengthRule | None = None


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class StandingGrams:
    """What still stands after a round: grams that somebody holds and that are open, or found.

    A private set: only the noisy decisions about it get out.

    Attributes:
      length: k.
      round: r, the last round that has been decided.
      keys: (n,) int64, ascending; at k = 1 row numbers of `words`.
      cells: (n,) int32, of that round's evidence; 0 for found ones.
      found: (n,) int8, 1 for found ones.
      words: sorted by bytes (k = 1 only).
      parent_size: |S_{k−1}|.
      vocabulary_size: |S_1| (length ≥ 2).
      rule: of the length; None if nothing stands.
      stored: the file that holds the set, if it was too large for an element (`kept_small`).
    """

    length: int
    round: int
    keys: np.ndarray
    cells: np.ndarray
    found: np.ndarray
    words: pa.Array | None = None
    parent_size: int = 0
    vocabulary_size: int = 0
    rule: LengthRule | None = None
    stored: StoredFile | None = None

    def __len__(self) -> int:
        return len(self.keys)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class GramSet:
    """S_k: the released grams of one length, sorted, and the public numbers that led to them.

    Attributes:
      length: k; 0 is the root, the empty gram, before anything is released.
      keys: (n,) int64, ascending; at k = 1 row numbers of `words`.
      scores: (n,) float64, noisy weights by cells.
      words: S_1 sorted by bytes (k = 1 only).
      parent_size: |S_{k−1}|.
      vocabulary_size: |S_1|.
      rule: σ_k, ρ_k and |V_k|; None for the root, and for what is given.
      given: whether it is public from outside, a vocabulary; then it is not released.
      stored: the file that holds the set, if it was too large for an element (`kept_small`): it
        travels as that file's address.
    """

    length: int
    keys: np.ndarray
    scores: np.ndarray
    words: pa.Array | None = None
    parent_size: int = 0
    vocabulary_size: int = 0
    rule: LengthRule | None = None
    given: bool = False
    stored: StoredFile | None = None

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def pruning(self) -> str:
        """What the second of a pair is: "both", the gram's suffix; "single", its last word."""
        return "both" if self.rule is None else self.rule.pruning


ROOT = GramSet(length=0, keys=np.zeros(1, np.int64), scores=np.zeros(1, np.float64))


def array_bytes(batch: Any) -> int:
    """Returns the size of a batch's arrays, in bytes; it encodes to little more."""
    values = (getattr(batch, field.name) for field in dataclasses.fields(batch))
    return sum(value.nbytes for value in values if isinstance(value, np.ndarray | pa.Array))


def group_places(labels: np.ndarray, count: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yields each label that occurs, ascending, with its places, ascending; labels in range(count)."""
    order = np.argsort(labels.astype(np.min_scalar_type(count)), kind="stable")
    ordered = labels[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    ends = np.append(starts, order.size)[1:]
    for start, end in zip(starts, ends, strict=False):
        yield int(ordered[start]), order[start:end]


def pack_pairs(prefixes: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Returns prefix · 2^32 + second as int64; both below 2^31."""
    return (prefixes.astype(np.int64) << SECOND_BITS) | seconds.astype(np.int64)


def unpack_pairs(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (prefixes, seconds), int64; inverse of `pack_pairs`."""
    return keys >> SECOND_BITS, keys & ((1 << SECOND_BITS) - 1)


class BatchCoder(beam.coders.Coder):
    """Encodes one of the dataclasses above as Arrow IPC messages; decoded arrays are read-only."""

    batch_type: type

    def encode(self, value: Any) -> bytes:
        """Returns the batch's arrays as one Arrow record, the rest as JSON in its schema."""
        scalars: dict[str, Any] = {}
        columns: dict[str, pa.Array] = {}
        for field in dataclasses.fields(self.batch_type):
            if field.name == "stored":
                continue
            item = getattr(value, field.name)
            if isinstance(item, np.ndarray):
                columns[field.name] = _as_row(pa.array(item.reshape(-1)))
            elif isinstance(item, pa.Array):
                columns[field.name] = _as_row(item)
            elif isinstance(item, LengthRule):
                scalars[field.name] = dataclasses.asdict(item)
            else:
                scalars[field.name] = item
        batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        schema = batch.schema.with_metadata({b"scalars": json.dumps(scalars).encode()})
        head = schema.serialize()
        size = len(head).to_bytes(_ALIGNMENT, "little")
        padding = bytes(-len(head) % _ALIGNMENT)
        return b"".join((size, head, padding, batch.serialize()))

    def decode(self, encoded: bytes) -> Any:
        """Inverse of `encode`; arrays are views of the bytes."""
        return self.decode_buffer(pa.py_buffer(encoded))

    def decode_buffer(self, buffer: pa.Buffer) -> Any:
        """As `decode`, from a buffer."""
        size = int.from_bytes(buffer[:_ALIGNMENT], "little")
        schema = pa.ipc.read_schema(buffer.slice(_ALIGNMENT, size))
        start = _ALIGNMENT + size + -size % _ALIGNMENT
        batch = pa.ipc.read_record_batch(buffer.slice(start), schema)
        fields = json.loads((schema.metadata or {})[b"scalars"])
        if fields.get("rule") is not None:
            fields["rule"] = _rule(fields["rule"])
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            values = column.values
            if pa.types.is_primitive(values.type):
                values = values.to_numpy(zero_copy_only=True)
                if name in _HASH_COLUMNS:
                    values = values.reshape(-1, 2)
                elif name == "earlier":
                    values = values.reshape(fields["round"] - 1, -1)
            fields[name] = values
        return self.batch_type(**fields)

    def to_type_hint(self) -> Any:
        """Returns the type of the batches, as notebooks ask for it."""
        return self.batch_type

    def is_deterministic(self) -> bool:
        """Batches are values, never keys."""
        return False


_ALIGNMENT = 16
_NO_HEAD = bytes(_ALIGNMENT)
_HASH_COLUMNS = frozenset({"users", "word_hashes"})


def _rule(fields: dict[str, Any]) -> LengthRule:
    rounds = (
        RoundRule(**{**rule, "loadings": tuple(rule["loadings"])}) for rule in fields["rounds"]
    )
    return LengthRule(**{**fields, "rounds": tuple(rounds)})


def _as_row(values: pa.Array) -> pa.LargeListArray:
    """Wraps a column of any length as the one row of a list column."""
    offsets = pa.array([0, len(values)], pa.int64())
    return pa.LargeListArray.from_arrays(offsets, values)


class DocumentBlockCoder(BatchCoder):
    """Coder of `DocumentBlock`."""

    batch_type = DocumentBlock


class UserBatchCoder(BatchCoder):
    """Coder of `UserBatch`."""

    batch_type = UserBatch


class ContributionsCoder(BatchCoder):
    """Coder of `Contributions`."""

    batch_type = Contributions


class HistogramShardCoder(BatchCoder):
    """Coder of `HistogramShard`."""

    batch_type = HistogramShard


class SpuriousGramsCoder(BatchCoder):
    """Coder of `SpuriousGrams`."""

    batch_type = SpuriousGrams


class StoredCoder(BatchCoder):
    """Coder of a set that may be stored; of a stored one only its file's address is encoded."""

    def encode(self, value: Any) -> bytes:
        """As for other batches, or no head and the address."""
        if value.stored is None:
            return super().encode(value)
        return _NO_HEAD + json.dumps(dataclasses.asdict(value.stored)).encode()

    def decode(self, encoded: bytes) -> Any:
        """Inverse of `encode`; a stored set is mapped, the same object for all bundles."""
        if not encoded.startswith(_NO_HEAD):
            return super().decode(encoded)
        file = StoredFile(**json.loads(encoded[_ALIGNMENT:]))
        return stored.opened(
            file, lambda buffer: dataclasses.replace(self.decode_buffer(buffer), stored=file)
        )


class GramSetCoder(StoredCoder):
    """Coder of `GramSet`."""

    batch_type = GramSet


class StandingGramsCoder(StoredCoder):
    """Coder of `StandingGrams`."""

    batch_type = StandingGrams


_Set = TypeVar("_Set", GramSet, StandingGrams)


def kept_small(grams: _Set, store: SetStore | None, key: bytes = b"") -> _Set:
    """Stores a set above the limit as a file; it then travels as the file's address.

    Args:
      grams: the set.
      store: where to; None: nowhere.
      key: for a private set, the secret that its file is named with.
    """
    if store is None or array_bytes(grams) <= store.limit:
        return grams
    coder = GramSetCoder() if isinstance(grams, GramSet) else StandingGramsCoder()
    encoded = coder.encode(dataclasses.replace(grams, stored=None))
    kind = "released" if isinstance(grams, GramSet) else f"standing-{grams.round}"
    file = stored.store(store.folder, f"{kind}-{grams.length}", encoded, key)
    return dataclasses.replace(grams, stored=file)


for _coder in (
    DocumentBlockCoder,
    UserBatchCoder,
    ContributionsCoder,
    HistogramShardCoder,
    SpuriousGramsCoder,
    GramSetCoder,
    StandingGramsCoder,
):
    beam.coders.registry.register_coder(_coder.batch_type, _coder)
