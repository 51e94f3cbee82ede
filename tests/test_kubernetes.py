"""The manifests: valid, of the pinned versions, and in agreement with each other and the program."""

import copy
import re
import subprocess
import sys

import kubernetes_validate
import pytest
import yaml
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions

from beam_dpne.cli.main import OneLineParser, add_ngram_options
from beam_dpne.version import __version__
from deploy import java
from deploy.downloads import versions
from deploy.flink.kubernetes.__main__ import (
    JOB_MANAGER,
    RENDERED,
    configuration,
    default_image,
    render,
)
from tests.conftest import ROOT

JOB = ROOT / "templates" / "flink" / "job.yaml"
KUBERNETES = ("1.29", "1.33", "1.37")
UNITS = {"m": 2**20, "g": 2**30, "Mi": 2**20, "Gi": 2**30}
COMPONENT = "app.kubernetes.io/component"


def documents(text):
    return [document for document in yaml.safe_load_all(text) if document]


def session():
    return documents(RENDERED.read_text())


def job():
    (document,) = documents(JOB.read_text())
    return document


def of_kind(kind):
    return {d["metadata"]["name"]: d for d in session() if d["kind"] == kind}


def pods():
    """The pods of the cluster and of the launcher, by name."""
    found = {name: d["spec"]["template"] for name, d in of_kind("Deployment").items()}
    return {**found, "launcher": job()["spec"]["template"]}


def containers():
    return [
        pytest.param(pod["spec"], container, id=f"{name}-{container['name']}")
        for name, pod in pods().items()
        for container in pod["spec"]["containers"]
    ]


def ports(pod):
    return {
        port["name"]: port["containerPort"]
        for container in pod["spec"]["containers"]
        for port in container.get("ports", ())
    }


def size(text):
    number, unit = re.fullmatch(r"(\d+)(\w+)", text).groups()
    return int(number) * UNITS[unit]


# Validity and versions


def test_the_manifests_are_rendered_from_their_source():
    """If this fails: python3 -m deploy.flink.kubernetes."""
    assert RENDERED.read_text() == render(default_image())


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_knows_every_key(version):
    assert len(session()) == 10
    for document in (*session(), job()):
        kubernetes_validate.validate(document, version, strict=True)


def test_a_misspelt_key_would_be_found():
    broken = copy.deepcopy(job())
    spec = broken["spec"]["template"]["spec"]
    spec["containers"][0]["resource"] = spec["containers"][0].pop("resources")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, KUBERNETES[-1], strict=True)


def test_the_images_are_of_the_versions_of_the_deployment():
    of = versions()
    found = {c.values[1]["name"]: c.values[1]["image"] for c in containers()}
    flink = ".".join(of["FLINK_VERSION"].split(".")[:2])
    assert of["BEAM_FLINK_ARTIFACT"] == f"beam-runners-flink-{flink}"
    assert found == {
        "jobmanager": f"flink:{of['FLINK_VERSION']}-scala_2.12-java{java.RELEASE}",
        "taskmanager": f"flink:{of['FLINK_VERSION']}-scala_2.12-java{java.RELEASE}",
        "jobserver": f"apache/beam_flink{flink}_job_server:{of['BEAM_FLINK_VERSION']}",
        "workers": f"beam-dpne-workers:{__version__}",
        "launcher": f"beam-dpne-workers:{__version__}",
    }


def test_the_workers_image_can_be_named():
    command = [sys.executable, "-m", "deploy.flink.kubernetes", "--image", "registry/image:7"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert said == render("registry/image:7")
    assert "image: registry/image:7\n" in said
    assert default_image() not in said


# Configuration


def test_flink_has_the_configuration_of_the_local_cluster_but_for_the_address():
    data = of_kind("ConfigMap")["flink-config"]["data"]
    assert data["config.yaml"] == configuration()
    ours = yaml.safe_load(data["config.yaml"])
    theirs = yaml.safe_load((ROOT / "deploy" / "flink" / "config.yaml").read_text())
    assert theirs["jobmanager"]["rpc"]["address"] == "localhost"
    theirs["jobmanager"]["rpc"]["address"] = JOB_MANAGER
    assert ours == theirs
    assert JOB_MANAGER in of_kind("Service")
    assert data["java-options"].split() == [
        f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in java.OPENED
    ]


@pytest.mark.parametrize("role", ["jobmanager", "taskmanager"])
def test_a_pod_has_the_memory_that_flink_gives_itself(role):
    config = yaml.safe_load(configuration())
    (container,) = [c.values[1] for c in containers() if c.values[1]["name"] == role]
    granted = container["resources"]
    wanted = size(config[role]["memory"]["process"]["size"])
    assert size(granted["requests"]["memory"]) == size(granted["limits"]["memory"]) == wanted


def test_flink_listens_where_the_manifests_say():
    config = yaml.safe_load(configuration())
    assert ports(pods()["flink-jobmanager"])["rpc"] == config["jobmanager"]["rpc"]["port"]
    for name in ("flink-jobmanager", "flink-taskmanager"):
        pod = pods()[name]
        (flink,) = [c for c in pod["spec"]["containers"] if c["name"] == name.split("-")[1]]
        fixed = dict(re.findall(r"(blob|data|rpc)[.\w]*\.port=(\d+)", " ".join(flink["args"])))
        assert fixed
        for port, number in fixed.items():
            assert ports(pod)[port] == int(number)


def test_a_service_leads_to_ports_of_its_pods():
    for name, service in of_kind("Service").items():
        selected = [
            pod
            for pod in pods().values()
            if service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
        ]
        assert len(selected) == 1, name
        for port in service["spec"]["ports"]:
            assert ports(selected[0])[port["name"]] == port["port"]


def test_a_deployment_selects_its_own_pods():
    for deployment in of_kind("Deployment").values():
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert deployment["spec"]["selector"]["matchLabels"] == labels
    kinds = [pod["metadata"]["labels"][COMPONENT] for pod in pods().values()]
    assert len(kinds) == len(set(kinds))


# Security


@pytest.mark.parametrize(("pod", "container"), containers())
def test_no_container_is_root_or_may_become_it(pod, container):
    context = {**pod["securityContext"], **container["securityContext"]}
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] == (10001 if "beam-dpne" in container["image"] else 9999)
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False


@pytest.mark.parametrize(("pod", "container"), containers())
def test_a_container_has_bounds_and_what_it_mounts(pod, container):
    resources = container["resources"]
    assert set(resources["requests"]) == {"cpu", "memory"}
    assert size(resources["requests"]["memory"]) <= size(resources["limits"]["memory"])
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}
    if container["name"] != "launcher":
        named = {port["name"]: port for port in container["ports"]}
        for probe in (container["readinessProbe"], container["livenessProbe"]):
            assert (probe.get("tcpSocket") or probe["httpGet"])["port"] in named


def test_the_run_key_is_seen_by_workers_and_launcher_alone():
    holders = {
        container["name"]
        for pod in pods().values()
        for container in pod["spec"]["containers"]
        for mount in container["volumeMounts"]
        if mount["name"] == "run-key" and mount["readOnly"]
    }
    assert holders == {"workers", "launcher"}
    secrets = [
        volume["secret"]
        for pod in pods().values()
        for volume in pod["spec"]["volumes"]
        if "secret" in volume
    ]
    assert {secret["secretName"] for secret in secrets} == {"beam-dpne-run-key"}
    assert {secret["defaultMode"] for secret in secrets} == {0o440}


def test_nobody_but_their_own_pod_reaches_the_pool_of_workers():
    policies = of_kind("NetworkPolicy")
    assert set(policies) == set(of_kind("Deployment"))
    for name, policy in policies.items():
        pod = pods()[name]
        assert policy["spec"]["podSelector"]["matchLabels"] == pod["metadata"]["labels"]
        opened = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
        assert opened == set(ports(pod)) - {"pool"}
        assert all(rule["from"] for rule in policy["spec"]["ingress"])


# The launch


def test_the_program_takes_the_launch_and_its_files_are_mounted():
    (launcher,) = job()["spec"]["template"]["spec"]["containers"]
    assert launcher["command"] == ["beam-dpne", "ngrams"]
    parser = OneLineParser(allow_abbrev=False)
    add_ngram_options(parser)
    given, beam = parser.parse_known_args(launcher["args"])
    assert (given.epsilon, given.delta) == (4.0, 1e-7)
    mounted = {mount["mountPath"] for mount in launcher["volumeMounts"]}
    (workers,) = [c.values[1] for c in containers() if c.values[1]["name"] == "workers"]
    shared = mounted & {mount["mountPath"] for mount in workers["volumeMounts"]} - {"/tmp"}
    for path in (*given.input, given.output, given.run_key_file):
        assert any(path.startswith(f"{folder}/") for folder in shared), path
    check_engine(beam)


def check_engine(arguments):
    """The options for Beam are about this cluster."""
    options = PipelineOptions(arguments).view_as(PortableOptions)
    host, port = options.job_endpoint.split(":")
    service = of_kind("Service")[host]["spec"]["ports"]
    assert int(port) in [number["port"] for number in service if number["name"] == "job"]
    assert options.environment_type == "EXTERNAL"
    pool = ports(pods()["flink-taskmanager"])["pool"]
    assert options.environment_config == f"localhost:{pool}"
    entry = (ROOT / "templates" / "Dockerfile").read_text()
    assert f'"--service_port={pool}"' in entry
    replicas = of_kind("Deployment")["flink-taskmanager"]["spec"]["replicas"]
    slots = yaml.safe_load(configuration())["taskmanager"]["numberOfTaskSlots"]
    assert f"--parallelism={replicas * slots}" in arguments


def test_a_launch_with_a_wrong_parameter_is_not_tried_again():
    spec = job()["spec"]
    (rule,) = spec["podFailurePolicy"]["rules"]
    (launcher,) = spec["template"]["spec"]["containers"]
    assert rule["action"] == "FailJob"
    assert rule["onExitCodes"] == {
        "containerName": launcher["name"],
        "operator": "In",
        "values": [2],
    }
    assert spec["template"]["spec"]["restartPolicy"] == "Never"


@pytest.mark.parametrize("folder", ["templates", "deploy/airflow", "deploy/flink/kubernetes"])
def test_the_files_that_a_readme_names_are_there(folder):
    text = (ROOT / folder / "README.md").read_text()
    for link in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert (ROOT / folder / link).exists(), link
    for path in re.findall(r"(?:--filename|--file|pytest -m '[^']+') ([\w/.]+\.(?:yaml|py))", text):
        assert (ROOT / path).is_file(), path
