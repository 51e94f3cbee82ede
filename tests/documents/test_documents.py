"""Documents of every kind are read by the names of their fields, and are the same documents.

Users are told apart, and stay whole, whatever their names and wherever their documents are.
"""

import collections
import dataclasses
import re
import traceback
import typing

import apache_beam as beam
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing import test_stream
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.trigger import AccumulationMode, AfterCount
from apache_beam.transforms.window import FixedWindows, GlobalWindows, SlidingWindows
from apache_beam.typehints.row_type import RowTypeConstraint

from beam_dpne import (
    BayesianCounts,
    NgramsPlan,
    PrivateNgrams,
    PrivateSetUnion,
    ProbabilitiesPlan,
    PublicCounts,
    RunKey,
    SetUnionPlan,
    WriteRelease,
)
from beam_dpne.documents.blocks import (
    hash_users,
    lay_out,
    lay_out_positions,
    limit_documents,
    split_by_user,
    with_group,
)
from beam_dpne.documents.cutting import Cutting
from beam_dpne.documents.rows import (
    batch_of_rows,
    documents_of,
    values_of,
)
from beam_dpne.documents.steps import _TokenizeAndPartition, check_known_fields
from beam_dpne.elements.batches import DocumentBlock
from beam_dpne.release.reading import read_ledger
from beam_dpne.steps import BatchDocuments, GroupByUser

SUB_KEY = bytes(range(32))
WORDS = pa.array(["a", "b", "c"])


def block(users, codes):
    """One document of one word for each user."""
    return DocumentBlock(
        users=np.array(users, dtype=np.uint64),
        offsets=np.arange(len(users) + 1),
        codes=np.array(codes, dtype=np.int32),
        words=WORDS,
    )


def test_users_that_share_the_first_64_bits_are_two_users():
    documents = block([(7, 2), (7, 1), (7, 2), (3, 9), (7, 1)], [0, 1, 2, 0, 2])
    batch = lay_out_positions(documents, SUB_KEY)
    assert sorted(map(tuple, batch.users.tolist())) == [(3, 9), (7, 1), (7, 2)]
    held = {
        tuple(user): set(batch.ids[start:end].tolist()) - {-1}
        for user, start, end in zip(
            batch.users.tolist(), batch.offsets[:-1], batch.offsets[1:], strict=True
        )
    }
    assert held == {(3, 9): {0}, (7, 1): {1, 2}, (7, 2): {0, 2}}


@pytest.mark.parametrize("partitions", [1, 7, 5000])
def test_a_users_partition_is_the_same_in_blocks_of_all_sizes(partitions):
    """Else one user would be two, each with a budget of its own."""
    found = set()
    for size in (1, 2, 8, 6000):
        users = [(2**63 + 12345, 6), *((number, 1) for number in range(1, size))]
        for number, part in split_by_user(block(users, [0] * size), partitions):
            if (part.users == users[0]).all(axis=1).any():
                found.add(number)
    assert len(found) == 1


def test_each_word_of_a_large_batch_has_the_group_of_its_own_document():
    names = [f"land{number % 3}" for number in range(12_000)]
    tokens = pa.array([["a", "b"][: number % 3] for number in range(12_000)])
    grouped = with_group(pa.array(names), tokens)
    assert grouped.to_pylist() == [
        [f"{name}\x1f{word}" for word in words]
        for name, words in zip(names, tokens.to_pylist(), strict=True)
    ]


def test_each_of_two_users_that_share_64_bits_has_a_token_limit_of_its_own():
    documents = block([(7, 2), (7, 1), (7, 2), (7, 1)], [0, 1, 2, 0])
    limited = limit_documents([documents], 1, SUB_KEY, final=True)
    assert sorted(map(tuple, limited.users.tolist())) == [(7, 1), (7, 2)]


def test_one_document_that_is_longer_than_the_limit_is_laid_out_as_far_as_the_limit():
    documents = DocumentBlock(
        users=np.array([(7, 1)], dtype=np.uint64),
        offsets=np.array([0, 5]),
        codes=np.array([0, 1, 2, 1, 0], dtype=np.int32),
        words=WORDS,
    )
    (batch,) = lay_out((0, [documents]), max_tokens=3, run_key=RunKey(SUB_KEY))
    assert batch.words.take(pa.array(batch.ids[:3])).to_pylist() == ["a", "b", "c"]
    assert batch.ids[3:].tolist() == [-1]


def test_sixteen_byte_names_of_a_slice_are_those_of_its_rows():
    names = pa.array([bytes([i]) * 16 for i in range(5)], pa.binary(16))
    whole = hash_users(names, SUB_KEY)
    assert len({tuple(row) for row in whole.tolist()}) == 5
    assert (hash_users(names.slice(2, 2), SUB_KEY) == whole[2:4]).all()


KEY = RunKey(bytes(range(32)))
NUMBERS = range(300)
TEXTS = ["good morning to you", "good night", "to you", f"{7} canary"]
PAIRS = [(str(i), TEXTS[i % len(TEXTS)]) for i in NUMBERS]


class UserFirst(typing.NamedTuple):
    user: str
    text: str


class TextFirst(typing.NamedTuple):
    text: str
    user: str


@dataclasses.dataclass
class Note:
    title: float
    text: str
    user: int


NAMED = {
    "NamedTuple, user first": [UserFirst(user, text) for user, text in PAIRS],
    "NamedTuple, text first": [TextFirst(text, user) for user, text in PAIRS],
    "beam.Row": [beam.Row(text=text, user=user) for user, text in PAIRS],
    "dict": [{"text": text, "other": None, "user": user} for user, text in PAIRS],
    "mapping": [collections.UserDict({"text": text, "user": user}) for user, text in PAIRS],
    "dataclass": [Note(1.5, text, int(user)) for user, text in PAIRS],
    "int users": [(int(user), text) for user, text in PAIRS],
    "numpy users": [(np.uint16(user), text) for user, text in PAIRS],
    "record batch": [
        pa.RecordBatch.from_pydict(
            {
                "text": pa.array([text for _, text in PAIRS], pa.large_string()),
                "other": [None] * len(PAIRS),
                "user": pa.array([int(user) for user, _ in PAIRS], pa.int32()),
            }
        )
    ],
    "table": [
        pa.table(
            {
                "text": pa.array([text for _, text in PAIRS]).dictionary_encode(),
                "user": pa.array([user for user, _ in PAIRS], pa.string_view()),
            }
        )
    ],
}


def encoded(released):
    """Bytes that differ wherever two released sets do."""
    return released.words.to_pylist(), released.scores.tobytes(), released.keys.tobytes()


def release(tmp_path, make_documents, **settings):
    """The bytes of what PrivateNgrams releases of the documents that a function makes."""
    plan = NgramsPlan(epsilon=10, delta=1e-4, max_length=1, strategy="one_round")
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        result = make_documents(pipeline) | PrivateNgrams(plan=plan, run_key=KEY, **settings)
        path = str(tmp_path / "set")
        lines = result.released[0] | beam.Map(encoded) | beam.Map(repr)
        _ = lines | beam.io.WriteToText(path, shard_name_template="")
    found = (tmp_path / "set").read_text()
    assert "morning" in found
    return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    return release(folder, lambda pipeline: pipeline | beam.Create(PAIRS))


@pytest.mark.parametrize("kind", ["NamedTuple, text first", "record batch"])
def test_one_key_gives_the_same_bytes_for_rows_tuples_and_batches(kind, plain, tmp_path):
    """For every other kind the transforms see what `BatchDocuments` makes of it, as below."""
    assert release(tmp_path, lambda pipeline: pipeline | beam.Create(NAMED[kind])) == plain


PLAIN_SCHEMA = pa.schema([("user", pa.string()), ("text", pa.string())])


def rows_of(batch):
    """The documents of a batch of the plain schema."""
    assert batch.schema.equals(PLAIN_SCHEMA), batch.schema
    return [tuple(row.values()) for row in batch.to_pylist()]


def assert_all_are_the_same_documents(sources):
    """Each source, a transform of nothing into documents, gives PAIRS; its name is in the message."""
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        for name, source in sources.items():
            documents = pipeline | f"{name}: read" >> source
            batches = documents | f"{name}: batch" >> BatchDocuments()
            rows = batches | f"{name}: rows" >> beam.FlatMap(rows_of)
            assert_that(rows, equal_to(PAIRS), label=name)


def test_every_kind_of_element_is_the_same_documents():
    assert_all_are_the_same_documents({kind: beam.Create(NAMED[kind]) for kind in NAMED})


def test_rows_of_a_parquet_file_with_the_text_first(tmp_path):
    columns = {"text": [text for _, text in PAIRS], "user": [user for user, _ in PAIRS]}
    pq.write_table(pa.table(columns), tmp_path / "notes.parquet")
    path = str(tmp_path / "notes.parquet")
    assert_all_are_the_same_documents(
        {
            "dicts": beam.io.ReadFromParquet(path),
            "batches": beam.io.ReadFromParquetBatched(path),
        }
    )


def test_rows_of_generated_types_with_the_text_first():
    @beam.ptransform_fn
    def selected(pipeline):
        pairs = pipeline | beam.Create(PAIRS)
        return pairs | beam.Select(text=lambda pair: pair[1], user=lambda pair: int(pair[0]))

    @beam.ptransform_fn
    def shuffled(pipeline):
        """What a shuffle decodes is of a class that Beam has generated."""
        return pipeline | selected() | beam.Reshuffle()

    @beam.ptransform_fn
    def without_hints(pipeline):
        pairs = pipeline | beam.Create(PAIRS)
        return pairs | beam.Map(_any_row).with_output_types(typing.Any)

    assert_all_are_the_same_documents(
        {"selected": selected(), "shuffled": shuffled(), "without hints": without_hints()}
    )


def _any_row(pair):
    return beam.Row(text=pair[1], user=pair[0])


def test_fields_have_the_names_that_are_given(plain, tmp_path):
    def renamed(pipeline):
        return pipeline | beam.Create(
            [{"body": text, "user": "same", "text": "other", "who": user} for user, text in PAIRS]
        )

    # The key is bound to the fields' names: the same words with other noise.
    found = release(tmp_path, renamed, user_field="who", text_field="body")
    assert found.split("]")[0] == plain.split("]")[0]
    assert found != plain


SEVERAL = [
    {"user": 1, "subject": "hello", "body": "you"},
    {"user": 2, "subject": None, "body": "only a body"},
    {"user": 1, "subject": "", "body": None},
]
DOCUMENTS_OF_SEVERAL = [("1", ""), ("1", "hello"), ("1", "you"), ("2", "only a body")]


@pytest.mark.parametrize("elements", [SEVERAL, [pa.RecordBatch.from_pylist(SEVERAL)]])
def test_each_of_several_texts_is_a_document_and_none_is_none(elements):
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        batches = pipeline | beam.Create(elements) | BatchDocuments(text_field=["subject", "body"])
        pairs = batches | beam.FlatMap(
            lambda batch: [tuple(row.values()) for row in batch.to_pylist()]
        )
        assert_that(pairs, equal_to(DOCUMENTS_OF_SEVERAL))


FIELDS = "user", "text"


def documents_in(element, names=FIELDS):
    """The documents of one element, which is a record batch or a row."""
    if not isinstance(element, pa.RecordBatch):
        element = batch_of_rows([values_of(element, names)], names)
    return documents_of(element, names)


def column_batch(users, texts):
    return pa.RecordBatch.from_arrays([texts, users], names=["text", "user"])


def test_lists_of_tokens_stay_lists():
    kind = pa.large_list(pa.large_string())
    batch = column_batch(pa.array(["ann"]), pa.array([["a", "b"]], kind))
    for element in ({"user": "ann", "text": ("a", "b")}, batch):
        normal = documents_in(element)
        assert normal.schema.field("text").type == pa.list_(pa.string())
        assert normal.to_pylist() == [{"user": "ann", "text": ["a", "b"]}]


def test_names_of_sequences_pass():
    users = pa.array([b"0123456789abcdef"], pa.binary(16))
    assert documents_in(column_batch(users, pa.array(["a b"]))).column("user").equals(users)


def test_strings_are_not_copied():
    users, texts = pa.array(["ann"]), pa.array(["a"])
    normal = documents_in(column_batch(users, texts))
    assert normal.column("user").buffers()[2].address == users.buffers()[2].address
    assert normal.column("text").buffers()[2].address == texts.buffers()[2].address


@pytest.mark.parametrize(
    "users",
    [
        pa.array([7, 8], pa.uint8()),
        pa.array([7, 8, 7]).dictionary_encode()[:2],
        batch_of_rows([(7, "a"), ("8", "a")], FIELDS)["user"],
    ],
)
def test_integers_are_decimal_text(users):
    assert documents_in(column_batch(users, pa.array(["a", "b"])))["user"].to_pylist() == ["7", "8"]


def test_integers_of_any_size_are_users():
    for number in (2**63, 2**64, -(2**70)):
        assert documents_in({"user": number, "text": "a"})["user"].to_pylist() == [str(number)]


class OtherNames(typing.NamedTuple):
    users: str
    body: str


UserId = typing.NewType("UserId", int)


class Loose(typing.NamedTuple):
    user: UserId | None
    text: typing.Any
    score: float


class MaybeNone(typing.NamedTuple):
    user: np.int64 | None
    text: typing.Sequence[str | None] | None


WRONG = [
    (OtherNames, "user_field.*'user'.*users, body"),
    (RowTypeConstraint.from_fields([("user", str), ("body", str)]), "text_field.*user, body"),
]


@pytest.mark.parametrize(("kind", "said"), WRONG)
def test_wrong_fields_of_a_schema_are_refused_when_the_pipeline_is_built(kind, said):
    documents = beam.Pipeline(runner=FnApiRunner()) | beam.Create([]).with_output_types(kind)
    with pytest.raises(ValueError, match=said):
        _ = documents | BatchDocuments()


TAKEN = [
    *(Loose, UserFirst, Note, MaybeNone, MaybeNone | None, pa.RecordBatch, pa.Table, typing.Any),
    *(dict, dict[str, typing.Any], object, collections.UserDict, str | tuple[str, str]),
    *(tuple[str, str], tuple[int, list[str]], tuple[str, ...], tuple[str, tuple[str, ...]]),
    collections.namedtuple("Untyped", ["user", "text"]),
]


@pytest.mark.parametrize("kind", TAKEN)
def test_types_that_may_be_documents_pass(kind):
    check_known_fields(kind, FIELDS)


PLAN = NgramsPlan(epsilon=1, delta=1e-7, max_length=2)
COUNTS = PublicCounts.of([("a",)], [1])
COMPOSITES = [
    (PrivateNgrams, {"plan": PLAN}),
    (PrivateSetUnion, {"plan": SetUnionPlan(epsilon=1, delta=1e-7)}),
    (PrivateSetUnion, {"plan": SetUnionPlan(epsilon=1, delta=1e-7, policy="weighted_gaussian")}),
    (
        BayesianCounts,
        {"plan": ProbabilitiesPlan(epsilon=1, delta=1e-7, length=1), "public": COUNTS},
    ),
]
each_door = pytest.mark.parametrize(("door", "settings"), [(BatchDocuments, {}), *COMPOSITES])


@each_door
def test_every_transform_checks_the_fields_of_its_documents(door, settings):
    documents = beam.Pipeline(runner=FnApiRunner()) | beam.Create([]).with_output_types(OtherNames)
    with pytest.raises(ValueError, match="user_field"):
        _ = documents | door(**settings)
    _ = documents | "named" >> door(**settings, user_field="users", text_field="body")


@each_door
@pytest.mark.parametrize(
    "names", [("a", "a"), ("a", ["b", "a"]), ("a", ["b", "b"]), ("a", []), ("", "b"), (1, "b")]
)
def test_names_that_cannot_be_fields_are_refused(door, settings, names):
    user_field, text_field = names
    with pytest.raises(ValueError, match="_field"):
        door(**settings, user_field=user_field, text_field=text_field)


class Pair(tuple):
    """A tuple of a library's own, whose order nobody knows."""


OF_BATCHES = [
    pa.RecordBatch.from_pydict({"canary": ["ann"], "text": ["canary"]}),
    pa.RecordBatch.from_pydict({"user": [None], "text": ["canary"]}),
    pa.RecordBatch.from_pydict({"user": [""], "text": ["canary"]}),
    pa.RecordBatch.from_pydict({"user": ["canary"], "text": [None]}),
    pa.RecordBatch.from_pydict({"user": [1.5], "text": ["canary"]}),
    pa.RecordBatch.from_pydict({"user": ["canary"], "text": [1]}),
    pa.RecordBatch.from_pydict({"user": ["canary"], "text": [{"part": "canary"}]}),
    pa.RecordBatch.from_pydict({"user": ["canary"], "text": [b"canary\xff"]}),
    pa.RecordBatch.from_pydict({"user": [b"canary\xff"], "text": ["canary"]}),
    pa.RecordBatch.from_arrays([pa.array(["canary"])] * 3, names=["user", "text", "user"]),
    pa.RecordBatch.from_arrays(
        [
            pa.DictionaryArray.from_arrays([0], pa.array([None], pa.string())),
            pa.array(["canary"]),
        ],
        names=["user", "text"],
    ),
]
OF_ROWS = [
    *(("ann", "canary", "canary"), ["ann", "canary"], "canary", Pair(("ann", "canary"))),
    *(
        {"user": user, "text": "canary"}
        for user in (None, "", True, 1.5, np.float64(3.5), b"ann\xff")
    ),
    *(
        {"user": "ann", "text": text}
        for text in (None, b"canary\xff", 7, ["a", 7], [["canary"]], ["canary", None])
    ),
    {"user": "ann", "text": "\ud800 canary"},
    *({"canary": "ann", "text": "canary"}, {"user": "ann", "canary": "canary"}),
    {"user": "ann", "text": {"a": 1}},
    pd.DataFrame({"user": ["canary"]}),
]


@pytest.mark.parametrize("element", [*OF_ROWS, *OF_BATCHES])
def test_other_elements_are_refused_without_quoting_them(element):
    with pytest.raises((TypeError, ValueError), match=r"user|text|document") as refused:
        documents_in(element)
    shown = "".join(traceback.format_exception_only(refused.value))
    assert "canary" not in shown
    assert not re.search(r"\bann\b", shown)


def test_values_of_several_types_are_refused_without_quoting_them():
    for values in (["a", ["canary"]], [["canary"], 7]):
        with pytest.raises((TypeError, ValueError), match="text") as refused:
            documents_of(batch_of_rows([("ann", value) for value in values], FIELDS), FIELDS)
        assert "canary" not in str(refused.value)
    of_fields = {"user": "ann", "a": "canary", "b": ["canary"]}
    with pytest.raises(TypeError, match="all str, or all lists"):
        documents_in(of_fields, ("user", "a", "b"))


def test_a_plain_tuple_has_no_place_for_several_texts():
    with pytest.raises(TypeError, match="user, subject, body"):
        values_of(("ann", "text"), ("user", "subject", "body"))


# An empty input, and sources that pair values with names by position


@pytest.mark.parametrize(("composite", "settings"), COMPOSITES)
def test_an_empty_input_gives_a_release_of_nothing(composite, settings, tmp_path):
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        result = pipeline | beam.Create([]) | composite(run_key=KEY, **settings)
        _ = result | WriteRelease(output=str(tmp_path / "release"))
    rows = sum(part["rows"] for part in read_ledger(str(tmp_path / "release"))["parts"])
    # Each public n-gram has a probability, also where nobody has it.
    assert rows == (len(COUNTS) if composite is BayesianCounts else 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two files of each format, with their fields in two orders."""
    place = tmp_path_factory.mktemp("orders")
    for number, names in enumerate((["user", "text"], ["text", "user"])):
        frame = pd.DataFrame([{name: f"the {name}" for name in names}])
        frame.to_csv(place / f"{number}.csv", index=False)
        frame.to_json(place / f"{number}.json", orient="records", lines=True)
        frame.to_parquet(place / f"{number}.parquet", index=False)
    return place


BY_POSITION = {
    "parquet": lambda files: beam.io.ReadFromParquet(f"{files}/*.parquet", as_rows=True),
    "csv": lambda files: beam.io.ReadFromCsv(f"{files}/*.csv"),
    "json": lambda files: beam.io.ReadFromJson(f"{files}/*.json"),
}
LATER_STEPS = {
    "none": lambda p, rows: rows,
    "map and shuffle": lambda p, rows: (
        rows | beam.Map(lambda row: (row.user, row.text)) | beam.Reshuffle()
    ),
    "flatten": lambda p, rows: (p | "others" >> beam.Create([("a", "b")]), rows) | beam.Flatten(),
    "side input": lambda p, rows: (
        p
        | "one" >> beam.Create([0])
        | beam.FlatMap(lambda _, found: found, beam.pvalue.AsList(rows))
    ),
}


@pytest.mark.parametrize("kind", BY_POSITION)
@pytest.mark.parametrize("steps", LATER_STEPS)
def test_rows_that_are_paired_by_position_are_refused_whatever_comes_after(folder, kind, steps):
    pipeline = beam.Pipeline(runner=FnApiRunner())
    documents = LATER_STEPS[steps](pipeline, pipeline | kind >> BY_POSITION[kind](folder))
    with pytest.raises(ValueError, match=f"must not come from the step .{kind}"):
        _ = documents | BatchDocuments()


def test_beam_still_exchanges_users_and_texts_so_that_the_check_is_needed(folder):
    """If this fails, this version of Beam pairs by name for a source, and the check may go for it."""
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        for kind, source in BY_POSITION.items():
            users = pipeline | kind >> source(folder) | f"{kind}: users" >> beam.Map(_user_of)
            assert_that(users, equal_to(["the user", "the text"]), label=kind)


def _user_of(row):
    return row.user


DOORS = [(GroupByUser, {"run_key": KEY}), (BatchDocuments, {}), *COMPOSITES]
TRIGGERED = {"trigger": AfterCount(1), "accumulation_mode": AccumulationMode.DISCARDING}


@pytest.mark.parametrize(("door", "settings"), DOORS)
def test_only_bounded_documents_in_the_global_window_are_taken(door, settings):
    pipeline = beam.Pipeline(runner=FnApiRunner())
    batch = pa.RecordBatch.from_pydict({"user": ["ann"], "text": ["a"]})
    documents = pipeline | beam.Create([batch])
    windows = {
        "fixed": beam.WindowInto(FixedWindows(60)),
        "sliding": beam.WindowInto(SlidingWindows(60, 30)),
        "trigger": beam.WindowInto(GlobalWindows(), **TRIGGERED),
    }
    for name, window in windows.items():
        windowed = documents | name >> window
        with pytest.raises(ValueError, match=r"beam\.WindowInto\(GlobalWindows\(\)\)"):
            _ = windowed | f"{name} refused" >> door(**settings)
        advised = windowed | f"{name} advised" >> beam.WindowInto(GlobalWindows())
        _ = advised | f"{name} taken" >> door(**settings)
    with pytest.raises(ValueError, match="must be bounded"):
        _ = pipeline | test_stream.TestStream() | "unbounded" >> door(**settings)


def test_the_advice_for_windows_gives_the_release_without_them(plain, tmp_path):
    def windowed(pipeline):
        documents = pipeline | beam.Create(PAIRS) | beam.WindowInto(FixedWindows(60))
        return documents | "all" >> beam.WindowInto(GlobalWindows())

    assert release(tmp_path, windowed) == plain


class Reversed(typing.NamedTuple):
    text: str
    user: str


def test_a_plain_tuple_is_not_read_by_position_where_the_type_has_fields():
    pipeline = beam.Pipeline(runner=FnApiRunner())
    lines = pipeline | beam.Create(["TEXT\tUSER"])
    rows = lines | beam.Map(lambda line: tuple(line.split("\t"))).with_output_types(Reversed)
    _ = rows | BatchDocuments() | beam.Map(print)
    with pytest.raises(Exception, match="element type has no fields"):
        pipeline.run()


def test_a_bundle_that_failed_leaves_no_documents_to_the_one_that_repeats_it():
    """Else a user's documents would count twice."""
    step = _TokenizeAndPartition(Cutting(run_key=KEY, partitions=2))
    batch = pa.RecordBatch.from_pydict({"user": ["ann"] * 3, "text": ["to be"] * 3})
    for _ in range(3):
        step.start_bundle()
        assert not list(step.process(batch))
    ((_, block),) = (windowed.value for windowed in step.finish_bundle())
    assert len(block.users) == 3
