"""Texts within records, and fields of paths, are the same documents in each format."""

import datetime
import decimal
import json
import pathlib
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_dpne.errors import InputError
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.records import check_fields, plan_reads, read_item
from beam_dpne.reading.rejects import NO_LIST, NO_TEXT, NO_USER, USERS_OF_LIST
from tests.engines.conftest import release_bytes
from tests.reading.files import read, write

FORMATS = ["jsonl", "json", "parquet"]


def write_records(folder: pathlib.Path, records: list[dict[str, Any]], kind: str) -> pathlib.Path:
    path = folder / f"a.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(records), path)
    elif kind == "json":
        write(path, json.dumps(records, indent=1))
    else:
        write(path, "".join(f"{json.dumps(record)}\n" for record in records))
    return path


def turn(role: str, text: str | None) -> dict[str, Any]:
    return {"role": role, "content": text, "toxic": role == "user", "n": 7}


# Chats as WildChat and LMSYS have them; the second has nothing of a user, the third nothing at all.
CHATS = [
    {
        "by": {"id": "ann", "country": "dk"},
        "language": "English",
        "turns": [turn("user", "to be"), turn("assistant", "or not"), turn("user", "to do")],
        "tags": ["x", "y"],
        "a.b": "dotted",
    },
    {
        "by": {"id": "bob", "country": "se"},
        "language": "Danish",
        "turns": [turn("assistant", "hello")],
        "tags": [],
        "a.b": "dot",
    },
    {
        "by": {"id": "eve", "country": "se"},
        "language": "English",
        "turns": [],
        "tags": ["z"],
        "a.b": "d",
    },
]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    ("text", "where", "documents"),
    [
        ("turns.content", None, "ann to be,ann or not,ann to do,bob hello"),
        ("turns[].content", None, "ann to be,ann or not,ann to do,bob hello"),
        ("turns.content", "turns.role=user", "ann to be,ann to do"),
        ("turns.content", "turns.toxic=true", "ann to be,ann to do"),
        ("turns.content", "turns.n=7", "ann to be,ann or not,ann to do,bob hello"),
        ("turns.content", "turns.role=system,assistant", "ann or not,bob hello"),
        ("turns.content", "language=English", "ann to be,ann or not,ann to do"),
        ("turns.content", ["language=Danish", "turns.role=user"], ""),
        ("language", "turns.role=user", "ann English"),
        ("tags[]", None, "ann x,ann y,eve z"),
        ("tags[]", "tags=y", "ann x,ann y"),
        ("a.b", None, "ann dotted,bob dot,eve d"),
        ("a.b", "a.b=dot", "bob dot"),
        (["language", "turns.content"], "turns.role=user", "ann English,ann to be,ann to do"),
    ],
)
def test_each_text_at_the_end_of_a_path_is_a_document(tmp_path, kind, text, where, documents):
    path = write_records(tmp_path, CHATS, kind)
    for block_bytes in (1, 10**6):
        rows, rejects = read(
            [path], user_field="by.id", text_field=text, where=where, block_bytes=block_bytes
        )
        assert sorted(" ".join(row) for row in rows) == sorted(filter(None, documents.split(",")))
        assert rejects == []


def records() -> st.SearchStrategy[list[dict[str, Any]]]:
    """Records with the same shape, in which everything may be null, as in Parquet."""
    words = st.sampled_from(["a", "b", ""]) | st.none()
    part = st.fixed_dictionaries(
        {"kind": words, "text": words, "list": st.lists(words) | st.none()}
    )
    inner = st.fixed_dictionaries({"id": words, "parts": st.lists(part | st.none()) | st.none()})
    record = st.fixed_dictionaries(
        {"by": inner | st.none(), "text": words, "in": inner, "by.k": words}
    )
    return st.lists(record, min_size=1, max_size=5)


PATHS = ["text", "in.id", "in.parts.text", "in.parts.list[]", "by.parts[].text", "by.k"]
CONDITIONS = ["text=a", "in.parts.kind=a,b", "in.id=b", "by.parts.kind=a", "in.parts.list=a"]
TYPES = pa.struct(
    [
        ("id", pa.string()),
        (
            "parts",
            pa.list_(
                pa.struct(
                    [
                        ("kind", pa.string()),
                        ("text", pa.large_string()),
                        ("list", pa.list_(pa.string())),
                    ]
                )
            ),
        ),
    ]
)
SCHEMA = pa.schema([("by", TYPES), ("text", pa.string()), ("in", TYPES), ("by.k", pa.string())])


@settings(max_examples=60, deadline=None)
@given(
    records(),
    st.lists(st.sampled_from(PATHS), min_size=1, max_size=2, unique=True),
    st.lists(st.sampled_from(CONDITIONS), max_size=2, unique=True),
)
def test_all_formats_give_the_same_documents_and_rejects(
    tmp_path_factory, written, texts, conditions
) -> None:
    folder = tmp_path_factory.mktemp("nested")
    pq.write_table(pa.Table.from_pylist(written, SCHEMA), folder / "a.parquet")
    read_as = {}
    for kind in FORMATS:
        path = folder / f"a.{kind}"
        if kind != "parquet":
            write_records(folder, written, kind)
        rows, rejects = read(
            [path], user_field="by.id", text_field=texts, where=conditions or None, block_bytes=200
        )
        reasons = [reason for *_, reason in rejects]
        places = [(position, reason) for position, _, reason in rejects]
        read_as[kind] = (rows, reasons if kind == "jsonl" else places)
    assert read_as["parquet"] == read_as["json"]
    assert read_as["jsonl"] == (read_as["json"][0], [reason for _, reason in read_as["json"][1]])


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    ("record", "where", "found"),
    [
        ({"by": {"id": None}, "t": [{"x": "a"}]}, None, NO_USER),
        ({"by": None, "t": [{"x": "a"}]}, None, NO_USER),
        ({"by": {"id": "ann"}, "t": [{"x": None}, None]}, None, NO_TEXT),
        ({"by": {"id": "ann"}, "t": None}, None, NO_TEXT),
        ({"by": {"id": "ann"}, "t": None}, "by.id=ann", NO_TEXT),
        ({"by": {"id": "ann"}, "t": []}, None, None),
        ({"by": {"id": "ann"}, "t": [{"x": "a"}]}, "t.x=b", None),
        ({"by": {"id": None}, "t": [{"x": "a"}]}, "t.x=b", None),
    ],
)
def test_a_record_without_text_is_a_reject_unless_a_list_is_empty_or_a_condition_fails(
    tmp_path, kind, record, where, found
) -> None:
    usable = {"by": {"id": "bob"}, "t": [{"x": "b"}]}
    whole = [usable, record] if where is None else [record]
    path = write_records(tmp_path, whole, kind)
    if kind == "parquet":
        fields = [pa.field("by", pa.struct([("id", pa.string())]))]
        fields.append(pa.field("t", pa.list_(pa.struct([("x", pa.string())]))))
        pq.write_table(pa.Table.from_pylist(whole, pa.schema(fields)), path)
    rows, rejects = read([path], user_field="by.id", text_field="t.x", where=where)
    assert rows == ([("bob", "b")] if where is None else [])
    assert [reason for *_, reason in rejects] == ([] if found is None else [found])


def test_one_text_that_cannot_be_used_rejects_the_whole_record(tmp_path) -> None:
    good = {"user": "ann", "turns": [{"x": ["to", "be"]}, {"x": ["or"]}]}
    bad = {"user": "bob", "turns": [{"x": ["not"]}, {"x": [None]}]}
    for kind in FORMATS:
        path = write_records(tmp_path, [good, bad], kind)
        rows, rejects = read([path], text_field="turns.x", text_is_tokens=True)
        assert rows == [("ann", ["to", "be"]), ("ann", ["or"])]
        assert len(rejects) == 1


def test_a_user_in_a_list_is_refused(tmp_path) -> None:
    """Its texts would be those of several people."""
    record = {"people": [{"id": "ann"}, {"id": "bob"}], "text": "to be"}
    for kind in FORMATS[:2]:
        path = write_records(tmp_path, [record], kind)
        assert [reason for *_, reason in read([path], user_field="people.id")[1]] == [USERS_OF_LIST]
    path = write_records(tmp_path, [record], "parquet")
    with pytest.raises(InputError, match=r"got list in 'people\.id'"):
        read([path], user_field="people.id")


def test_a_record_counts_once_however_many_texts_it_has(tmp_path) -> None:
    for kind in FORMATS:
        (file,) = match_inputs([str(write_records(tmp_path, CHATS, kind))])
        options = ReadOptions(user_field="by.id", text_field="turns.content")
        (item,) = plan_reads(file, options)
        assert sum(batch.usable for batch in read_item(item, options)) == 2


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"text_field": "turns.contents"}, "Did you mean turns.content"),
        ({"text_field": "turns[].contents"}, "Did you mean turns.content"),
        ({"text_field": "turns.words"}, "It has the fields .*turns.content"),
        ({"user_field": "by.ids"}, "Did you mean by.id"),
        ({"where": "turns.rol=user"}, "`where` must name a field.*Did you mean turns.role"),
        ({"where": "tongue=da"}, "`where` must name a field.*language"),
    ],
)
def test_a_path_that_leads_nowhere_is_named_before_the_run(tmp_path, kind, changed, message):
    named = {"user_field": "by.id", "text_field": "turns.content", **changed}
    files = match_inputs([str(write_records(tmp_path, CHATS[:2], kind))])
    with pytest.raises(InputError, match=message):
        check_fields(files, ReadOptions(**named))


def test_conditions_hold_for_lines_of_columns(tmp_path) -> None:
    data = "user,text,kind\nann,to be,note\nbob,or not,call\neve,x\n"
    for kind, sign in (("csv", ","), ("tsv", "\t")):
        path = write(tmp_path / f"a.{kind}", data.replace(",", sign))
        rows, rejects = read([path], where="kind=note,mail", block_bytes=1)
        assert (rows, len(rejects)) == ([("ann", "to be")], 1)


LISTS = {
    "statuses": {"meta": {"n": 2}, "statuses": "LIST"},
    "chats.list[].messages": {
        "about": "x",
        "chats": {"list": [{"name": "a", "messages": "LIST"}, {"messages": []}]},
    },
    "[].messages": [{"name": "a", "messages": "LIST"}, {"name": "b"}],
}


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("path", LISTS)
def test_one_object_may_hold_the_list_of_records(tmp_path, path: str, indent: int | None) -> None:
    messages = [{"from": {"id": f"p{n}"}, "text": "to be"} for n in range(3)]
    data = json.dumps(LISTS[path], indent=indent).replace(
        '"LIST"', json.dumps(messages, indent=indent)
    )
    file = write(tmp_path / "a.json", data)
    for sizes in ({}, {"block_bytes": 1, "split_bytes": 10}):
        rows, rejects = read([file], user_field="from.id", records=path, **sizes)
        assert (rows, rejects) == ([(f"p{n}", "to be") for n in range(3)], [])
    files = match_inputs([str(file)])
    with pytest.raises(InputError, match="records"):
        check_fields(files, ReadOptions(user_field="from.id"))
    wrong = ReadOptions(user_field="from.id", records=f"{path}s")
    with pytest.raises(InputError, match=r"`records` must name a list.*Did you mean"):
        check_fields(files, wrong)


PARTS = {
    "country=dk/day=2026-01-05": ("dk", "2026-01-05"),
    "country=c%C3%B4te%20d%27ivoire/day=07": ("côte d'ivoire", "07"),
    "country=__HIVE_DEFAULT_PARTITION__/day=1": (None, "1"),
}


@pytest.mark.parametrize("kind", [*FORMATS, "csv"])
def test_folders_of_partitions_give_fields(tmp_path, kind) -> None:
    for place, below in enumerate(PARTS):
        folder = tmp_path / "events" / below
        folder.mkdir(parents=True)
        record = {"user": f"u{place}", "text": "to be", "note": {"text": "or not"}}
        if kind == "csv":
            write(folder / "a.csv", f"user,text\nu{place},to be\n")
        else:
            write_records(folder, [record], kind)
    countries = [country for country, _ in PARTS.values() if country is not None]
    rows, rejects = read([tmp_path / "events"], user_field="country")
    assert (sorted(rows), len(rejects)) == ([(each, "to be") for each in sorted(countries)], 1)
    options = ReadOptions(group_field="day")
    for file in match_inputs([f"{tmp_path}/events/*/*/a.{kind}"]):
        check_fields([file], options)
        (item,) = plan_reads(file, options)
        (day,) = [batch.documents["group"].to_pylist() for batch in read_item(item, options)]
        assert day == [PARTS["/".join(file.path.split("/")[-3:-1])][1]]
    where = {"where": ["day=07,1", "text=to be"]}
    assert sorted(user for user, _ in read([tmp_path / "events"], **where)[0]) == ["u1", "u2"]
    if kind != "csv":
        rows, rejects = read([tmp_path / "events"], user_field="day", text_field="note.text")
        assert sorted(rows) == [(day, "or not") for day in ("07", "1", "2026-01-05")]


@pytest.mark.parametrize("kind", [*FORMATS, "csv"])
def test_a_field_of_a_record_wins_over_one_of_its_path(tmp_path, kind) -> None:
    """Else a folder's name could make one user of many."""
    folder = tmp_path / "user=all"
    folder.mkdir()
    if kind == "csv":
        write(folder / "a.csv", "user,text\nann,to be\n")
    else:
        write_records(folder, [{"user": "ann", "text": "to be"}], kind)
    assert read([tmp_path]) == ([("ann", "to be")], [])


def chats(users: int) -> list[dict[str, Any]]:
    said = [turn("user", "good morning"), turn("assistant", "to you"), turn("user", "and good bye")]
    return [{"by": {"id": f"p{n}"}, "turns": said[: 1 + n % 3]} for n in range(users)]


def test_a_run_reads_the_same_on_this_machine_and_on_beam_and_joins_no_two_texts(cli, tmp_path):
    for country in ("dk", "se"):
        for kind in ("jsonl", "parquet"):
            folder = tmp_path / "chats" / f"country={country}" / kind
            folder.mkdir(parents=True)
            write_records(folder, chats(300), kind)
    write(tmp_path / "run.key", "5eed" * 16)
    fields = ("--user_field", "by.id", "--text_field", "turns[].content")
    where = ("--where", "turns.role=user", "--where", "country=dk,se", "--group_field", "country")
    given = ("ngrams", "--input", tmp_path / "chats", *fields, *where, "--max_length", "3")
    budget = ("--epsilon", "10", "--delta", "1e-4", "--run_key_file", tmp_path / "run.key")
    releases = []
    for runner in (*[("--workers", n) for n in (1, 2, 7)], ("--runner", "DirectRunner")):
        ended = cli(*given, *budget, "--output", tmp_path / "-".join(map(str, runner)), *runner)
        assert ended.status == 0, ended.err
        releases.append(tmp_path / "-".join(map(str, runner)))
    expected = release_bytes(releases[0])
    assert all(release_bytes(each) == expected for each in releases)
    released = {
        json.loads(line)["ngram"]
        for path in releases[0].rglob("*.jsonl")
        for line in path.read_text().splitlines()
    }
    assert "and good bye" in released
    assert not any("you" in each.split() or "morning and" in each for each in released)
    details = json.loads((releases[0] / "ledger.json").read_text())["input"]["details"]
    assert json.loads(details["where"]) == ["turns.role=user", "country=dk,se"]
    judged = cli("evaluate", "--release", releases[0], "--input", tmp_path / "chats")
    assert judged.status == 0, judged.err


def test_check_names_a_text_field_that_no_record_has(cli, tmp_path):
    """The other one has texts, so that a run goes on without it."""
    path = write_records(tmp_path, CHATS, "jsonl")
    fields = ("--user_field", "by.id", "--text_field", "language", "--text_field")
    for text, is_told in (("turns.contents", True), ("turns.content", False)):
        said = cli("check", "ngrams", "--input", path, *fields, text).out
        assert ("None of the first records has the text_field turns.contents" in said) == is_told


def test_conditions_name_columns_also_without_a_header(tmp_path) -> None:
    path = write(tmp_path / "a.csv", "ann,to be,note\nbob,or not,call\n")
    columns = ["user", "text", "kind"]
    assert read([path], columns=columns, where="kind=note") == ([("ann", "to be")], [])
    with pytest.raises(InputError, match="`where` must name a field"):
        read([path], columns=columns, where="sort=note")


def test_an_object_as_user_or_text_has_the_remedy_of_a_path(tmp_path) -> None:
    records = [{"user": {"id": "ann"}, "text": "to be", "said": {"text": "x"}}]
    for kind in FORMATS:
        files = match_inputs([str(write_records(tmp_path, records, kind))])
        with pytest.raises(InputError, match=r"user_field=(user\.id|message\.user)"):
            check_fields(files, ReadOptions())
        with pytest.raises(InputError, match=r"text_field=message\.text"):
            check_fields(files, ReadOptions(user_field="user.id", text_field="said"))


def test_objects_and_mailboxes_give_one_release_on_this_machine_and_on_beam(cli, tmp_path):
    people = [f"p{n}@example.org" for n in range(300)]
    messages = [{"from": {"id": person}, "text": "good morning"} for person in people]
    write(tmp_path / "a.json", json.dumps({"statuses": messages}, indent=1))
    mails = [f"From x\nFrom: {person}\n\ngood morning\n\n" for person in people]
    write(tmp_path / "a.mbox", "".join(mails))
    write(tmp_path / "run.key", "5eed" * 16)
    budget = ("--epsilon", "10", "--delta", "1e-4", "--run_key_file", tmp_path / "run.key")
    options = {"a.json": ("--records", "statuses", "--user_field", "from.id"), "a.mbox": ()}
    for name, fields in options.items():
        releases = []
        for runner in (("--workers", 2), ("--runner", "DirectRunner")):
            output = tmp_path / f"{name}-{runner[1]}"
            given = ("ngrams", "--input", tmp_path / name, *fields, *budget, "--output", output)
            ended = cli(*given, *runner)
            assert ended.status == 0, ended.err
            releases.append(release_bytes(output))
        assert releases[0] == releases[1]
        assert any(b"good morning" in part for part in releases[0].values())


@pytest.mark.parametrize("kind", FORMATS)
def test_of_names_with_dots_the_longest_that_is_there_counts(tmp_path, kind) -> None:
    records = [
        {"by": {"id": "inner"}, "by.id": "ann", "a": {"b": {"c": "x"}}, "a.b": {"c": "to be"}}
    ]
    path = write_records(tmp_path, records, kind)
    assert read([path], user_field="by.id", text_field="a.b.c") == ([("ann", "to be")], [])


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ([decimal.Decimal("7.00"), decimal.Decimal("7.50")], "7"),
        ([b"user", b"bot"], "user"),
        ([datetime.datetime(2026, 1, 5, 12, 0, 0, 500_000), None], "2026-01-05 12:00:00.5"),
    ],
)
def test_a_condition_names_a_value_by_the_text_that_an_id_of_its_type_has(
    tmp_path, values: list[Any], named: str
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"user": ["a", "b"], "text": ["to", "be"], "of": values}), path)
    assert read([path], where=f"of={named}")[0] == [("a", "to")]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    ("text", "where", "texts"),
    [
        ("nodes.*.said.text", None, ["to be", "or not", "that is"]),
        ("nodes.*.said.text", "nodes.*.said.role=user", ["to be", "that is"]),
        ("nodes.*.said.text", ["nodes.*.said.role=user", "lang=en"], ["to be"]),
        ("nodes.*.parts[]", "nodes.*.said.role=bot", ["x", "y"]),
        ("lang", "nodes.*.said.role=bot", ["en"]),
    ],
)
def test_a_star_stands_for_every_key_of_an_object_or_a_map(tmp_path, kind, text, where, texts):
    def node(role: str, text: str, parts: list[str]) -> dict[str, Any]:
        return {"said": {"role": role, "text": text}, "parts": parts}

    chats = [
        {
            "user": "ann",
            "lang": "en",
            "nodes": {"n0": node("user", "to be", []), "n2": node("bot", "or not", ["x", "y"])},
        },
        {"user": "ann", "lang": "da", "nodes": {"n1": node("user", "that is", ["z"])}},
        {"user": "ann", "lang": "da", "nodes": {}},
    ]
    path = tmp_path / f"a.{kind}"
    if kind == "jsonl":
        write(path, "".join(f"{json.dumps(chat)}\n" for chat in chats))
    else:
        said = pa.struct([("role", pa.string()), ("text", pa.string())])
        nodes = pa.map_(pa.string(), pa.struct([("said", said), ("parts", pa.list_(pa.string()))]))
        rows = [chat | {"nodes": list(chat["nodes"].items())} for chat in chats]
        schema = pa.schema([("lang", pa.string()), ("nodes", nodes), ("user", pa.string())])
        pq.write_table(pa.Table.from_pylist(rows, schema), path)
    rows, rejects = read([path], text_field=text, where=where)
    assert (rows, rejects) == ([("ann", each) for each in texts], [])


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "csv"])
@pytest.mark.parametrize(
    ("where", "users"),
    [
        ("k=a,b", "bc"),
        ('k="a,b"', "a"),
        ('k="a,b",b', "ac"),
        ('k="say ""so"""', "d"),
        ("k=,b", "ce"),
    ],
)
def test_values_of_conditions_with_commas_are_quoted(tmp_path, kind, where, users) -> None:
    values = ["a,b", "a", "b", 'say "so"', ""]
    records = [{"user": user, "text": "x", "k": k} for user, k in zip("abcde", values, strict=True)]
    path = tmp_path / f"a.{kind}"
    if kind == "csv":
        quoted = [value.replace('"', '""') for value in values]
        lines = [f'{user},x,"{k}"\n' for user, k in zip("abcde", quoted, strict=True)]
        write(path, "".join(["user,text,k\n", *lines]))
    elif kind == "parquet":
        pq.write_table(pa.Table.from_pylist(records), path)
    else:
        write(path, "".join(f"{json.dumps(each)}\n" for each in records))
    assert "".join(user for user, _ in read([path], where=where)[0]) == users
    with pytest.raises(ValueError, match="as in a line of CSV"):
        ReadOptions(where='k="a,b')


@pytest.mark.parametrize(
    "other", ['{"others": [{"user": "b"}]}', '[{"user": "b", "text": "x"}]', "{}"]
)
def test_a_file_without_the_list_of_records_is_a_reject(tmp_path, other: str) -> None:
    write(tmp_path / "a.json", '{"list": [{"user": "a", "text": "to be"}]}')
    write(tmp_path / "b.json", other)
    write(tmp_path / "c.json", '{"list": []}')
    rows, rejects = read([tmp_path / f"{name}.json" for name in "abc"], records="list")
    assert rows == [("a", "to be")]
    assert [reject[-1] for reject in rejects] == [NO_LIST]
    with pytest.raises(InputError, match=r"`records` must name a list of objects in .*b\.json"):
        check_fields(match_inputs([str(tmp_path / "b.json")]), ReadOptions(records="list"))


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv"])
def test_errors_about_a_folder_name_the_file_and_its_fields(cli, tmp_path, kind) -> None:
    good = {"user": "ann", "text": "to be", "only_in_a": "x"}
    bad = {"user": "bob", "text": 7, "only_in_b": "x"} if kind == "parquet" else {"usr": "b"}
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist([good]), tmp_path / "a.parquet")
        pq.write_table(pa.Table.from_pylist([bad]), tmp_path / "b.parquet")
    elif kind == "csv":
        write(tmp_path / "a.csv", "user,text,only_in_a\nann,to be,x\n")
        write(tmp_path / "b.csv", "usr,text\nbob,x\n")
    else:
        write(tmp_path / "a.jsonl", "\n")
        write(tmp_path / "b.jsonl", json.dumps(bad) + "\n")
    said = cli("check", "ngrams", "--input", tmp_path).err
    assert f"b.{kind}" in said
    assert f"a.{kind}" not in said
    assert "only_in_a" not in said
    assert kind == "parquet" or "usr" in said
