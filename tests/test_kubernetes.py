"""The manifests: valid, of the pinned versions, and in agreement with each other and the program."""

import copy
import functools
import re

import kubernetes_validate
import pytest
import yaml
from apache_beam.options.pipeline_options import (
    PipelineOptions,
    PortableOptions,
)

from beam_dpne import __version__
from deploy import processes
from deploy.downloads import versions
from deploy.flink import cluster, jars
from tests.conftest import ROOT
from tests.support.arguments import parsed as options_of

JOBS = ROOT / "templates" / "flink"
JOB = JOBS / "job.yaml"
SESSION = ROOT / "deploy" / "flink" / "kubernetes" / "session.yaml"
JOB_MANAGER = "flink-jobmanager"
DOCKERFILE = ROOT / "deploy" / "flink" / "Dockerfile"
KUBERNETES = ("1.29", "1.33", "1.37")
UNITS = {"m": 2**20, "g": 2**30, "Mi": 2**20, "Gi": 2**30}
COMPONENT = "app.kubernetes.io/component"


@functools.cache
def parsed(path):
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def session():
    return copy.deepcopy(parsed(SESSION))


def job(path=JOB):
    (document,) = copy.deepcopy(parsed(path))
    return document


def all_jobs():
    return [job(path) for path in sorted(JOBS.glob("*.yaml"))]


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


def configuration():
    """The settings of the pods' Flink."""
    return yaml.safe_load(of_kind("ConfigMap")["flink-config"]["data"]["config.yaml"])


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_knows_every_key(version):
    assert len(session()) == 10
    for document in (*session(), *all_jobs()):
        kubernetes_validate.validate(document, version, strict=True)


def test_the_images_are_the_ones_that_the_readme_builds():
    found = {c.values[1]["name"]: c.values[1]["image"] for c in containers()}
    assert found == {
        "jobmanager": f"beam-dpne-flink:{__version__}",
        "taskmanager": f"beam-dpne-flink:{__version__}",
        "jobserver": f"beam-dpne-flink-job-server:{__version__}",
        "workers": f"beam-dpne-workers:{__version__}",
        "launcher": f"beam-dpne-workers:{__version__}",
    }
    readme = (ROOT / "deploy" / "flink" / "kubernetes" / "README.md").read_text()
    built = re.findall(
        r"docker build --file (\S+) --target (\S+) --tag \$REGISTRY/([^:\s]+):(\S+)", readme
    )
    assert {f"{name}:{tag}" for *_, name, tag in built} == set(found.values())
    for file, target, *_ in built:
        assert re.search(rf"^FROM .* AS {target}$", (ROOT / file).read_text(), re.MULTILINE)


# Agreement with the cluster that deploy.flink starts, and that the tests of engines run on


def of_component(name):
    (container,) = [c.values[1] for c in containers() if c.values[1]["name"] == name]
    return container


def test_the_job_server_starts_as_the_local_one():
    text = DOCKERFILE.read_text()
    assert cluster.DRIVER in text
    assert cluster.THREAD_STACK in text
    assert f'"/opt/job-server/{jars.PLANNER}:/opt/job-server/*"' in text
    given = dict(argument.split("=") for argument in of_component("jobserver")["args"])
    ports_of = cluster.Ports()
    assert given["--flink-master"] == f"{JOB_MANAGER}:{ports_of.rest}"
    own = [given[f"--{name}-port"] for name in ("job", "artifact", "expansion")]
    assert own == [str(ports_of.job - below) for below in range(3)]


def test_a_launch_has_the_options_of_a_local_one_but_for_the_addresses(tmp_path):
    (launcher,) = job()["spec"]["template"]["spec"]["containers"]
    given = dict(argument.removeprefix("--").split("=") for argument in launcher["args"])
    local = cluster.Cluster(tmp_path).job_options(parallelism=int(given["parallelism"]))
    wanted = dict(zip((name.removeprefix("--") for name in local[::2]), local[1::2], strict=True))
    for option, service in (("job_endpoint", "flink-jobserver"), ("flink_master", JOB_MANAGER)):
        wanted[option] = wanted[option].replace("localhost", service)
    assert wanted.items() <= given.items()


def test_the_job_server_is_for_the_minor_version_of_flink():
    of = versions()
    flink = ".".join(of["FLINK_VERSION"].split(".")[:2])
    assert of["BEAM_FLINK_ARTIFACT"] == f"beam-runners-flink-{flink}"


def test_the_ports_are_those_of_the_local_cluster():
    local = cluster.Ports()
    server, manager = ports(pods()["flink-jobserver"]), ports(pods()["flink-jobmanager"])
    assert (server["job"], server["artifact"]) == (local.job, local.job - 1)
    assert (manager["rest"], manager["rpc"]) == (local.rest, local.rpc)
    assert ports(pods()["flink-taskmanager"])["pool"] == local.workers


# Configuration


def test_flink_has_the_configuration_of_the_local_cluster_but_for_the_addresses():
    theirs = yaml.safe_load((ROOT / "deploy" / "flink" / "config.yaml").read_text())
    theirs["jobmanager"]["rpc"]["address"] = JOB_MANAGER
    # A pod that listens on localhost alone is reached by nobody.
    theirs["jobmanager"]["bind-host"] = theirs["taskmanager"]["bind-host"] = "0.0.0.0"
    del theirs["taskmanager"]["host"]
    assert configuration() == theirs
    data = of_kind("ConfigMap")["flink-config"]["data"]
    assert data["java-options"].split() == [
        f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in processes.OPENED
    ]


@pytest.mark.parametrize("role", ["jobmanager", "taskmanager"])
def test_a_pod_has_the_memory_that_flink_gives_itself(role):
    config = configuration()
    (container,) = [c.values[1] for c in containers() if c.values[1]["name"] == role]
    granted = container["resources"]
    wanted = size(config[role]["memory"]["process"]["size"])
    assert size(granted["requests"]["memory"]) == size(granted["limits"]["memory"]) == wanted


def test_flink_listens_where_the_manifests_say():
    config = configuration()
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


# Security


@pytest.mark.parametrize(("pod", "container"), containers())
def test_no_container_is_root_or_may_become_it(pod, container):
    context = {**pod["securityContext"], **container["securityContext"]}
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] == (10001 if "workers" in container["image"] else 9999)
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False


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
    given, beam = options_of(["ngrams", *launcher["args"]])
    assert (given.epsilon, given.delta) == ("4", "1e-7")
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
    slots = configuration()["taskmanager"]["numberOfTaskSlots"]
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
