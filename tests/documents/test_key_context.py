"""What a run key is bound to: whatever may change a weight draws other noise."""

import functools
import json
import random
import sys
import types
import unicodedata

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dpne import (
    BayesianCounts,
    KnownNgrams,
    NgramsPlan,
    PrivateNgrams,
    PrivateSetUnion,
    ProbabilitiesPlan,
    RunKey,
    SetUnionPlan,
)
from beam_dpne.cli.main import main
from beam_dpne.documents import run_keys as contexts
from beam_dpne.documents.run_keys import key_context, tokenizer_identity
from beam_dpne.documents.tokenizers import words
from beam_dpne.reading.options import InputDescription, ReadOptions
from beam_dpne.reading.steps import ReadDocuments
from beam_dpne.release.reading import read_ledger
from beam_dpne.release.steps import WriteRelease
from pipelines.msnbc import CategoryNames

KEY = RunKey(b"k" * 32)
PLANS = {
    "ngrams": NgramsPlan(epsilon=4, delta=1e-6, max_length=2),
    "set-union": SetUnionPlan(epsilon=4, delta=1e-6),
    "bayesian": ProbabilitiesPlan(epsilon=4, delta=1e-6),
}
SOME = KnownNgrams.of([("to", "be")])
WORDS = ["to", "be", "or", "not", "that", "is", "the", "question"]


def context(program="ngrams", **changes):
    given = {"tokenizer": "words", "described": InputDescription(), **changes}
    return key_context(given.pop("plan", PLANS[program]), **given)


def documents():
    chance = random.Random(5)
    return [(f"user {i}", " ".join(chance.choices(WORDS, k=6))) for i in range(400)]


_found = []


def _collect(grams):
    _found.append(grams)


def scores(described=None, plan=PLANS["ngrams"]):
    """The released bigrams of one key, with their scores."""
    _found.clear()
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        users = pipeline | beam.Create(documents())
        ngrams = users | PrivateNgrams(plan=plan, run_key=KEY, described=described)
        _ = ngrams.released[1] | beam.Map(_collect)
    (grams,) = _found
    return dict(zip(grams.keys.tolist(), grams.scores.tolist(), strict=True))


def differences(one, other):
    """How the scores of common bigrams differ."""
    return np.array([one[key] - other[key] for key in one.keys() & other.keys()])


@pytest.mark.parametrize("program", PLANS)
def test_the_context_names_version_parameters_records_and_tokenizer(program):
    whole = json.loads(context(program))
    assert whole["mechanism_version"] == contexts.MECHANISM_VERSION
    assert whole["program"] == program
    assert whole["parameters"] == json.loads(json.dumps(PLANS[program].key_parameters()))
    assert whole["records"] == {}, "what equals the default is left out"
    assert whole["tokenizer"] == tokenizer_identity("words")
    assert "beam_dpne" not in context(program, tokenizer=CategoryNames(["a"]))
    assert context(program) == context(program)


@pytest.mark.parametrize("program", PLANS)
def test_every_part_changes_the_context(program, monkeypatch):
    others = [
        context(program, tokenizer="whitespace"),
        context(program, public="digest"),
        *(
            context(program, described=described)
            for described in (
                InputDescription(user_field="customer"),
                InputDescription(text_fields=("body",)),
                InputDescription(text_fields=("subject", "body")),
                InputDescription(format="csv"),
                InputDescription(details=(("encoding", "latin-1"),)),
            )
        ),
        *(context(other) for other in PLANS if other != program),
    ]
    before = context(program)
    monkeypatch.setattr(contexts, "MECHANISM_VERSION", contexts.MECHANISM_VERSION + 1)
    others.append(context(program))
    monkeypatch.undo()
    for name in ("words", "whitespace", "unicode_words", "icu_words"):
        assert unicodedata.unidata_version in tokenizer_identity(name)["version"]
    monkeypatch.setattr(words, "version", "2, Unicode 1.0")
    others.append(context(program))
    assert len({before, *others}) == len(others) + 1


@pytest.fixture(scope="module")
def before():
    """The scores of the mechanism as it is."""
    return scores()


def test_another_version_of_the_mechanism_draws_other_noise(before, monkeypatch):
    """Without it, the scores of two versions differ by their weights alone: here not at all."""
    assert differences(before, scores()).tolist() == [0.0] * len(before)
    monkeypatch.setattr(contexts, "MECHANISM_VERSION", contexts.MECHANISM_VERSION + 1)
    assert (differences(before, scores()) != 0).mean() > 0.9


def test_records_read_in_another_way_draw_other_noise(before):
    after = scores(InputDescription(user_field="customer", format="csv"))
    assert (differences(before, after) != 0).mean() > 0.9


@pytest.mark.parametrize(
    "settings",
    [
        {"where": "role=user"},
        {"records": "statuses"},
        {"normalize_users": True},
        {"record_is_user": True},
        {"quoting": "backslash"},
        {"max_record_bytes": 99},
        {"user_field": ["tenant", "id"]},
        {"user_field": "tenant,id"},
        {"group_field": "country"},
    ],
)
def test_each_way_to_read_records_has_a_context_of_its_own(settings):
    plain = ReadOptions().description
    described = [ReadOptions(**settings).description, ReadOptions(user_field="id").description]
    found = {context("ngrams", described=each) for each in (plain, *described)}
    assert len(found) == 3


def test_the_programs_bind_the_key_to_how_files_are_read(tmp_path):
    rows = [{"user": user, "text": text, "body": text} for user, text in documents()]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "key").write_text("ab" * 32)
    released = {}
    for number, field in enumerate(("text", "text", "body")):
        output = str(tmp_path / f"out{number}")
        given = ["--input", str(tmp_path / "a.jsonl"), "--run_key_file", str(tmp_path / "key")]
        options = ["--epsilon", "4", "--delta", "1e-6", "--max_length", "2", "--quiet"]
        assert main(["ngrams", *given, *options, "--output", output, "--text_field", field]) == 0
        released[number] = [part["sha256"] for part in read_ledger(output)["parts"]]
        assert read_ledger(output)["run_key"]["mechanism_version"] == contexts.MECHANISM_VERSION
    assert released[0] == released[1] != released[2]


def _module(source):
    module = types.ModuleType("own_tokenizer")
    exec(source, module.__dict__)
    return module


def own(texts: pa.Array) -> pa.ListArray:
    return pa.array([[text] for text in texts.to_pylist()], pa.list_(pa.string()))


def test_a_tokenizer_of_the_users_own_is_known_by_its_source_or_its_version(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    versions = []
    for source in ("def cut(texts): ...\n", "def cut(texts): return texts\n"):
        (tmp_path / "own_cut.py").write_text(source)
        sys.modules.pop("own_cut", None)
        contexts.inspect.linecache.checkcache()
        versions.append(tokenizer_identity("own_cut:cut"))
    assert versions[0]["name"] == versions[1]["name"] == "own_cut:cut"
    assert versions[0]["version"] != versions[1]["version"]
    assert tokenizer_identity(own)["version"] == tokenizer_identity(f"{__name__}:own")["version"]
    own.version = "2026-01"
    try:
        assert tokenizer_identity(own)["version"] == "2026-01"
    finally:
        del own.version


def test_a_tokenizer_without_source_is_known_by_name_alone():
    module = _module("def cut(texts): return texts")
    assert tokenizer_identity(module.cut)["version"] == "unknown"


def test_what_a_callable_object_holds_is_part_of_its_version():
    one, other = CategoryNames(["a", "b"]), CategoryNames(["b", "a"])
    assert tokenizer_identity(one)["name"] == "msnbc_categories"
    assert tokenizer_identity(one) != tokenizer_identity(other)
    assert tokenizer_identity(one) == tokenizer_identity(CategoryNames(["a", "b"]))


class Stateful:
    def __init__(self, dropped=None):
        self.dropped = dropped

    def __call__(self, texts):
        return own(texts)

    def cut(self, texts):
        return own(texts)


def _closure(dropped):
    def cut(texts):
        return own(texts) if dropped else texts

    return cut


def _wrapped(dropped):
    @functools.wraps(own)
    def cut(texts):
        return own(texts) if dropped else texts

    return cut


@functools.wraps(words)
def wrapping_words(texts):
    """Has the name, the module and the version of another tokenizer."""
    return own(texts)


UNKNOWN = {
    "wrapping a tokenizer that has a version": wrapping_words,
    "partial": functools.partial(own),
    "lambda": lambda texts: own(texts.slice(1)),
    "closure": _closure("a"),
    "closure with the name of a function at the top": _wrapped("a"),
    "object": Stateful("a"),
    "method": Stateful("a").cut,
    "no source": _module("def cut(texts): return texts").cut,
}


@pytest.mark.parametrize("make", [PrivateNgrams, PrivateSetUnion])
def test_a_given_key_needs_a_tokenizer_whose_identity_says_what_it_does(make):
    plan = PLANS["ngrams" if make is PrivateNgrams else "set-union"]
    users = beam.Pipeline(runner=FnApiRunner()) | beam.Create(documents())
    for kind, tokenizer in UNKNOWN.items():
        with pytest.raises(ValueError, match="attribute `version`"):
            _ = users | f"{kind}, a key" >> make(plan=plan, tokenizer=tokenizer, run_key=KEY)
        _ = users | f"{kind}, no key" >> make(plan=plan, tokenizer=tokenizer)
    _ = users | "Named" >> make(plan=plan, tokenizer=own, run_key=KEY)


def test_a_version_is_enough():
    tokenizer = Stateful("a")
    tokenizer.version = "drops a"
    users = beam.Pipeline(runner=FnApiRunner()) | beam.Create(documents())
    _ = users | PrivateNgrams(plan=PLANS["ngrams"], tokenizer=tokenizer, run_key=KEY)
    assert tokenizer_identity(tokenizer)["version"] == "drops a"


def test_the_fields_of_rows_count_beside_a_description():
    described = InputDescription(user_field="customer", format="csv")
    rows = [
        InputDescription(),
        InputDescription(user_field="a"),
        InputDescription(text_fields=("b",)),
    ]
    assert len({context(described=described, rows=fields) for fields in rows}) == 3


@pytest.mark.parametrize("make", [PrivateNgrams, PrivateSetUnion])
def test_fields_of_a_pipeline_reach_the_key(make, monkeypatch):
    plan = PLANS["ngrams" if make is PrivateNgrams else "set-union"]
    bound = []
    monkeypatch.setattr(RunKey, "bound_to", lambda key, context: bound.append(context) or key)
    for user, text in (("user", "text"), ("customer", "text"), ("user", "body")):
        documents = beam.Pipeline() | beam.Create([{user: "ann", text: "to be"}])
        _ = documents | make(plan=plan, run_key=KEY, user_field=user, text_field=text)
    assert len(bound) == 3
    assert len(set(bound)) == 3


def test_reading_says_how_it_read_and_the_ledger_of_a_pipeline_names_its_fields(tmp_path):
    (tmp_path / "a.csv").write_text("who,said\n" + "".join(f"u{i},to be\n" for i in range(300)))
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        read = pipeline | ReadDocuments(
            inputs=[str(tmp_path / "a.csv")], user_field="who", text_field="said"
        )
        found = read.documents | PrivateNgrams(plan=PLANS["ngrams"], described=read.described)
        publish = WriteRelease(
            output=str(tmp_path / "out"),
            output_format="jsonl",
        )
        _ = found | publish
    ledger = read_ledger(str(tmp_path / "out"))
    assert ledger["input"]["user_field"] == "who"
    assert ledger["input"]["text_fields"] == ["said"]


@pytest.mark.parametrize(
    ("transform", "given", "message"),
    [
        (PrivateNgrams, {"plan": None}, "`plan` must be NgramsPlan, got NoneType"),
        (PrivateSetUnion, {"plan": PLANS["ngrams"]}, "`plan` must be SetUnionPlan, got NgramsPlan"),
        (
            BayesianCounts,
            {"plan": PLANS["bayesian"], "public": None},
            "`public` must be PublicCounts",
        ),
        (
            PrivateNgrams,
            {"plan": PLANS["ngrams"], "run_key": b"k" * 32},
            "`run_key` must be .*RunKey",
        ),
        (
            PrivateSetUnion,
            {"plan": PLANS["set-union"], "known": SOME},
            "`known` must be .*KnownItems",
        ),
    ],
)
def test_a_transform_refuses_what_is_of_another_type(transform, given, message):
    with pytest.raises(TypeError, match=message):
        transform(**given)
