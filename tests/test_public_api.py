"""What users import: names, docstrings, start-up time, and secrets that never print."""

import dataclasses
import importlib
import inspect
import pathlib
import re
import subprocess
import sys

import apache_beam as beam
import pytest
from apache_beam.runners.interactive import interactive_beam as ib
from apache_beam.runners.interactive.interactive_runner import InteractiveRunner
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

import beam_dpne
from beam_dpne import (
    BayesianCounts,
    CountPhrases,
    NgramsPlan,
    PhraseCountsPlan,
    PhraseList,
    PrivateSetUnion,
    ProbabilitiesPlan,
    PublicCounts,
    RunKey,
    SetUnionPlan,
    steps,
)
from beam_dpne.ngrams.range_steps import SampleSpurious
from beam_dpne.set_union.steps import ReleaseItems
from beam_dpne.steps import LengthPlan

SAMPLES = {
    "length": 2,
    "max_contributions": 2,
    "released": None,
    "previous": "the set before",
    "round_number": 1,
    "tokenizer": "words",
    "partitions": 2,
    "histogram_ranges": 2,
    "inputs": ["a.jsonl"],
    "output": "release",
    "output_format": "jsonl",
    "max_tokens_per_user": 10,
}
HEADINGS = ["Input", "Output", "Privacy", "Cost", "Attributes", "Raises", "Example", "References"]
SECRET = bytes(range(1, 33))
PLAN = NgramsPlan(epsilon=1, delta=1e-7, max_length=2)
UNION_PLAN = SetUnionPlan(epsilon=1, delta=1e-7)
SAMPLES |= {"run_key": RunKey(SECRET), "plan": PLAN}
OWN_SAMPLES = {
    SampleSpurious: {"histogram": "sums"},
    ReleaseItems: {"plan": UNION_PLAN},
    PrivateSetUnion: {"plan": UNION_PLAN},
    BayesianCounts: {
        "plan": ProbabilitiesPlan(epsilon=1, delta=1e-7, length=1),
        "public": PublicCounts.of([("a",)], [1]),
    },
    CountPhrases: {
        "plan": PhraseCountsPlan(epsilon=1, delta=1e-7),
        "phrases": PhraseList.of([("a",)]),
    },
}


def public_transforms():
    found = [getattr(beam_dpne, name) for name in beam_dpne.__all__]
    found += [getattr(steps, name) for name in steps.__all__]
    kinds = (
        kind for kind in set(found) if inspect.isclass(kind) and issubclass(kind, beam.PTransform)
    )
    return sorted(kinds, key=lambda kind: kind.__name__)


def test_all_names_have_a_home():
    assert sorted(beam_dpne.__all__) == sorted(beam_dpne._HOME)
    assert dir(beam_dpne) == sorted(beam_dpne.__all__)
    for name, home in beam_dpne._HOME.items():
        value = getattr(beam_dpne, name)
        assert value is getattr(importlib.import_module(home), name)
        assert value.__module__ == home


def test_the_former_name_of_the_plan_still_works_and_is_not_listed():
    assert beam_dpne.PrivacyPlan is beam_dpne.NgramsPlan
    assert "PrivacyPlan" not in dir(beam_dpne)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'PrivateTetragrams'"):
        _ = beam_dpne.PrivateTetragrams


def test_type_checkers_see_what_users_import():
    """A stub re-exports what it imports under its own name."""
    stub = pathlib.Path(beam_dpne.__file__).with_suffix(".pyi").read_text()
    seen = re.findall(r"^from (\S+) import (\w+) as (\w+)$", stub, re.MULTILINE)
    assert all(name == alias for _, name, alias in seen)
    assert {name: home for home, name, _ in seen} == beam_dpne._HOME
    assert len(seen) == len(beam_dpne._HOME), "each name is written once"


def test_there_are_transforms():
    names = {kind.__name__ for kind in public_transforms()}
    assert {"ExtractGrams", "PrivateNgrams", "ReadDocuments", "WriteRelease"} <= names
    assert {
        "SpendBudgets",
        "SampleSpurious",
        "DecideRound",
        "PrivateSetUnion",
        "ReleaseItems",
    } <= names
    assert "BayesianCounts" in names


@pytest.mark.parametrize("kind", public_transforms(), ids=lambda kind: kind.__name__)
class TestEachTransform:
    def test_has_the_headings_in_order(self, kind):
        doc = inspect.cleandoc(kind.__doc__)
        assert re.match(r"[A-Z]\w+s\b.*\.$", doc.splitlines()[0]), "one line: verb, object"
        wanted = [name for name in HEADINGS if name != "Attributes" or dataclasses.fields(kind)]
        found = re.findall(rf"^({'|'.join(HEADINGS)}):", doc, re.MULTILINE)
        # A transform that checks nothing has no heading for it; see the test of `raise` below.
        assert found in (wanted, [name for name in wanted if name != "Raises"])

    def test_has_an_example_that_runs(self, kind):
        assert ">>> " in inspect.cleandoc(kind.__doc__).split("\nExample:")[1]

    def test_documents_its_fields(self, kind):
        doc = inspect.cleandoc(kind.__doc__)
        part = doc.partition("\nAttributes:")[2].partition("\nRaises:")[0]
        documented = re.findall(r"^  (\w+(?:, \w+)*):", part, re.MULTILINE)
        names = {name for names in documented for name in names.split(", ")}
        assert names == {field.name for field in dataclasses.fields(kind)}

    def test_is_a_dataclass_with_keywords_and_identity(self, kind):
        assert dataclasses.is_dataclass(kind)
        assert kind.__eq__ is object.__eq__
        assert all(field.kw_only for field in dataclasses.fields(kind))

    def test_says_raises_if_it_checks_fields(self, kind):
        checks = "raise " in inspect.getsource(kind)
        assert not checks or "\nRaises:" in inspect.cleandoc(kind.__doc__)

    def test_never_prints_a_run_key(self, kind):
        names = {field.name for field in dataclasses.fields(kind)}
        samples = SAMPLES | OWN_SAMPLES.get(kind, {})
        transform = kind(**{name: value for name, value in samples.items() if name in names})
        shown = repr(transform) + str(transform)
        assert_no_secret(shown)


def assert_no_secret(shown):
    assert SECRET.hex() not in shown
    assert repr(SECRET)[2:-1] not in shown
    assert "_secret" not in shown


def test_a_run_key_never_prints():
    key = RunKey(SECRET)
    assert_no_secret(f"{key} {key!r} {[key]}")


def modules_after(statement):
    code = f"import sys; {statement}; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import beam_dpne", {"apache_beam", "beam_dpne.engines", "numpy", "pyarrow", "scipy"}),
        (
            "import beam_dpne.cli.main",
            {"apache_beam", "numpy", "pyarrow", "scipy", "rich", "matplotlib"},
        ),
        ("from beam_dpne import ProbabilitiesPlan, NgramsPlan", {"apache_beam", "pyarrow"}),
        ("import beam_dpne.yaml, beam_dpne.jobs.running", {"beam_dpne.cli"}),
    ],
)
def test_a_program_starts_without_what_it_does_not_need(statement, absent):
    assert not absent & set(modules_after(statement))


def test_plans_show_their_numbers():
    assert isinstance(PLAN.lengths[0], LengthPlan)
    assert "noise_stddev=" in repr(PLAN.lengths[0])


def test_a_notebook_collects_and_shows_rows_and_sets():
    pipeline = beam.Pipeline(InteractiveRunner(underlying_runner=FnApiRunner()))
    items = pipeline | beam.Create([(f"user {i}", ["tea", "rye"]) for i in range(200)])
    plan = SetUnionPlan(epsilon=10, delta=1e-4, policy="weighted_gaussian")
    union = items | PrivateSetUnion(plan=plan)
    ib.watch({"rows": union.rows, "released": union.released})
    try:
        rows = ib.collect(union.rows)
        assert list(rows.columns) == ["item", "score", "users", "users_low", "users_high"]
        assert sorted(rows["item"]) == ["rye", "tea"]
        (released,) = ib.collect(union.released, raw_records=True)
        assert sorted(released.items.to_pylist()) == ["rye", "tea"]
        ib.show(union.rows)
        ib.show(union.released)
    finally:
        ib.evict_recorded_data(pipeline)
