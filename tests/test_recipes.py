"""The recipes for schedulers that need no package: manifests, and a cron job that is run."""

import functools
import os
import pathlib
import re
import subprocess
import sys

import kubernetes_validate
import pytest
import yaml

from beam_dpne import __version__, read_release
from tests.conftest import ROOT
from tests.support.arguments import parsed
from tests.test_kubernetes import KUBERNETES

FOLDER = ROOT / "deploy" / "recipes"
TEXTS = "".join(f'{{"user": "u{i}", "text": "See you soon!"}}\n' for i in range(300))


@functools.cache
def manifest(name: str) -> dict:
    (document,) = yaml.safe_load_all((FOLDER / name).read_text())
    return document


def pod_of_cron_job() -> dict:
    return manifest("cronjob.yaml")["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def pod_of_argo() -> dict:
    """The pod that Argo makes of the workflow's only template, without Argo's own containers."""
    spec = manifest("argo.yaml")["spec"]["workflowSpec"]
    (template,) = [each for each in spec["templates"] if each["name"] == spec["entrypoint"]]
    container = {"name": "main", **template["container"]}
    kept = ("automountServiceAccountToken", "securityContext", "volumes")
    return {"containers": [container], **{name: spec[name] for name in kept}}


PODS = [pytest.param(pod_of_cron_job, id="cronjob"), pytest.param(pod_of_argo, id="argo")]


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_knows_every_key(version):
    kubernetes_validate.validate(manifest("cronjob.yaml"), version, strict=True)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "argo"}, "spec": pod_of_argo()}
    kubernetes_validate.validate(pod, version, strict=True)


@pytest.mark.parametrize("pod", PODS)
def test_the_pods_run_the_script_with_options_of_the_program(pod):
    (container,) = pod()["containers"]
    given, _ = parsed(["ngrams", *container["args"], "--output=here"])
    assert (given.epsilon, given.delta, given.overwrite) == ("1", "1e-7", None)
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts.keys() == {volume["name"] for volume in pod()["volumes"]}
    shell, script, directory = container["command"]
    assert (shell, script) == ("sh", f"{mounts['recipe']}/release.sh")
    assert directory.startswith(f"{mounts['data']}/releases/")
    assert given.input[0].startswith(f"{mounts['data']}/")
    assert container["image"] == f"beam-dpne-workers:{__version__}"


@pytest.mark.parametrize("pod", PODS)
def test_a_pod_that_reads_texts_cannot_speak_to_kubernetes(pod):
    assert pod()["automountServiceAccountToken"] is False
    assert pod()["securityContext"]["runAsNonRoot"] is True


def test_tries_of_one_run_have_one_directory_and_runs_never_meet():
    cron_job, argo = manifest("cronjob.yaml")["spec"], manifest("argo.yaml")["spec"]
    assert cron_job["concurrencyPolicy"] == argo["concurrencyPolicy"] == "Forbid"
    assert [cron_job["schedule"]] == argo["schedules"]
    (container,) = pod_of_cron_job()["containers"]
    (name,) = [each for each in container["env"] if each["name"] == "JOB_NAME"]
    # Kubernetes gives a run's Job a name, and all pods of the Job this label.
    label = "metadata.labels['batch.kubernetes.io/job-name']"
    assert name["valueFrom"]["fieldRef"]["fieldPath"] == label
    assert container["command"][-1].endswith("/$(JOB_NAME)")
    (container,) = pod_of_argo()["containers"]
    assert container["command"][-1].endswith("/{{workflow.name}}")


@pytest.fixture
def messages(tmp_path) -> pathlib.Path:
    (tmp_path / "messages").mkdir()
    (tmp_path / "messages" / "texts.jsonl").write_text(TEXTS)
    (tmp_path / "private").mkdir()
    return tmp_path


def cron(folder: pathlib.Path) -> subprocess.CompletedProcess:
    """Runs the command of the crontab as cron does, with the folders of a test."""
    comment, path, line = (FOLDER / "crontab").read_text().splitlines()
    assert comment.startswith("#")
    times, command = re.fullmatch(r"((?:\S+ ){5})(.*)", line).groups()
    assert re.fullmatch(r"\d+ \d+ \d+ \* \* ", times)
    assert "%" not in command.replace(r"\%", "")
    command = command.replace(r"\%", "%").replace("/srv/beam-dpne", str(ROOT))
    command = command.replace("*.parquet", "*.jsonl").replace("/srv/", f"{folder}/")
    binaries = folder / "bin"
    binaries.mkdir(exist_ok=True)
    python = binaries / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    assert path.startswith("PATH=")
    searched = path.removeprefix("PATH=").replace("/srv/beam-dpne/.venv/bin", str(binaries))
    settings = {"PATH": searched, "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    return subprocess.run(
        ["/bin/sh", "-c", command],
        env=settings,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_cron_makes_one_release_a_month(messages):
    log = messages / "private" / "release.log"
    ended = cron(messages)
    assert ended.returncode == 0, log.read_text()
    assert (ended.stdout, ended.stderr) == ("", "")  # Cron would send it by mail.
    assert "ledger.json does not exist" in log.read_text()
    (folder,) = (messages / "releases").iterdir()
    assert re.fullmatch(r"\d{4}-\d\d", folder.name)
    assert read_release(str(folder)).num_rows > 0
    assert folder.stat().st_mode & 0o077 == 0
    first = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    # Another try of the same month, of new texts.
    (messages / "messages" / "more.jsonl").write_text(TEXTS.replace("See you", "Come back"))
    assert cron(messages).returncode == 0
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == first


def test_a_try_goes_no_further_beside_files_of_another(messages):
    (messages / "releases" / "here").mkdir(parents=True)
    part = messages / "releases" / "here" / "ngrams-0123456789abcdef-00000-of-00001.jsonl"
    part.write_text("")
    options = ["--input", messages / "messages", "--epsilon", "1", "--delta", "1e-7"]
    command = [FOLDER / "release.sh", part.parent, *options]
    settings = {
        **os.environ,
        "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    ended = subprocess.run(
        list(map(str, command)), env=settings, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert "No whole release is there yet." in ended.stderr
    assert "is not empty" in ended.stderr
    assert [path.name for path in part.parent.iterdir()] == [part.name]
