"""The wheel, installed in an environment of its own, and the launchers of the repository."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
import yaml

from beam_dpne import __version__
from tests.conftest import ROOT

BUDGET = [
    *("--epsilon", "10", "--delta", "1e-4", "--max_length", "2", "--max_contributions", "5"),
]
ROOMS = {
    *(
        "accounting",
        "airflow",
        "api",
        "audit",
        "bayesian",
        "cli",
        "counts",
        "documents",
        "elements",
    ),
    *("engines", "evaluation", "exports", "forecast", "mechanism", "ngrams", "reading", "release"),
    *("jobs", "lists", "phrase_counts", "set_union", "storage", "yaml"),
}
_NOT_SOURCE = shutil.ignore_patterns(".git", "build", "dist", "*.egg-info", "__pycache__", "data")


def run(*command, **settings):
    arguments = [str(argument) for argument in command]
    done = subprocess.run(
        arguments, capture_output=True, text=True, timeout=600, check=False, **settings
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from a copy of the source."""
    return build_wheel(tmp_path_factory.mktemp("built"))


def build_wheel(folder):
    """Builds the wheel in a folder, from a copy of the source; returns its path."""
    shutil.copytree(ROOT, folder / "source", ignore=_NOT_SOURCE)
    build = (sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", folder, folder / "source")
    run(*build)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def notes(tmp_path_factory):
    """A small input."""
    path = tmp_path_factory.mktemp("notes") / "notes.jsonl"
    rows = [{"user": f"u{place}", "text": "Good morning, you"} for place in range(100)]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def released(folder):
    (part,) = folder.glob("ngrams-*.jsonl")
    return {json.loads(line)["ngram"] for line in part.read_text().splitlines()}


@pytest.mark.slow
def test_the_wheel_holds_the_package_alone(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    info = f"beam_dpne-{__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {"beam_dpne", info}
    assert f"{info}/licenses/LICENSE" in names
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "beam_dpne").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == modules
    assert {name.split("/")[1] for name in modules if name.count("/") > 1} == ROOMS
    # The package reads its public names from `__init__.pyi`, Beam YAML the listing of transforms, and
    # forecasts and reports their own files.
    others = {name for name in names if name.startswith("beam_dpne/") and name[-3:] != ".py"}
    named = {
        *(
            "__init__.pyi",
            "api/calls.pyi",
            "py.typed",
            "yaml/provider.yaml",
            "forecast/titles.json",
        ),
        *("release/report/page.css", "release/report/report.jinja", "release/report/search.js"),
        *(f"release/report/{name}.jinja" for name in ("html", "markdown", "card")),
    }
    assert others == {f"beam_dpne/{name}" for name in named}


DATA_FRAME = """
import apache_beam as beam
from apache_beam.dataframe.convert import to_dataframe
from beam_dpne import NgramsPlan, PrivateNgrams
plan = NgramsPlan(epsilon=8, delta=1e-5, max_length=1)
with beam.Pipeline() as pipeline:
    rows = (pipeline | beam.Create([(f"u{i}", "Good morning") for i in range(300)])
            | PrivateNgrams(plan=plan)).rows
    to_dataframe(rows).to_csv("frame.csv", index=False)
"""


@pytest.mark.slow
def test_the_quickstart_in_an_empty_environment_as_it_is_written(tmp_path):
    source = tmp_path / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "build", "*.egg-info"))
    page = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert "pip install ." in blocks[0]
    (source / "all.sh").write_text("\n".join(blocks), encoding="utf-8")
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    shown = run("bash", "-euo", "pipefail", "all.sh", cwd=source, env=clean)
    for expected in ("rows in", "most_users", "users_high"):
        assert expected in shown
    here = {"cwd": source / "docs", "env": clean}
    program = source / ".venv" / "bin" / "beam-dpne"
    assert run(program, "--version", **here) == f"beam-dpne {__version__}\n"
    run(program.parent / "python", "-c", DATA_FRAME, **here)
    assert "good" in "".join(path.read_text() for path in (source / "docs").glob("frame.csv*"))
    missing = subprocess.run([program, "ngrams"], capture_output=True, check=False, **here)
    assert missing.returncode == 2


def test_the_launcher_of_the_repository_releases_ngrams(notes, tmp_path):
    launcher = ROOT / "pipelines" / "ngrams.py"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    files = ("--input", notes, "--output", tmp_path / "release")
    assert "Released" in run(sys.executable, launcher, *files, *BUDGET, env=environment)
    assert "good morning" in released(tmp_path / "release")


@pytest.mark.slow
def test_beam_installs_the_wheel_for_a_pipeline_in_yaml(wheel, tmp_path):
    """What Beam's starter for providers in Python does with its own package."""
    listing = run(sys.executable, "-m", "beam_dpne.yaml", "--package", wheel)
    rows = [{"user": f"u{place}", "text": "see you"} for place in range(300)]
    # Under a key of its own a run may release "you see", too, which nobody has.
    key = tmp_path / "key"
    key.write_text("06" * 32)
    key.chmod(0o600)
    budget = {"epsilon": 10, "delta": 1e-4, "count_share": 0, "run_key_file": str(key)}
    steps = [
        {"type": "Create", "config": {"elements": rows}},
        {"type": "PrivateNgrams", "input": "Create", "config": {**budget, "max_length": 2}},
        {
            "type": "MapToFields",
            "input": "PrivateNgrams.rows",
            "config": {"fields": {"ngram": "ngram"}},
        },
        {
            "type": "AssertEqual",
            "input": "MapToFields",
            "config": {"elements": [{"ngram": each} for each in ("see", "you", "see you")]},
        },
    ]
    spec = {"pipeline": {"type": "composite", "transforms": steps}}
    spec["providers"] = yaml.safe_load(listing)
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(spec))
    file = f"--yaml_pipeline_file={tmp_path / 'pipeline.yaml'}"
    beam = (sys.executable, "-m", "apache_beam.yaml.main", file, "--runner=FnApiRunner")
    run(*beam, env={**os.environ, **constraint_of_beam(tmp_path)})


def constraint_of_beam(folder):
    """Returns pip's constraint without hypothesis, of which Beam's own environment has an older one."""
    given = os.environ.get("PIP_CONSTRAINT")
    if not given:
        return {}
    lines = pathlib.Path(given).read_text().splitlines(keepends=True)
    kept = folder / "versions.txt"
    kept.write_text("".join(line for line in lines if not line.startswith("hypothesis==")))
    return {"PIP_CONSTRAINT": str(kept)}
