"""The operators, and the DAGs of deploy/airflow: imported, rendered and run by Airflow itself.

Airflow lives in an environment of its own (2.2 GB), which is made in the cache of deploy/downloads.py
when it is missing. The wheel of this checkout is installed on top of it, and nothing uses the checkout
but for the DAG files. The Dataflow DAG is rendered, not run.
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

from beam_dpne import __version__
from beam_dpne.release.reading import read_release
from deploy.downloads import cache, versions
from tests.cli.test_console_script import build_wheel
from tests.conftest import ROOT
from tests.engines.conftest import PRIVACY, SAMPLE, release_bytes

pytestmark = [pytest.mark.engines, pytest.mark.airflow]
pytest_plugins = ["tests.engines.flink"]
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
        "releases": "/out/",
    },
    "beam_dpne_flink": {
        **BUDGET,
        "input": ["gs://bucket/a.csv"],
        "releases": "gs://bucket/out",
        "run_key_file": "gs://bucket/key",
        "parallelism": 4,
    },
    "beam_dpne_dataflow": {
        **BUDGET,
        "input": ["gs://bucket/*.csv"],
        "releases": "gs://bucket/out",
        "template": "gs://bucket/templates/ngrams.json",
        "project": "project",
        "temp_location": "gs://bucket/tmp",
        "staging_location": "gs://bucket/staging",
    },
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
    _install(base, "--python", python, "install", wheel)
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
    """An Airflow with a separate home."""

    def __init__(self, python, home):
        self.python, self.home = python, home

    def run(self, *arguments):
        """Runs Airflow's Python; returns how it ended, with all that was printed."""
        settings = {
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": "1",
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

    def dag(self, parameters, name="beam_dpne_embedded"):
        """Runs a DAG; returns what was printed, and the states and tries of its tasks."""
        conf = json.dumps(parameters)
        command = ("-m", "airflow", "dags", "test", name, "--conf", conf)
        ended = self.run(*command)
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


def test_airflow_imports_every_dag_and_none_runs_by_itself(found):
    assert found["errors"] == {}
    assert sorted(found["params"]) == sorted(RUNS)
    assert set(found["schedules"].values()) == {None}
    for params in found["params"].values():
        for name, param in params.items():
            assert param["schema"]["type"], name
            assert param["description"].endswith("."), name
    for task in found["rendered"].values():
        assert (task["retries"], task["tasks"]) == (2, ["release"])


def test_airflow_lists_the_provider(airflow):
    listed = json.loads(airflow.run("-m", "airflow", "providers", "list", "-o", "json").stdout)
    (ours,) = (one for one in listed if one["package_name"] == "beam-dpne")
    assert ours["version"] == __version__


def test_the_operators_inside_airflow(airflow):
    arguments = ("-m", "pytest", "-c", os.devnull, "--rootdir", INSIDE, "--import-mode=importlib")
    others = ("-p", "no:cacheprovider", "--noconftest", "-q", INSIDE)
    ended = airflow.run(*arguments, *others)
    assert ended.returncode == 0, ended.stdout[-9000:]


def test_types_of_the_operators_are_right_where_airflow_is_installed(airflow_python, tmp_path):
    """The types of the development environment leave these modules out."""
    shutil.copytree(ROOT / "beam_dpne" / "airflow", tmp_path / "checked")
    settings = {"include": ["checked"], "pythonVersion": "3.11", "typeCheckingMode": "standard"}
    # The first two are as in pyproject.toml; Airflow's own operators narrow `template_fields`.
    left_out = ("IncompatibleMethodOverride", "PrivateImportUsage", "IncompatibleVariableOverride")
    settings |= {f"report{rule}": False for rule in left_out}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "-p", tmp_path, "--pythonpath", airflow_python]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    assert "No source files found" not in ended.stdout


def test_a_dag_renders_parameters_to_the_values_of_a_run(found):
    for dag, asked in RUNS.items():
        task = found["rendered"][dag]
        given = task["arguments"]
        releases = asked["releases"].rstrip("/")
        assert given["output"] == [f"{releases}/{dag}/release/manual__1"]
        assert given["input"] == asked["input"]
        numbers = {name: [float(each) for each in given[name]] for name in BUDGET}
        assert numbers == {name: [value] for name, value in BUDGET.items()}
        key = asked.get("run_key_file")
        assert given.get("run_key_file", []) == ([] if key is None else [key])
    flink = found["rendered"]["beam_dpne_flink"]["variables"]
    assert (flink["parallelism"], flink["environment_type"]) == (4, "EXTERNAL")


def test_dataflow_takes_the_request_that_airflow_renders(found):
    task = found["rendered"]["beam_dpne_dataflow"]
    request = dataflow.LaunchFlexTemplateRequest.from_json(
        json.dumps(task["body"]), ignore_unknown_fields=False
    )
    launch = request.launch_parameter
    assert launch.container_spec_gcs_path == "gs://bucket/templates/ngrams.json"
    assert launch.environment.temp_location == "gs://bucket/tmp"
    private = dataflow.WorkerIPAddressConfiguration.WORKER_IP_PRIVATE
    assert launch.environment.ip_configuration == private
    # The name is one for all tries of a run: Dataflow refuses a second job of a living one's name.
    assert re.fullmatch("beam-dpne-[0-9a-f]{16}", launch.job_name)


# DAGs, run


def parameters(output, **others):
    return {**BUDGET, "input": [str(SAMPLE)], "releases": str(output), **others}


def assert_released(run, output, dag="beam_dpne_embedded"):
    """The run is green, has one whole release, and has handed its facts on."""
    assert run.ended.returncode == 0, run.ended.stdout[-3000:]
    folder = output / dag / "release"
    release = folder / run.run_id
    assert [path.name for path in folder.iterdir()] == [run.run_id]
    assert run.states == {"release": ("success", 1)}
    (facts,) = run.pushed
    assert facts["path"] == str(release)
    assert run.assets == {f"file://{release}": facts}
    assert len(read_release(str(release)).table()) == facts["released"]
    return release


def without_versions(files):
    """A release's files, without the versions of the packages, which Airflow may pin to others."""
    ledger = json.loads(files["ledger.json"])
    assert ledger.pop("versions")["beam_dpne"] == __version__
    return {**files, "ledger.json": ledger}


@pytest.mark.slow
def test_a_run_publishes_the_embedded_release_and_hands_its_facts_on(
    airflow, tmp_path, run_key_file, embedded
):
    run = airflow.dag(parameters(tmp_path / "out", run_key_file=str(run_key_file)))
    release = assert_released(run, tmp_path / "out")
    assert without_versions(release_bytes(release)) == without_versions(embedded("adaptive"))


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
def test_a_run_on_flink_publishes_the_embedded_release(
    airflow, cluster, tmp_path, run_key_file, embedded
):
    given = parameters(
        tmp_path / "out",
        run_key_file=str(run_key_file),
        job_endpoint=f"localhost:{cluster.ports.job}",
        environment_config=f"localhost:{cluster.ports.workers}",
    )
    run = airflow.dag(given, name="beam_dpne_flink")
    release = assert_released(run, tmp_path / "out", "beam_dpne_flink")
    assert without_versions(release_bytes(release)) == without_versions(embedded("adaptive"))
