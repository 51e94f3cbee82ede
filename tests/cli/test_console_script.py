"""The wheel, installed in an environment of its own, and the launchers of the repository."""

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile

import pytest

from beam_dpne.version import __version__
from tests.conftest import ROOT

BUDGET = [
    *("--epsilon", "10", "--delta", "1e-4", "--max_length", "2", "--max_contributions", "5"),
]
ROOMS = {
    *("accounting", "airflow", "audit", "bayesian", "cli", "counts", "documents", "elements"),
    *("engines", "evaluation", "exports", "forecast", "mechanism", "ngrams", "reading", "release"),
    *("report", "set_union", "storage", "yaml"),
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
        *("__init__.pyi", "py.typed", "yaml/provider.yaml", "forecast/titles.json"),
        *("report/page.css", "report/report.jinja", "report/search.js"),
        *("report/html.jinja", "report/markdown.jinja", "report/card.jinja"),
    }
    assert others == {f"beam_dpne/{name}" for name in named}


@pytest.mark.slow
def test_the_installed_program_releases_ngrams(wheel, notes, tmp_path):
    venv.create(tmp_path / "venv", with_pip=True)
    python = next((tmp_path / "venv").glob("*/python"))
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run(python, "-m", "pip", "install", "-q", wheel, env=clean)
    program = python.parent / "beam-dpne"
    assert run(program, "--version", env=clean) == f"beam-dpne {__version__}\n"
    files = ("--input", notes, "--output", "release")
    shown = run(program, "ngrams", *files, *BUDGET, cwd=tmp_path, env=clean)
    assert "Released" in shown
    assert released(tmp_path / "release") == {
        *("good", "morning", "you", "good morning", "morning you"),
    }
    missing = subprocess.run([program, "ngrams"], env=clean, capture_output=True, check=False)
    assert missing.returncode == 2


def test_the_launcher_of_the_repository_releases_ngrams(notes, tmp_path):
    launcher = ROOT / "pipelines" / "ngrams.py"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    files = ("--input", notes, "--output", tmp_path / "release")
    assert "Released" in run(sys.executable, launcher, *files, *BUDGET, env=environment)
    assert "good morning" in released(tmp_path / "release")
