"""The recipes for Dagster, Prefect and Argo, by those packages themselves.

They live in an environment with our dependencies (about 900 MB), which is made in the cache of
deploy/downloads.py when it is missing.
"""

import hashlib
import importlib.metadata
import json
import os
import pathlib
import shutil
import subprocess
import sys
import venv
from typing import Any

import pytest
import yaml

from deploy.downloads import cache, versions
from tests.conftest import ROOT

pytestmark = [pytest.mark.engines, pytest.mark.recipes]
FOLDER = ROOT / "deploy" / "recipes"
# Newer versions do not go with this Prefect, and with Beam's protobuf.
COMPATIBLE = ("fastapi>=0.139,<0.140", "grpcio-health-checking<1.77")
TEXTS = "".join(f'{{"user": "u{i}", "text": "See you soon!"}}\n' for i in range(300))
MATERIALIZE = """
import json
from dagster import materialize
from dagster_asset import released_ngrams
result = materialize([released_ngrams], partition_key="2026-05-01")
(event,) = result.asset_materializations_for_node("released_ngrams")
print(json.dumps({name: found.value for name, found in event.metadata.items()}))
"""
FLOW = """
import json
from prefect_flow import monthly_release
print(json.dumps(monthly_release("2026-05")))
"""
# Argo's own schema, as classes; they drop keys that they do not know.
READ_BACK = """
import sys
from hera.workflows.models import CronWorkflow
import yaml
found = CronWorkflow.model_validate(yaml.safe_load(sys.stdin))
print(found.model_dump_json(by_alias=True, exclude_none=True))
"""


def packages() -> list[str]:
    of = versions()
    ours = importlib.metadata.requires("beam-dpne") or []
    return [
        *(each for each in ours if "extra ==" not in each and "apache-beam" not in each),
        f"apache-beam=={of['BEAM_VERSION']}",
        f"dagster=={of['DAGSTER_VERSION']}",
        f"prefect=={of['PREFECT_VERSION']}",
        *COMPATIBLE,
        f"hera=={of['HERA_VERSION']}",
    ]


@pytest.fixture(scope="session")
def python() -> pathlib.Path:
    """The Python of an environment with the schedulers; made when it is missing (some minutes)."""
    wanted = " ".join([*packages(), sys.version])
    folder = cache() / f"recipes-{hashlib.sha256(wanted.encode()).hexdigest()[:12]}"
    program, whole = folder / "bin" / "python", folder / "whole"
    if not whole.exists():
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        install = [program, "-m", "pip", "install", "--quiet", *packages()]
        ended = subprocess.run(install, capture_output=True, text=True, check=False)
        if ended.returncode:
            pytest.fail(f"Schedulers could not be installed in {folder}:\n{ended.stderr[-3000:]}")
        whole.touch()
    return program


class Recipe:
    """Code that imports a recipe, run in a folder of messages and releases."""

    def __init__(self, python: pathlib.Path, folder: pathlib.Path):
        self.python, self.folder = python, folder
        (folder / "texts.jsonl").write_text(TEXTS)

    def run(self, code: str, **settings: str) -> subprocess.CompletedProcess:
        ours = {
            "PYTHONPATH": f"{ROOT}{os.pathsep}{FOLDER}",
            "MESSAGES": str(self.folder / "texts.jsonl"),
            "RELEASES": str(self.folder / "releases"),
            "DAGSTER_HOME": "",
            "DAGSTER_DISABLE_TELEMETRY": "1",
            "PREFECT_HOME": str(self.folder / "prefect"),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        }
        return subprocess.run(
            [str(self.python), "-c", code],
            env={**os.environ, **ours, **settings},
            capture_output=True,
            text=True,
            check=False,
            timeout=500,
        )

    def result(self, code: str) -> Any:
        ended = self.run(code)
        assert ended.returncode == 0, ended.stderr[-3000:]
        return json.loads(ended.stdout.splitlines()[-1])

    def files(self) -> dict[str, int]:
        paths = (self.folder / "releases").rglob("*.*")
        return {str(path): path.stat().st_mtime_ns for path in paths if path.is_file()}


@pytest.fixture
def recipe(python, tmp_path) -> Recipe:
    return Recipe(python, tmp_path)


def test_dagster_materializes_a_month_once(recipe):
    first = recipe.result(MATERIALIZE)
    assert (first["epsilon"], first["delta"], first["rows"] > 0) == (1.0, 1e-7, True)
    assert first["path"].endswith("/releases/2026-05-01")
    files = recipe.files()
    assert any(name.endswith("ledger.json") for name in files)
    assert recipe.result(MATERIALIZE) == first
    assert recipe.files() == files


def test_prefect_releases_a_month_once(recipe):
    assert recipe.result(FLOW) == {"epsilon": 1.0, "delta": 1e-7}
    files = recipe.files()
    assert any(name.endswith("2026-05/ledger.json") for name in files)
    assert recipe.result(FLOW) == {"epsilon": 1.0, "delta": 1e-7}
    assert recipe.files() == files


def test_argo_knows_every_key(python):
    text = (FOLDER / "argo.yaml").read_text()
    assert unknown(python, text) == set()
    assert unknown(python, text.replace("retryStrategy:", "retryStrategies:")) == {
        ".spec.workflowSpec.templates.0.retryStrategies"
    }


def unknown(python: pathlib.Path, manifest: str) -> set[str]:
    """The keys of a manifest that Argo's schema does not have."""
    ended = subprocess.run(
        [str(python), "-c", READ_BACK], input=manifest, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return keys_without(yaml.safe_load(manifest), json.loads(ended.stdout))


def keys_without(given: Any, read: Any, place: str = "") -> set[str]:
    if isinstance(given, list):
        pairs = enumerate(zip(given, read, strict=True))
        return {key for at, (a, b) in pairs for key in keys_without(a, b, f"{place}.{at}")}
    if not isinstance(given, dict):
        return set()
    found = {f"{place}.{key}" for key in given if key not in read}
    for key in given.keys() & read.keys():
        found |= keys_without(given[key], read[key], f"{place}.{key}")
    return found
