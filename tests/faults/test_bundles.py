"""Bundles that fail, are split, repeated, lost or late: the release is that of an easy run."""

import ast
import importlib
import json
import pathlib
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_dpne
from beam_dpne import yaml
from beam_dpne.cli.runners import EmbeddedRunner
from beam_dpne.elements.batches import SumBundle
from beam_dpne.reading.transform import ReadDocuments
from beam_dpne.release.publishing import WriteRelease
from beam_dpne.storage.run_files import Markers, make_marker
from tests.faults import conftest
from tests.faults.conftest import ADAPTIVE, ADAPTIVE_SMALL, ONE_STEP
from tests.faults.probabilities import Probabilities
from tests.faults.runner import FaultyRunner
from tests.faults.schedules import (
    BETWEEN,
    LOST,
    POINTS,
    EveryPoint,
    Fault,
    Keyed,
    Schedule,
    attempt,
    kind_of,
)
from tests.faults.tally import SAME, TALLY, WHOLE_RUN
from tests.faults.unions import POLICIES, Unions

pytestmark = pytest.mark.faults

PACKAGE = pathlib.Path(beam_dpne.__file__).parent
STEPS = [f"beam.{name}" for name in ("ParDo", "Map", "FlatMap", "MapTuple", "FlatMapTuple")]
VARIANTS = {
    "plain": (),
    "single pruning": ("--pruning", "single"),
    "estimated counts": ("--valid_count", "estimate"),
    "tsv": ("--output_format", "tsv", "--max_length", "4"),
    "parquet, giants": ("--output_format", "parquet", "--max_tokens_per_user", "30"),
    "sets as files": ("--side_input_limit", "1"),
    "one partition": ("--partitions", "1"),
    "adaptive": ADAPTIVE,
    "adaptive, single pruning": (*ADAPTIVE, "--pruning", "single"),
    "adaptive, even budgets": (*ADAPTIVE, "--user_budgets", "even", "--rounds", "1"),
    "adaptive, sets as files": (*ADAPTIVE, "--side_input_limit", "1", "--rounds", "2"),
}


def assert_same(outcome, expected):
    assert outcome.ended.status == 0, outcome.ended.err
    assert outcome.release == expected.release
    assert outcome.rejects == expected.rejects
    assert "2 records were rejected" in outcome.ended.err


def is_silent(step, point):
    """Whether a step never reaches a point: one without any output has nothing between its outputs."""
    # The few words that are open in their last round are in one hash range.
    is_silent_step = step.endswith(("Users/None", "Items/None", "1/3/WeightedHistogram/SumBundle"))
    return is_silent_step and point == BETWEEN


def never_reached(schedule):
    return {fault for fault in schedule.pending if not is_silent(fault.step, fault.kind)}


@pytest.mark.parametrize(
    "others",
    [
        pytest.param((), id="one round"),
        pytest.param(ADAPTIVE_SMALL, id="adaptive, two rounds"),
        pytest.param((*ADAPTIVE_SMALL, *ONE_STEP), id="adaptive, in one step"),
        pytest.param(ADAPTIVE, id="adaptive", marks=pytest.mark.slow),
    ],
)
def test_every_dofn_survives_a_fault_at_every_point(disturbed, undisturbed, nothing_leaks, others):
    schedule = EveryPoint()
    outcome, runner = disturbed(schedule, *others, twice=0.1)
    assert_same(outcome, undisturbed(*others))
    TALLY.add(schedule.faults, SAME, schedule.count)
    assert never_reached(schedule) == set()
    struck = {(kind_of(fault.step), fault.kind) for fault in schedule.faults}
    points = {(step, point) for step in runner.steps for point in POINTS}
    assert struck == {
        (kind_of(step), point) for step, point in points if not is_silent(step, point)
    }
    spends = [step for step in runner.steps if "SpendBudgets" in step]
    assert len(spends) == {(): 0, ADAPTIVE_SMALL: 5, ADAPTIVE: 9}.get(others, 0)
    in_one_step = any("ReleaseInOneStep" in step for step in runner.steps)
    assert in_one_step == (others[-2:] == ONE_STEP)


class Library:
    """`PrivateNgrams` between a user's own steps: pairs and files go in, rows of text come out."""

    def __init__(self, folder):
        self._folder = folder
        self._plan = beam_dpne.PrivacyPlan(
            epsilon=8,
            delta=1e-4,
            max_length=2,
            max_contributions=20,
            spurious_fraction=0.9,
            strategy="one_round",
        )

    def _marks(self, name):
        marks = Markers(str(self._folder / f"{name}.temporary"))
        make_marker(marks.wanted)
        return marks

    def release(self, runner, name):
        """Files of the release, and lines of the decoded rows."""
        (self._folder / "in.jsonl").write_bytes(conftest.json_lines(conftest.rows(100, 8)))
        records = conftest.rows(300, 9)
        pairs = [(record["user"], record["text"]) for record in records]
        with beam.Pipeline(runner=runner) as pipeline:
            key = beam_dpne.RunKey.from_hex("5a" * 32)
            ngrams = beam_dpne.PrivateNgrams(plan=self._plan, partitions=5, run_key=key)
            read = pipeline | "Read" >> ReadDocuments(
                inputs=[str(self._folder / "in.jsonl")],
                # Only programs on engines have this step, which tells that a worker has started.
                on_start=self._marks(name).report_start,
            )
            documents = (pipeline | beam.Create(pairs), read.documents) | beam.Flatten()
            result: Any = documents | "Ngrams" >> ngrams
            _ = (
                result.released
                | "DecodeGrams" >> beam_dpne.DecodeGrams()
                | beam.FlatMap(lambda batch: map(json.dumps, batch.to_pylist()))
                | beam.io.WriteToText(str(self._folder / f"{name}.rows"), num_shards=1)
            )
            _ = result.rows | "SchemaRows" >> beam.Filter(lambda row: row.score < 0)
            _ = (
                result.released
                | "ListReport" >> beam_dpne.ListReport()
                | "Lines" >> beam.Map(str)
                | "WriteFacts" >> beam.io.WriteToText(str(self._folder / f"{name}.facts"))
            )
            _ = result | "Publish" >> WriteRelease(
                output=str(self._folder / name),
                output_format="jsonl",
            )
        decoded = next(self._folder.glob(f"{name}.rows*")).read_bytes().splitlines()
        return conftest.files_of(self._folder / name), sorted(decoded)


class FromYaml:
    """The transforms for Beam YAML, between rows of a Parquet file and a release."""

    def __init__(self, folder):
        self._folder = folder

    def release(self, runner, name):
        """Files of the release."""
        rows = conftest.rows(300, 8)
        pq.write_table(pa.Table.from_pylist(rows), self._folder / "in.parquet")
        (self._folder / "yaml.key").write_text("5a" * 32)
        with beam.Pipeline(runner=runner) as pipeline:
            path = str(self._folder / "in.parquet")
            found = (
                pipeline
                | yaml.ReadDocuments(input=path, rejects=str(self._folder / f"{name}-rejects"))
                | beam.Filter(bool)
                | yaml.PrivateNgrams(
                    epsilon=8,
                    delta=1e-4,
                    max_length=2,
                    strategy="one_round",
                    run_key_file=str(self._folder / "yaml.key"),
                )
            )
            _ = found | yaml.WriteRelease(output=str(self._folder / name))
        return conftest.files_of(self._folder / name)


def test_every_dofn_of_yaml_survives_a_fault_at_every_point(tmp_path, nothing_leaks, caplog):
    transforms, schedule = FromYaml(tmp_path), EveryPoint()
    expected = transforms.release(EmbeddedRunner(), "expected")
    assert len(expected) > 1
    assert transforms.release(FaultyRunner(schedule), "disturbed") == expected
    TALLY.add(schedule.faults, SAME, schedule.count)
    # The recorded errors hold the frames of a reader that was interrupted, and so its thread.
    caplog.clear()


def test_every_dofn_of_the_library_survives_a_fault_at_every_point(tmp_path, nothing_leaks, caplog):
    library, schedule = Library(tmp_path), EveryPoint()
    expected = library.release(EmbeddedRunner(), "expected")
    runner = FaultyRunner(schedule)
    assert library.release(runner, "disturbed") == expected
    TALLY.add(schedule.faults, SAME, schedule.count)
    assert never_reached(schedule) == set()
    assert any(step.endswith("DecodeGrams/Decode") for step in runner.steps)
    # As with YAML, the recorded errors hold the frames of a reader.
    caplog.clear()


@pytest.mark.slow
def test_every_dofn_of_set_unions_survives_a_fault_at_every_point(tmp_path, nothing_leaks):
    unions, schedule = Unions(tmp_path), EveryPoint()
    expected = unions.release(EmbeddedRunner(), "expected")
    assert all(expected.values())
    assert len(expected) == len(POLICIES) + 1
    assert unions.release(FaultyRunner(schedule), "disturbed") == expected
    TALLY.add(schedule.faults, SAME, schedule.count)
    assert never_reached(schedule) == set()


@pytest.mark.slow
def test_every_dofn_of_probabilities_survives_a_fault_at_every_point(tmp_path, nothing_leaks):
    found, schedule = Probabilities(tmp_path), EveryPoint()
    expected = found.release(EmbeddedRunner(), "expected")
    assert all(expected.values())
    assert found.release(FaultyRunner(schedule), "disturbed") == expected
    TALLY.add(schedule.faults, SAME, schedule.count)
    # The paper's modes have no noisy counts, so that the step has no output to fail after.
    assert all("NoCounts" in str(never) for never in schedule.pending)


def code_in_steps(path):
    """Full names of the functions and DoFn classes that a module gives to Beam's element-wise steps."""
    module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    module = module.removesuffix(".__init__")
    nodes = list(ast.walk(ast.parse(path.read_text())))
    made = {
        node.targets[0].id: node.value.func
        for node in nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Call)
    }
    for node in nodes:
        if isinstance(node, ast.Call) and ast.unparse(node.func) in STEPS:
            code = node.args[0].func if isinstance(node.args[0], ast.Call) else node.args[0]
            # What a method of the transform makes is a DoFn, and its class is found by `dofns`.
            if isinstance(code, ast.Name | ast.Attribute) and "self." not in ast.unparse(code):
                found = importlib.import_module(module)
                if isinstance(code, ast.Name) and not hasattr(found, code.id):
                    code = made[code.id]  # a DoFn of the step's own, made just before it
                for name in ast.unparse(code).split("."):
                    found = getattr(found, name)
                yield f"{found.__module__}.{found.__qualname__}"


def test_every_dofn_of_the_package_is_in_a_pipeline_with_faults(disturbed, tmp_path):
    """Code that no pipeline of these tests has would go without faults."""
    written = {name for path in PACKAGE.rglob("*.py") for name in code_in_steps(path)}
    classes = {f"{kind.__module__}.{kind.__qualname__}" for kind in dofns(beam.DoFn)}
    assert len(written) >= 15
    runners = [disturbed(Schedule(), *others)[1] for others in ((), ADAPTIVE_SMALL, ONE_STEP)]
    for made_of in (Library, Unions, Probabilities, FromYaml):
        runners.append(FaultyRunner(Schedule()))
        made_of(tmp_path).release(runners[-1], made_of.__name__)
    reached = {name for runner in runners for name in runner.steps.values()}
    # A job of its own before the pipeline is sent to an engine; it holds no data.
    first_job = {"beam_dpne.engines._check_versions"}
    assert first_job < written
    assert (written | classes) - first_job - reached == set()


def dofns(base):
    for kind in base.__subclasses__():
        yield from dofns(kind)
        # A base class is in a pipeline by the classes that are made of it.
        if kind.__module__.startswith("beam_dpne.") and not kind.__subclasses__():
            yield kind


@pytest.mark.parametrize(
    ("seed", "others"),
    [
        pytest.param(1, (), id="one round"),
        pytest.param(2, (), id="one round, again", marks=pytest.mark.slow),
        pytest.param(3, ADAPTIVE, id="adaptive", marks=pytest.mark.slow),
    ],
)
def test_faults_at_random_change_nothing(disturbed, undisturbed, nothing_leaks, seed, others):
    schedule = Keyed(seed, rate=0.05, delay=0.02)
    outcome, runner = disturbed(schedule, *others, seed=seed, twice=0.2, bundles=6)
    assert_same(outcome, undisturbed(*others))
    TALLY.add(schedule.faults, SAME, schedule.count)
    TALLY.add([Fault("run twice", WHOLE_RUN)] * runner.twice, SAME)
    assert schedule.count > 10
    assert runner.twice > 2


@pytest.mark.slow
def test_one_seed_gives_the_same_faults(disturbed):
    def faults():
        schedule = Keyed(5, rate=0.05)
        disturbed(schedule, seed=5, workers=1)
        return schedule.faults

    assert faults() == faults() != []


def test_splits_alone_change_nothing(disturbed, undisturbed):
    outcome, runner = disturbed(Schedule(), seed=3, bundles=12, workers=4)
    assert_same(outcome, undisturbed())
    assert runner.parts > 40
    TALLY.add([Fault("split", WHOLE_RUN)] * runner.parts, SAME, 0)


def test_every_bundle_run_twice_at_the_same_time_changes_nothing(disturbed, undisturbed):
    """Publication too: two workers put the same files into one directory at once."""
    outcome, runner = disturbed(Schedule(), seed=4, twice=1.0, workers=1)
    assert_same(outcome, undisturbed())
    assert runner.twice == runner.parts
    TALLY.add([Fault("run twice", WHOLE_RUN)] * runner.twice, SAME)


class EveryResult(Schedule):
    """Each bundle's first result is lost."""

    def _strikes(self, step, point):
        return point == LOST and attempt.number == 0


@pytest.mark.slow
@pytest.mark.parametrize("others", [(), ADAPTIVE], ids=["one round", "adaptive"])
def test_every_bundle_repeated_changes_nothing(disturbed, undisturbed, others):
    schedule = EveryResult()
    outcome, _ = disturbed(schedule, *others, seed=6)
    assert_same(outcome, undisturbed(*others))
    assert schedule.count > 20
    TALLY.add(schedule.faults, SAME, schedule.count)


def test_slow_side_inputs_change_nothing(disturbed, undisturbed):
    schedule = Keyed(7, rate=0.0, delay=0.05)
    outcome, runner = disturbed(schedule, seed=7, side_input_delay=0.1, workers=4, bundles=8)
    assert_same(outcome, undisturbed())
    assert runner.slow_reads > 5
    TALLY.add([Fault("slow side input", WHOLE_RUN)] * runner.slow_reads, SAME)


class EverySum(Schedule):
    """Each bundle that sums a histogram fails once, when some of its sums have been sent on."""

    def _strikes(self, step, point):
        return point == BETWEEN and step.endswith("/SumBundle") and attempt.number == 0


def test_a_dofn_that_keeps_sums_beyond_its_bundle_is_caught(disturbed, undisturbed, monkeypatch):
    """The faults are worth something: such a program gives the right release until a bundle fails."""
    kept = []

    def start_bundle(self):
        self._waiting, self._size = kept, 0

    def flush(self):
        yield from self._cut(self._merge(kept)) if kept else []
        kept.clear()

    monkeypatch.setattr(SumBundle, "start_bundle", start_bundle)
    monkeypatch.setattr(SumBundle, "_flush", flush)
    alone, _ = disturbed(Schedule(), bundles=1, workers=1)
    assert alone.release == undisturbed().release
    schedule = EverySum()
    faulty, _ = disturbed(schedule, bundles=1, workers=1)
    assert schedule.count > 0
    assert faulty.release != undisturbed().release


@pytest.mark.slow
def test_released_sets_as_files_survive_a_fault_at_every_point(
    disturbed, undisturbed, nothing_leaks
):
    schedule = EveryPoint()
    outcome, _ = disturbed(schedule, *VARIANTS["sets as files"])
    assert_same(outcome, undisturbed())
    assert never_reached(schedule) == set()
    TALLY.add(schedule.faults, SAME, schedule.count)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_hundreds_of_faults_change_nothing(disturbed, undisturbed, nothing_leaks, variant):
    others, count = VARIANTS[variant], 0
    for seed in (101, 102):
        schedule = Keyed(seed, rate=0.08, failures=6, delay=0.01)
        outcome, runner = disturbed(
            schedule, *others, seed=seed, twice=0.1, bundles=8, side_input_delay=0.02
        )
        assert_same(outcome, undisturbed(*others))
        TALLY.add(schedule.faults, SAME, schedule.count)
        TALLY.add([Fault("run twice", WHOLE_RUN)] * runner.twice, SAME)
        count += schedule.count
    assert count >= 50
