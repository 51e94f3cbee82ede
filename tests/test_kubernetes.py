"""The manifests: valid, of the pinned versions, and in agreement with each other and the program."""

import copy
import functools
import inspect
import json
import re
import sys

import kubernetes_validate
import pytest
import yaml
from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    PipelineOptions,
    PortableOptions,
)

from beam_dpne.cli.main import OneLineParser
from beam_dpne.cli.options import add_program
from beam_dpne.cli.options_by_command import BAYESIAN, NGRAMS, SET_UNION
from beam_dpne.version import __version__
from deploy import java
from deploy.downloads import versions
from deploy.flink import cluster, jars
from deploy.flink.kubernetes.__main__ import JOB_MANAGER, RENDERED, configuration, main, render
from tests.conftest import ROOT

JOBS = ROOT / "templates" / "flink"
JOB = JOBS / "job.yaml"
DOCKERFILE = ROOT / "deploy" / "flink" / "Dockerfile"
KUBERNETES = ("1.29", "1.33", "1.37")
UNITS = {"m": 2**20, "g": 2**30, "Mi": 2**20, "Gi": 2**30}
COMPONENT = "app.kubernetes.io/component"


@functools.cache
def parsed(path):
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def session():
    return copy.deepcopy(parsed(RENDERED))


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


def test_the_manifests_are_rendered_from_their_source():
    """If this fails: python3 -m deploy.flink.kubernetes."""
    assert RENDERED.read_text() == render()


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_knows_every_key(version):
    assert len(session()) == 10
    for document in (*session(), *all_jobs()):
        kubernetes_validate.validate(document, version, strict=True)


def test_a_misspelt_key_would_be_found():
    broken = job()
    spec = broken["spec"]["template"]["spec"]
    spec["containers"][0]["resource"] = spec["containers"][0].pop("resources")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, KUBERNETES[-1], strict=True)


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


def test_the_registry_of_the_images_can_be_named(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["kubernetes", "--registry", "host/a/", "--tag=7"])
    main()
    said = capsys.readouterr().out
    assert said == render(registry="host/a", tag="7")
    assert re.findall(r"image: (\S+)", said) == [
        "host/a/beam-dpne-flink:7",
        "host/a/beam-dpne-flink:7",
        "host/a/beam-dpne-workers:7",
        "host/a/beam-dpne-flink-job-server:7",
    ]


def test_a_tag_without_a_registry_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["kubernetes", "--tag=7"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "--tag must come with --registry" in capsys.readouterr().err


# Agreement with the cluster that deploy.flink starts, and that the tests of engines run on


def stage(name):
    """The part of the Dockerfile that makes one image, each instruction on one line."""
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    (found,) = [
        part for part in text.split("\nFROM ")[1:] if part.split("\n")[0].endswith(f" {name}")
    ]
    return found


def entry():
    return json.loads(re.search(r"^ENTRYPOINT (.+)$", stage("job-server"), re.MULTILINE)[1])


def of_component(name):
    (container,) = [c.values[1] for c in containers() if c.values[1]["name"] == name]
    return container


def test_the_job_server_starts_as_the_local_one():
    """The same class, class path in the same order, stack, heap; the same options, of equal ports."""
    java_name, *options, class_path_option, class_path, main = entry()
    assert (java_name, class_path_option, main) == ("java", "-cp", cluster._DRIVER)
    assert cluster._THREAD_STACK in options
    home = "/opt/job-server"
    assert class_path.split(":") == [
        f"{home}/{jars._PLANNER}",
        f"{home}/{jars._WHOLE}",
        f"{home}/log/*",
    ]
    local = inspect.getsource(cluster.Cluster.start_job_server)
    given = dict(argument.split("=") for argument in of_component("jobserver")["args"])
    assert set(given) == set(re.findall(r'"(--[a-z-]+)=', local))
    ports_of = cluster.Ports()
    assert given["--flink-master"] == f"{JOB_MANAGER}:{ports_of.rest}"
    own = re.findall(r'"(--[a-z]+-port)=\{self\.ports\.(\w+)\}', local)
    assert len(own) == 3
    for option, port in own:
        assert given[option] == str(getattr(ports_of, port))
    limit = size(of_component("jobserver")["resources"]["limits"]["memory"])
    (percent,) = [option.split("=")[1] for option in options if "MaxRAMPercentage" in option]
    heap = int(re.search(r"heap_megabytes=(\d+)", local)[1]) * 2**20
    assert limit * int(percent) == heap * 100


def test_the_job_server_logs_as_the_local_one():
    (setting,) = [option for option in entry() if "log4j.configurationFile" in option]
    folder, _, name = setting.partition("=")[2].rpartition("/")
    data = of_kind("ConfigMap")["flink-config"]["data"]
    assert data[name] == (ROOT / "deploy" / "flink" / "log4j.properties").read_text()
    for component in ("jobserver", "jobmanager", "taskmanager"):
        mounted = {m["name"]: m["mountPath"] for m in of_component(component)["volumeMounts"]}
        assert mounted["config"] == folder


def test_an_image_copies_what_the_command_jars_writes():
    written = inspect.getsource(jars.copy_jars)
    folders = {"flink": "flink-lib", "job-server": "job-server"}
    assert all(f'("{folder}", ' in written for folder in folders.values())
    copied = {
        name: re.findall(r"^COPY --chown=9999:9999 (.+) \S+$", stage(name), re.MULTILINE)
        for name in folders
    }
    assert copied == {
        "flink": ["flink-lib/"],
        "job-server": [
            f"job-server/{jars._PLANNER} job-server/{jars._WHOLE}",
            "job-server/log4j-*.jar",
        ],
    }
    assert " /opt/flink/lib/\n" in stage("flink")


def test_java_on_the_cluster_has_the_options_that_long_plans_and_full_heaps_need():
    """Flink's own start scripts read them from the configuration."""
    config = yaml.safe_load(configuration())
    options = config["env"]["java"]["opts"]
    assert cluster._THREAD_STACK in options["jobmanager"].split()
    assert cluster._EXIT_WITHOUT_MEMORY == "-XX:+ExitOnOutOfMemoryError"
    assert cluster._EXIT_WITHOUT_MEMORY in options["taskmanager"].split()
    assert config["classloader"]["resolve-order"] == "parent-first"


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
    assert (server["job"], server["artifact"]) == (local.job, local.artifact)
    assert (manager["rest"], manager["rpc"]) == (local.rest, local.rpc)
    assert ports(pods()["flink-taskmanager"])["pool"] == local.workers


# Configuration


def test_flink_has_the_configuration_of_the_local_cluster_but_for_the_addresses():
    data = of_kind("ConfigMap")["flink-config"]["data"]
    assert data["config.yaml"] == configuration()
    ours = yaml.safe_load(data["config.yaml"])
    theirs = yaml.safe_load((ROOT / "deploy" / "flink" / "config.yaml").read_text())
    assert theirs["jobmanager"]["rpc"]["address"] == "localhost"
    theirs["jobmanager"]["rpc"]["address"] = JOB_MANAGER
    # A pod that listens on localhost alone is reached by nobody.
    theirs["jobmanager"]["bind-host"] = theirs["taskmanager"]["bind-host"] = "0.0.0.0"
    assert theirs["taskmanager"].pop("host") == "localhost"
    assert ours == theirs
    assert "localhost" not in data["config.yaml"]
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
    assert context["runAsUser"] == (10001 if "workers" in container["image"] else 9999)
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


@pytest.mark.parametrize(
    ("name", "program", "table"),
    [
        ("job.yaml", "ngrams", NGRAMS),
        ("set_union_job.yaml", "set-union", SET_UNION),
        ("bayesian_job.yaml", "bayesian", BAYESIAN),
    ],
)
def test_the_program_takes_the_launch_and_its_files_are_mounted(name, program, table):
    launch = job(JOBS / name)
    (launcher,) = launch["spec"]["template"]["spec"]["containers"]
    assert launcher["command"] == ["beam-dpne", program]
    assert launch["metadata"]["generateName"] == f"beam-dpne-{program}-"
    parser = OneLineParser(allow_abbrev=False)
    add_program(parser, table)
    given, beam = parser.parse_known_args(launcher["args"])
    assert (given.epsilon, given.delta) == (4.0, 1e-7)
    mounted = {mount["mountPath"] for mount in launcher["volumeMounts"]}
    (workers,) = [c.values[1] for c in containers() if c.values[1]["name"] == "workers"]
    shared = mounted & {mount["mountPath"] for mount in workers["volumeMounts"]} - {"/tmp"}
    public = [given.public] if program == "bayesian" else []
    for path in (*given.input, *public, given.output, given.run_key_file):
        assert any(path.startswith(f"{folder}/") for folder in shared), path
    check_engine(beam)


def test_the_launcher_reaches_flink_to_cancel_its_job():
    (launcher,) = job()["spec"]["template"]["spec"]["containers"]
    options = PipelineOptions(launcher["args"]).view_as(FlinkRunnerOptions)
    host, port = options.flink_master.split(":")
    assert host == JOB_MANAGER
    (rest,) = [p for p in of_kind("Service")[host]["spec"]["ports"] if p["name"] == "rest"]
    assert int(port) == rest["port"]
    component = job()["spec"]["template"]["metadata"]["labels"][COMPONENT]
    opened = [
        [port["port"] for port in rule["ports"]]
        for rule in of_kind("NetworkPolicy")[host]["spec"]["ingress"]
        for source in rule["from"]
        if source["podSelector"]["matchLabels"].get(COMPONENT) == component
    ]
    assert opened == [["rest"]]


def test_the_jobs_differ_in_their_program_alone():
    """So that what is tested of one is true of all; public counts are an input beside the other."""
    first, *others = all_jobs()
    assert others
    for document in (first, *others):
        document["metadata"].pop("generateName")
        (launcher,) = document["spec"]["template"]["spec"]["containers"]
        program = launcher.pop("command")[-1]
        public = [text for text in launcher["args"] if text.startswith("--public=")]
        assert len(public) == (program == "bayesian")
        launcher["args"] = [text for text in launcher["args"] if text not in public]
    assert all(document == first for document in others)


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
