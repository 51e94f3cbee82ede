"""The operators, and the DAGs of deploy/airflow: imported, rendered and run by Airflow itself.

Airflow lives in an environment of its own (2.2 GB), which is made in the cache of deploy/downloads.py
when it is missing. The wheel of this checkout is installed on top of it, and nothing uses the checkout
but for the DAG files. The Dataflow DAGs are rendered, not run. The Flink DAG runs in
`test_a_deferred_task_waits_for_flink_and_hands_the_embedded_release_on`.
"""

import hashlib
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys
import venv

import pytest
from google.cloud import dataflow_v1beta3 as dataflow

from beam_dpne.airflow.options import TABLES
from beam_dpne.cli.main import run_program
from beam_dpne.cli.options import add_program
from beam_dpne.cli.options_by_command import BAYESIAN, NGRAMS, SET_UNION
from beam_dpne.release.files import read_ledger
from beam_dpne.release.reading import read_release
from beam_dpne.version import __version__
from deploy.downloads import cache, versions
from tests.cli.test_console_script import build_wheel
from tests.conftest import ROOT
from tests.engines.conftest import PRIVACY, SAMPLE, release_bytes
from tests.engines.flink import free_ports

pytestmark = [pytest.mark.engines, pytest.mark.airflow]
pytest_plugins = ["tests.engines.flink_cluster", "tests.engines.storage"]
DAGS = ROOT / "deploy" / "airflow"
PROBE = pathlib.Path(__file__).with_name("airflow_probe.py")
INSIDE = pathlib.Path(__file__).with_name("in_airflow")
BUDGET = {
    name[2:]: json.loads(value) for name, value in zip(PRIVACY[::2], PRIVACY[1::2], strict=True)
}
RUNS = {
    "beam_dpne_embedded": {
        **BUDGET,
        "input": ["/in/a.csv", "/in/b.csv"],
        "output": "/out/",
        "options": {"strict": True, "max_contributions": "5,6,7,8"},
    },
    "beam_dpne_flink": {
        **BUDGET,
        "input": ["gs://bucket/a.csv"],
        "output": "gs://bucket/out",
        "run_key_file": "gs://bucket/key",
        "parallelism": 4,
    },
    "beam_dpne_dataflow": {
        **BUDGET,
        "input": ["gs://bucket/a.csv", "gs://bucket/b.csv"],
        "output": "gs://bucket/out",
        "template": "gs://bucket/templates/ngrams.json",
        "project": "project",
        "temp_location": "gs://bucket/tmp",
        "staging_location": "gs://bucket/staging",
        "options": {"strict": True, "tokenizer": "whitespace"},
    },
}
_NGRAMS_ONLY = ("max_length", "max_contributions")
_UNION = {"tokenizer": "item", "policy": "weighted_gaussian", "options": {"strict": True}}
_BAYESIAN = {"public": "gs://bucket/public.tsv", "length": 2, "options": {"strict": True}}
# The same runs of the other programs.
RUNS |= {
    f"{dag}_{program}": {
        **{name: value for name, value in run.items() if name not in _NGRAMS_ONLY},
        **own,
    }
    for dag, run in RUNS.items()
    for program, own in (("set_union", _UNION), ("bayesian", _BAYESIAN))
}


def packages():
    of = versions()
    return [
        f"apache-airflow=={of['AIRFLOW_VERSION']}",
        f"apache-airflow-providers-apache-beam=={of['AIRFLOW_BEAM_PROVIDER_VERSION']}",
        f"apache-airflow-providers-google=={of['AIRFLOW_GOOGLE_PROVIDER_VERSION']}",
        f"apache-beam=={of['BEAM_VERSION']}",
        f"pytest=={importlib.metadata.version('pytest')}",
    ]


@pytest.fixture(scope="session")
def airflow_python(tmp_path_factory):
    """The Python of an environment with Airflow and the wheel of this checkout."""
    base, folder = _with_airflow(), tmp_path_factory.mktemp("installed")
    venv.create(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    (below,) = base.glob("lib/python*/site-packages")
    (site / "airflow.pth").write_text(f"{below}\n")
    python = folder / "bin" / "python"
    wheel = build_wheel(tmp_path_factory.mktemp("built"))
    _install(base, "--python", python, "install", "--no-index", "--no-deps", wheel)
    return python


def _with_airflow():
    """The folder of an environment with Airflow; it is made when it is missing (some minutes)."""
    wanted = " ".join([*packages(), sys.version])
    folder = cache() / f"airflow-{hashlib.sha256(wanted.encode()).hexdigest()[:12]}"
    if not (folder / "whole").exists():
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        _install(folder, "install", *packages())
        (folder / "whole").touch()
    return folder


def _install(folder, *arguments):
    command = [folder / "bin" / "python", "-m", "pip", "--quiet", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        pytest.fail(f"A package could not be installed in {folder}:\n{ended.stderr[-3000:]}")


class Airflow:
    """An Airflow with a separate home; its DAGs start the Python `program`, if there is one."""

    def __init__(self, python, home):
        self.python, self.home = python, home

    def run(self, *arguments, program=None, **others):
        """Runs Airflow's Python; returns how it ended, with all that was printed."""
        settings = {
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": "1",
            **({"BEAM_DPNE_PYTHON": str(program)} if program else {}),
            **others,
        }
        # The tests' own environment must not leak into Airflow's.
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(
            [str(self.python), *map(str, arguments)],
            # Python imports from its working directory first, which must not be the checkout.
            cwd=self.home,
            env={**kept, **settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=500,
        )

    def dag(self, parameters, name="beam_dpne_embedded", **settings):
        """Runs a DAG; returns what was printed, and the states and tries of its tasks."""
        conf = json.dumps(parameters)
        command = ("-m", "airflow", "dags", "test", name, "--conf", conf)
        ended = self.run(*command, **settings)
        run_id = re.search(r"DagRun Finished: .*?run_id=([^,]+)", ended.stdout)
        assert run_id, ended.stdout[-3000:]
        return Run(self.home, run_id[1], ended)


class Run:
    """A DAG run, as Airflow's database has it."""

    def __init__(self, home, run_id, ended):
        self.home, self.run_id, self.ended = home, run_id, ended

    def rows(self, query):
        with sqlite3.connect(self.home / "airflow.db") as database:
            return database.execute(query, (self.run_id,)).fetchall()

    @property
    def states(self):
        query = "select task_id, state, try_number from task_instance where run_id = ?"
        return {task: (state, tries) for task, state, tries in self.rows(query)}

    @property
    def pushed(self):
        """What the task has handed on."""
        query = "select value from xcom where run_id = ? and task_id = 'release'"
        return [json.loads(value) for (value,) in self.rows(f"{query} and key = 'return_value'")]

    @property
    def assets(self):
        """The addresses of the assets that the run has announced, and their extras."""
        query = (
            "select asset.uri, asset_event.extra from asset_event "
            "join asset on asset.id = asset_event.asset_id where source_run_id = ?"
        )
        return {uri: json.loads(extra) for uri, extra in self.rows(query)}


@pytest.fixture(scope="session")
def airflow(airflow_python, tmp_path_factory):
    made = Airflow(airflow_python, tmp_path_factory.mktemp("airflow"))
    ended = made.run("-m", "airflow", "db", "migrate")
    assert ended.returncode == 0, ended.stdout[-3000:]
    return made


@pytest.fixture(scope="session")
def found(airflow):
    """What the probe found."""
    ended = airflow.run(PROBE, DAGS, json.dumps(RUNS))
    assert ended.returncode == 0, ended.stdout[-3000:]
    return json.loads(ended.stdout.splitlines()[-1])


def test_airflow_imports_every_dag(found):
    assert found["errors"] == {}
    assert sorted(found["params"]) == sorted(RUNS)
    assert len(RUNS) == len(TABLES) * len(list(DAGS.glob("*_dags.py")))


def test_no_dag_runs_by_itself_since_every_run_spends_the_budget(found):
    assert set(found["schedules"].values()) == {None}


def test_every_parameter_has_a_type_and_a_description(found):
    for params in found["params"].values():
        for name, param in params.items():
            assert param["schema"]["type"], name
            assert param["description"].endswith("."), name


def test_every_release_is_one_task_that_is_tried_again_and_defers_where_an_engine_runs_it(found):
    for dag, task in found["rendered"].items():
        assert task["retries"] == 2
        assert task["tasks"] == ["release"]
        assert task["deferrable"] is not dag.startswith("beam_dpne_embedded")
        assert task.get("blocks", False) is False


def test_airflow_lists_the_provider(airflow):
    listed = json.loads(airflow.run("-m", "airflow", "providers", "list", "-o", "json").stdout)
    (ours,) = (one for one in listed if one["package_name"] == "beam-dpne")
    assert ours["version"] == __version__


@pytest.mark.parametrize("module", sorted(path.stem for path in INSIDE.glob("test_*.py")))
def test_the_operators_inside_airflow(airflow, emulator, module):
    arguments = ("-m", "pytest", "-c", os.devnull, "--rootdir", INSIDE, "--import-mode=importlib")
    others = ("-p", "no:cacheprovider", "--noconftest", "-q", INSIDE / f"{module}.py")
    storage = {"STORAGE_EMULATOR_HOST": emulator} if module.endswith("_on_gcs") else {}
    ended = airflow.run(*arguments, *others, PYTHONPATH=str(INSIDE), **storage)
    assert ended.returncode == 0, ended.stdout[-9000:]


def test_types_of_the_operators_are_right_where_airflow_is_installed(airflow_python, tmp_path):
    """The types of the development environment leave these modules out."""
    shutil.copytree(ROOT / "beam_dpne" / "airflow", tmp_path / "checked")
    settings = {"include": ["checked"], "pythonVersion": "3.10", "typeCheckingMode": "standard"}
    # The first two are as in pyproject.toml; Airflow's own operators narrow `template_fields`.
    left_out = ("IncompatibleMethodOverride", "PrivateImportUsage", "IncompatibleVariableOverride")
    settings |= {f"report{rule}": False for rule in left_out}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "-p", tmp_path, "--pythonpath", airflow_python]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    assert "No source files found" not in ended.stdout


@pytest.mark.parametrize("program", ["ngrams", "set_union", "bayesian"])
@pytest.mark.parametrize(
    ("dag", "engine"),
    [
        ("beam_dpne_embedded", {}),
        (
            "beam_dpne_flink",
            {
                "environment_type": "EXTERNAL",
                "job_endpoint": "flink-jobserver:8099",
                "environment_config": "localhost:50000",
                "parallelism": "4",
                "flink_master": "flink-jobmanager:8081",
                "execution_mode_for_batch": "BATCH",
                "runner": "PortableRunner",
            },
        ),
    ],
)
def test_the_program_takes_the_command_line_that_airflow_renders(
    found, airflow_python, dag, engine, program
):
    """Read by the program's own parser."""
    dag += "" if program == "ngrams" else f"_{program}"
    python, *module, name = found["rendered"][dag]["command"][:4]
    assert [python, *module] == [str(airflow_python), "-m", "beam_dpne.cli.main"]
    assert name == program.replace("_", "-")
    given, beam = parsed(found["rendered"][dag]["command"][4:], program)
    asked = RUNS[dag]
    assert given.input == asked["input"]
    assert given.output == f"{asked['output'].rstrip('/')}/{dag}/release/manual__1"
    assert given.output == found["rendered"][dag]["directory"]
    assert (given.epsilon, given.delta) == (BUDGET["epsilon"], BUDGET["delta"])
    assert given.run_key_file == asked.get("run_key_file")
    if "options" in asked:
        assert given.strict is True
    if program == "set_union":
        assert (given.tokenizer, given.policy) == ("item", "weighted_gaussian")
    elif program == "bayesian":
        assert (given.public, given.length, given.mode) == ("gs://bucket/public.tsv", 2, None)
    elif "options" in asked:
        assert given.max_contributions == (5, 6, 7, 8)
    assert given.overwrite is None
    others = dict(argument[2:].split("=", 1) for argument in beam)
    if engine:
        assert re.fullmatch("beam-dpne-[0-9a-f]{16}", others.pop("job_name"))
    assert others == engine


def parsed(arguments, program):
    """What the program's parser makes of its arguments."""
    from beam_dpne.cli import main

    seen = []
    parser = main.OneLineParser(allow_abbrev=False)
    tables = {"ngrams": NGRAMS, "set_union": SET_UNION, "bayesian": BAYESIAN}
    add_program(parser, tables[program])
    parser.set_defaults(command=lambda given, beam: seen.append((given, beam)))
    assert run_program(parser, arguments) == 0
    return seen[0]


def test_a_dag_offers_the_choices_of_the_program(found):
    for dag, options in (
        ("beam_dpne_embedded", NGRAMS["privacy"]),
        ("beam_dpne_embedded_set_union", SET_UNION["privacy"]),
        ("beam_dpne_embedded_bayesian", BAYESIAN["privacy"]),
    ):
        params = found["params"][dag]
        choices = {option.name: list(option.choices) for option in options if option.choices}
        offered = {name: p["schema"]["enum"] for name, p in params.items() if "enum" in p["schema"]}
        assert offered
        for name, values in offered.items():
            assert [value for value in values if value is not None] == choices[name]


@pytest.mark.parametrize(
    "dag", ["beam_dpne_dataflow", "beam_dpne_dataflow_set_union", "beam_dpne_dataflow_bayesian"]
)
def test_dataflow_takes_the_request_that_airflow_renders(found, dag):
    task = found["rendered"][dag]
    assert (task["project"], task["location"]) == ("project", "us-central1")
    request = dataflow.LaunchFlexTemplateRequest.from_json(
        json.dumps(task["body"]), ignore_unknown_fields=False
    )
    launch = request.launch_parameter
    assert launch.container_spec_gcs_path == "gs://bucket/templates/ngrams.json"
    assert launch.environment.temp_location == "gs://bucket/tmp"
    assert launch.environment.staging_location == "gs://bucket/staging"
    private = dataflow.WorkerIPAddressConfiguration.WORKER_IP_PRIVATE
    assert launch.environment.ip_configuration == private
    # The name is one for all tries of a run: Dataflow refuses a second job of a living one's name.
    assert re.fullmatch("beam-dpne-[0-9a-f]{16}", launch.job_name)
    assert task["renamed"] is False


@pytest.mark.parametrize(
    ("dag", "form"),
    [
        ("beam_dpne_dataflow", "ngrams"),
        ("beam_dpne_dataflow_set_union", "set_union"),
        ("beam_dpne_dataflow_bayesian", "bayesian"),
    ],
)
def test_the_template_has_a_field_for_all_that_airflow_sends(found, dag, form):
    sent = found["rendered"][dag]["body"]["launchParameter"]["parameters"]
    form = json.loads((ROOT / "templates" / f"{form}_metadata.json").read_text())
    fields = {field["name"]: field for field in form["parameters"]}
    assert sent["input"] == "gs://bucket/a.csv,gs://bucket/b.csv"
    assert sent["output"] == f"gs://bucket/out/{dag}/release/manual__1"
    for name, text in sent.items():
        for pattern in fields[name].get("regexes", ()):
            assert re.fullmatch(pattern, text), name
    assert {name for name, field in fields.items() if not field["isOptional"]} <= set(sent)


# The embedded DAG, run


@pytest.fixture
def crashing(tmp_path, airflow_python):
    """Makes a stand-in for a Python whose first run of the program ends as told."""

    def make(first_run):
        script = tmp_path / "python"
        mark = tmp_path / "crashed"
        script.write_text(
            "#!/bin/sh\n"
            f'if [ -e "{mark}" ]; then exec "{airflow_python}" "$@"; fi\n'
            f'touch "{mark}"\n'
            f"{first_run.format(python=airflow_python)}\n"
        )
        script.chmod(0o755)
        return script

    return make


def parameters(output, **others):
    return {**BUDGET, "input": [str(SAMPLE)], "output": str(output), **others}


def assert_released(run, output, dag="beam_dpne_embedded"):
    """The run is green, has one whole release, and has handed its ledger on."""
    assert run.ended.returncode == 0, run.ended.stdout[-3000:]
    folder = output / dag / "release"
    release = folder / run.run_id
    assert [path.name for path in folder.iterdir()] == [run.run_id]
    assert list(run.states) == ["release"]
    assert run.states["release"][0] == "success"
    (handed_on,) = run.pushed
    ledger = read_ledger(handed_on["ledger"])
    assert (handed_on["path"], handed_on["parts"]) == (str(release), ledger["parts"])
    assert list(run.assets) == [f"file://{release}"]
    assert run.assets[f"file://{release}"]["epsilon"] == BUDGET["epsilon"]
    listed = {part["name"] for part in ledger["parts"]}
    assert {path.name for path in release.iterdir()} == {*listed, "ledger.json"}
    assert len(read_release(str(release)).table()) == handed_on["released"]
    return release


def without_versions(files):
    """A release's files, without the versions of the packages, which Airflow may pin to others."""
    ledger = json.loads(files["ledger.json"])
    assert ledger.pop("versions")["beam_dpne"] == __version__
    return {**files, "ledger.json": ledger}


@pytest.mark.slow
def test_a_run_publishes_the_embedded_release_and_hands_its_ledger_on(
    airflow, tmp_path, run_key_file, embedded_release
):
    run = airflow.dag(parameters(tmp_path / "out", run_key_file=str(run_key_file)))
    release = assert_released(run, tmp_path / "out")
    assert run.states["release"] == ("success", 1)
    assert without_versions(release_bytes(release)) == without_versions(embedded_release)


@pytest.mark.slow
def test_a_try_after_one_that_crashed_when_it_had_published_publishes_nothing_more(
    airflow, tmp_path, crashing
):
    program = crashing('"{python}" "$@"; exit 9')
    run = airflow.dag(parameters(tmp_path / "out"), program=program)
    assert "beam-dpne ngrams ended with status 9" in run.ended.stdout
    assert "nothing is started" in run.ended.stdout
    assert_released(run, tmp_path / "out")
    assert run.states["release"] == ("success", 2)
    # With its fresh key, a second run of the program would have printed another table.
    assert run.ended.stdout.count("Files: ") == 1


@pytest.mark.slow
def test_a_try_after_one_that_was_killed_publishes_once(
    airflow, tmp_path, crashing, run_key_file, embedded_release
):
    program = crashing('exec timeout --signal=KILL 3 "{python}" "$@"')
    given = parameters(tmp_path / "out", run_key_file=str(run_key_file))
    run = airflow.dag(given, program=program)
    assert "beam-dpne ngrams ended with status -9" in run.ended.stdout
    release = assert_released(run, tmp_path / "out")
    assert run.states["release"] == ("success", 2)
    assert without_versions(release_bytes(release)) == without_versions(embedded_release)


@pytest.mark.slow
def test_a_run_that_fails_publishes_nothing_and_hands_nothing_on(airflow, tmp_path):
    given = parameters(tmp_path / "out", input=[str(tmp_path / "none.jsonl")])
    run = airflow.dag(given)
    assert run.ended.returncode != 0
    assert run.states["release"] == ("failed", 3)
    assert run.pushed == []
    assert run.assets == {}
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_ledger_that_is_not_ours_stops_every_try(airflow, tmp_path, crashing):
    """Somebody writes into the run's directory while the first try fails."""
    program = crashing(
        'for last; do case "$last" in --output=*) folder="${{last#--output=}}";; esac; done\n'
        'mkdir -p "$folder"; echo "{{}}" > "$folder/ledger.json"; exit 1'
    )
    run = airflow.dag(parameters(tmp_path / "out"), program=program)
    assert run.ended.returncode != 0
    assert "is not a ledger of beam_dpne" in run.ended.stdout
    assert run.states["release"] == ("failed", 2)
    assert [path.name for path in (tmp_path / "out").rglob("*.*") if path.is_file()] == [
        "ledger.json"
    ]


@pytest.mark.slow
def test_a_deferred_task_waits_for_flink_and_hands_the_embedded_release_on(
    airflow, airflow_python, cluster, tmp_path, run_key_file, embedded_release
):
    (port,) = free_ports(1)
    cluster.start_workers(name="workers-airflow", port=port, python=str(airflow_python))
    given = parameters(
        tmp_path / "out",
        run_key_file=str(run_key_file),
        job_endpoint=f"localhost:{cluster.ports.job}",
        environment_config=f"localhost:{port}",
        flink_master=cluster.rest.address,
        options={"harness_timeout": 300},
    )
    run = airflow.dag(given, name="beam_dpne_flink")
    assert "Pausing task as DEFERRED" in run.ended.stdout
    release = assert_released(run, tmp_path / "out", "beam_dpne_flink")
    assert run.states["release"] == ("success", 1)
    assert without_versions(release_bytes(release)) == without_versions(embedded_release)
