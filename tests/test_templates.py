"""Templates: the forms are the programs' parameters, and what a form may send, the programs take."""

import functools
import gzip
import json
import pathlib
import re
import subprocess
import sys

import pytest
from apache_beam.portability.api import beam_runner_api_pb2 as api
from apache_beam.yaml import yaml_provider
from google.cloud import dataflow_v1beta3 as dataflow

import beam_dpne.yaml
from beam_dpne import NgramsPlan
from beam_dpne.yaml.__main__ import listing
from deploy import processes
from deploy.downloads import versions
from templates import generate
from templates.generate import FORMS, metadata, specification
from tests.conftest import ROOT
from tests.engines.conftest import SAMPLE

pytest_plugins = ["tests.engines.storage"]
TEMPLATES = ROOT / "templates"
TYPES = {kind.name for kind in dataflow.ParameterType}
PATHS = ("", "local/file", "/local/file", "gs://bucket", "gs://bucket/", "gs:/bucket/a", "s3://b/a")
# Texts that a field takes, and texts that look right and that it refuses.
EXAMPLES = {
    "input": (("gs://bucket/a.jsonl", "gs://bucket/*/a?.csv.gz"), PATHS),
    "output": (("gs://bucket/release", "gs://bucket/r/"), (*PATHS, "gs://b/a\nb", "gs://b/*")),
    "plan": (("gs://bucket/plan.json",), (*PATHS, "gs://bucket/*.json")),
    "run_key_file": (("gs://bucket/secret/run.key",), (*PATHS, "gs://bucket/*.key")),
    "tokenizer": (("words", "package.module:function"), ("", "letters", "module:", "1m:f")),
    "user_field": (("user", "User id", "naïve", 'a "b"', "tenant,id"), ("", "a\tb")),
    "epsilon": (("4", "0.5", ".5", "1e-3"), ("", " 1", "+1", "1_0", "nan", "inf", "1,5", "0x1")),
    "max_length": (("1", "10"), ("", " 5", "5.0", "1e3", "1_000", "٥", "five", "5\n")),
    "columns": (("user", 'user,"text, long"'), ("", "user\ntext")),
    "max_contributions": (("10", "10,20,30"), ("", "5,", ",5", "5,,6", "5, 6", "5;6")),
}


@functools.cache
def fields(form):
    return {field["name"]: field for field in metadata(FORMS[form])["parameters"]}


def matches(field, text):
    return all(re.fullmatch(pattern, text) for pattern in field["regexes"])


@pytest.mark.parametrize("form", FORMS)
def test_the_official_client_reads_a_form(form):
    text = json.dumps(metadata(FORMS[form]))
    read = dataflow.TemplateMetadata.from_json(text, ignore_unknown_fields=False)
    assert len(read.parameters) == len(fields(form))
    assert read.streaming is False


@pytest.mark.parametrize("form", FORMS)
def test_every_field_is_whole(form):
    """What the official client does not see."""
    names = [field["name"] for field in metadata(FORMS[form])["parameters"]]
    assert len(names) == len(set(names))
    for name, field in fields(form).items():
        assert len(field["helpText"]) > 40, name
        assert field["helpText"].endswith("."), name
        assert field["paramType"] in TYPES
        assert ("enumOptions" in field) == (field["paramType"] == "ENUM")
        for pattern in field.get("regexes", ()):
            assert re.compile(pattern)
            # Not in the syntax that Python, Java and RE2 share.
            assert not re.search(r"\(\?|\\[pPdDwWsSbB1-9]", pattern), name


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_field_takes_what_its_program_takes(name):
    field = fields("ngrams")[name]
    accepted, refused = EXAMPLES[name]
    assert [text for text in accepted if not matches(field, text)] == []
    assert [text for text in refused if matches(field, text)] == []


def filled(**sent):
    """A launch as Dataflow's launcher would start it: one --name=value for each field."""
    return [f"--{name}={text}" for name, text in sent.items()]


@pytest.mark.parametrize(
    ("form", "others"),
    [
        ("ngrams", {"epsilon": "4", "delta": "1e-5", "max_length": "2", "mask": "emails,urls"}),
        ("ngrams", {"plan": "plan.json"}),
        ("set_union", {"epsilon": "4", "delta": "1e-5", "tokenizer": "item"}),
        ("bayesian", {"epsilon": "0.5", "delta": "1e-5", "public": "public.tsv"}),
    ],
)
def test_a_form_as_it_is_filled_in_runs(cli, tmp_path, form, others):
    lines = "".join(f"u{i},see you soon\n" for i in range(99))
    (tmp_path / "a.csv").write_text("user,text\n" + lines)
    plan = {"epsilon": 4, "delta": 1e-5, "max_length": 2}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    (tmp_path / "public.tsv").write_text("see you soon\t3\nyou and me\t2\n")
    paths = {name: str(tmp_path / others[name]) for name in ("plan", "public") if name in others}
    files = {"input": str(tmp_path / "a.csv"), "output": str(tmp_path / "release")}
    assert {name for name, field in fields(form).items() if not field["isOptional"]} <= {
        *files,
        *others,
    }
    program = form.replace("_", "-")
    ended = cli(program, *filled(**files, **others | paths))
    assert ended.status == 0, ended.err
    ledger = json.loads((tmp_path / "release" / "ledger.json").read_text())
    assert ledger["program"] == program


def cut_as_gcloud_does(text):
    """The parameters in a text, which begins with another separator than a comma between two `^`."""
    _, separator, rest = text.split("^", 2) if text.startswith("^") else ("", ",", text)
    return dict(part.split("=", 1) for part in rest.split(separator))


def test_gcloud_sends_the_documented_parameters_to_fields_that_take_them():
    (sent,) = re.findall(r'--parameters "(.+)"', (ROOT / "templates" / "README.md").read_text())
    parameters = cut_as_gcloud_does(sent.replace("$BUCKET", "bucket"))
    assert parameters["mask"] == "emails,urls"
    form = fields("ngrams")
    assert {name for name, field in form.items() if not field["isOptional"]} <= {*parameters}
    for name, text in parameters.items():
        assert all(re.fullmatch(pattern, text) for pattern in form[name].get("regexes", ()))


# The form of Beam YAML, whose program is Beam's own

YAML_ACCEPTED = {
    "yaml_pipeline_file": ("gs://bucket/pipelines/ngrams.yaml",),
    "yaml_pipeline": ("pipeline:\n  type: chain\n",),
    "jinja_variables": ('{"epsilon": 4}', '{\n  "input": "gs://bucket/*.jsonl"\n}'),
}
YAML_REFUSED = {
    "yaml_pipeline_file": (*PATHS, "gs://bucket/*.yaml"),
    "yaml_pipeline": ("", "pipeline\0"),
    "jinja_variables": ("", "epsilon=4", "[4]"),
}


def test_the_form_of_yaml_has_the_parameters_that_gcloud_sends():
    """By `gcloud dataflow yaml run`, whose names those of Google's own template are."""
    assert list(fields("yaml")) == ["yaml_pipeline_file", "yaml_pipeline", "jinja_variables"]
    for name, field in fields("yaml").items():
        assert all(matches(field, text) for text in YAML_ACCEPTED[name])
        assert not any(matches(field, text) for text in YAML_REFUSED[name])


def test_the_yaml_form_as_it_is_filled_in_runs(program, tmp_path):
    pipeline = (ROOT / "pipelines" / "yaml" / "ngrams.yaml").read_text(encoding="utf-8")
    output = tmp_path / "release"
    titles = tmp_path / "titles.jsonl"
    titles.write_bytes(gzip.decompress(SAMPLE.read_bytes())[:20_000].rpartition(b"\n")[0] + b"\n")
    variables = {"input": str(titles), "output": str(output), "epsilon": 4, "delta": 1e-6}
    sent = filled(yaml_pipeline=pipeline, jinja_variables=json.dumps(variables))
    command = [sys.executable, str(ROOT / "pipelines" / FORMS["yaml"].program), *sent]
    ended = subprocess.run(
        [*command, "--runner=FnApiRunner"],
        env=program.environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads((output / "ledger.json").read_text())["plan"]["epsilon"] == 4


# Launch specification and image


@pytest.mark.parametrize("form", FORMS)
def test_the_launch_specification_is_whole(form, monkeypatch, capsys):
    image = "region-docker.pkg.dev/project/repository/beam-dpne:1"
    monkeypatch.setattr(sys, "argv", ["generate", "--form", form, "--image", image])
    generate.main()
    said = capsys.readouterr().out
    assert json.loads(said) == specification(FORMS[form], image)
    read = dataflow.ContainerSpec.from_json(said, ignore_unknown_fields=False)
    assert read.image == read.default_environment.sdk_container_image == image
    assert read.sdk_info.language == dataflow.SDKInfo.Language.PYTHON
    assert read.sdk_info.version == versions()["BEAM_VERSION"]
    assert len(read.metadata.parameters) == len(fields(form))


def dockerfile():
    return (TEMPLATES / "Dockerfile").read_text(encoding="utf-8")


def test_the_image_has_the_versions_of_the_deployment():
    found = dict(re.findall(r"^ARG ([A-Z_]+)=(\S+)$", dockerfile(), re.MULTILINE))
    pinned = {name: found[name] for name in found.keys() & versions().keys()}
    assert pinned == {name: versions()[name] for name in pinned}
    assert sorted(pinned) == ["BEAM_VERSION", "FLEX_LAUNCHER_TAG", "PYTHON_VERSION"]
    assert found["SDK_IMAGE"] == "apache/beam_python${PYTHON_VERSION}_sdk:${BEAM_VERSION}"
    python = versions()["PYTHON_VERSION"].replace(".", "")
    launcher = f"gcr.io/dataflow-templates-base/python{python}-template-launcher-base:"
    assert found["LAUNCHER_IMAGE"] == launcher + "${FLEX_LAUNCHER_TAG}"


def test_the_package_allows_the_pinned_python_and_beam():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    least, below = re.search(r'requires-python = ">=3\.(\d+),<3\.(\d+)"', text).groups()
    assert int(least) <= int(versions()["PYTHON_VERSION"].split(".")[1]) < int(below)
    least = re.search(r'"apache-beam>=2\.(\d+),<3"', text)[1]
    assert int(least) <= int(versions()["BEAM_VERSION"].split(".")[1])


def test_the_flink_images_have_the_versions_of_the_deployment():
    text = (ROOT / "deploy" / "flink" / "Dockerfile").read_text(encoding="utf-8")
    found = dict(re.findall(r"^ARG ([A-Z_]+)=(\S+)$", text, re.MULTILINE))
    assert found == {
        "FLINK_VERSION": versions()["FLINK_VERSION"],
        "FLINK_IMAGE": f"flink:${{FLINK_VERSION}}-java{processes.JAVA_RELEASE}",
    }
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {"${FLINK_IMAGE}"}


@pytest.mark.parametrize("folder", ["templates", "deploy/flink"])
def test_hadolint_has_nothing_to_say(folder):
    # Of the environment that runs the tests, also when that is not activated.
    hadolint = pathlib.Path(sys.executable).with_name("hadolint")
    command = [str(hadolint), str(ROOT / folder / "Dockerfile")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_what_the_image_copies_is_there_and_not_ignored():
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[1] == "*"
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile(), re.MULTILINE)
    sources = {source for line in copied for source in line.split()}
    kept = {line[1:] for line in ignored if line.startswith("!")}
    assert sources <= kept
    assert all((ROOT / source).exists() for source in sources)
    inside = kept - sources
    assert inside
    assert all("/" in path and (ROOT / path).is_file() for path in inside)


def test_the_launcher_starts_a_program_that_is_there():
    said = re.search(
        r"FLEX_TEMPLATE_PYTHON_PY_FILE=/template/pipelines/\$\{(\w+)\}\.py", dockerfile()
    )
    chosen = re.search(rf"^ARG {said[1]}=(\w+)$", dockerfile(), re.MULTILINE)[1]
    programs = {form.program for form in FORMS.values()}
    assert f"{chosen}.py" in programs
    assert all((ROOT / "pipelines" / program).is_file() for program in programs)


# On Cloud Storage


@pytest.fixture
def stored_titles(bucket):
    """Titles and a plan on an emulator of Cloud Storage."""
    bucket.put("in/titles.jsonl.gz", SAMPLE.read_bytes())
    plan = NgramsPlan(epsilon=4, delta=1e-6, max_length=2)
    bucket.put("plan.json", plan.to_json())
    return bucket, plan


@pytest.mark.engines
@pytest.mark.storage
def test_a_plan_is_read_and_written_on_cloud_storage(stored_titles, program):
    bucket, plan = stored_titles
    ended = program.run(
        "plan", "--plan", bucket.path("plan.json"), "--output", bucket.path("b.json")
    )
    assert ended.status == 0, ended.err
    assert bucket.files("b.json")[""].decode() == plan.to_json()
    missing = program.run("plan", "--plan", bucket.path("none.json"))
    assert (missing.status, missing.err.count("\n")) == (2, 1)
    assert f"--plan cannot be read, got {bucket.path('none.json')}" in missing.err


@pytest.mark.engines
@pytest.mark.storage
@pytest.mark.dataflow
@pytest.mark.parametrize("form", ["ngrams", "set_union", "bayesian"])
def test_a_launch_of_a_form_is_staged(stored_titles, form, program):
    """As Dataflow's launcher does it: the image's program, the form's parameters, its own options."""
    bucket, _ = stored_titles
    wanted = {
        "input": bucket.path("in/*.gz"),
        "output": bucket.path("release/"),
        "rejects": bucket.path("rejects/"),
        **({"plan": bucket.path("plan.json")} if form == "ngrams" else {}),
        **({"epsilon": "4", "delta": "1e-6"} if form != "ngrams" else {}),
    }
    if form == "bayesian":
        bucket.put("public.tsv", b"one of the\t3\n")
        wanted["public"] = bucket.path("public.tsv")
    assert staged_graph(form, wanted, bucket, program)
    assert bucket.names("release") == []


@pytest.mark.engines
@pytest.mark.storage
@pytest.mark.dataflow
def test_a_launch_of_the_yaml_form_is_staged(stored_titles, program):
    """The job that Dataflow would get has the steps of the pipeline, and the template's image."""
    bucket, _ = stored_titles
    pipeline = (ROOT / "pipelines" / "yaml" / "ngrams.yaml").read_bytes()
    bucket.put("ngrams.yaml", pipeline)
    bucket.put("plain/titles.jsonl", b'{"user": "u1", "text": "Good morning"}\n')
    variables = {
        "input": bucket.path("plain/titles.jsonl"),
        "output": bucket.path("release"),
        "epsilon": 4,
        "delta": 1e-6,
    }
    wanted = {
        "yaml_pipeline_file": bucket.path("ngrams.yaml"),
        "jinja_variables": json.dumps(variables),
    }
    graph = api.Pipeline.FromString(staged_graph("yaml", wanted, bucket, program))
    names = {transform.unique_name for transform in graph.components.transforms.values()}
    assert any(name.endswith("WeightedHistogram/ByHashRange") for name in names)
    parts = {part for name in names for part in name.split("/")}
    assert {"Titles", "Statements", "Ngrams", "Release"} <= parts
    images = [
        api.DockerPayload.FromString(environment.payload).container_image
        for environment in graph.components.environments.values()
    ]
    assert set(images) == {"registry/image:1"}
    assert bucket.names("release") == []


@pytest.mark.engines
@pytest.mark.storage
def test_beam_reads_the_listing_for_the_job_builder_from_a_bucket(bucket):
    """No environment is made, since no transform of it is used."""
    package = "https://host.example/beam_dpne-0.1.0-py3-none-any.whl"
    bucket.put("provider.yaml", listing(package))
    (provider,) = yaml_provider.load_providers(bucket.path("provider.yaml"))
    assert isinstance(provider, yaml_provider.ExternalPythonProvider)
    assert set(provider.provided_transforms()) == set(beam_dpne.yaml.__all__)


def staged_graph(form, wanted, bucket, program) -> bytes:
    """What a launch of a form stages, as Dataflow's launcher does it."""
    sent = {name: text for name, text in wanted.items() if name in fields(form)}
    assert all(matches(fields(form)[name], text) for name, text in sent.items())
    place = bucket.path("staging/template_launches/2026-01-02_03_04_05-1234567890/job_object")
    launcher = {
        "runner": "DataflowRunner",
        "project": "lab-project",
        "region": "us-central1",
        "job_name": "lab",
        "temp_location": bucket.path("temp"),
        "staging_location": bucket.path("staging"),
        "template_location": place,
        "sdk_container_image": "registry/image:1",
        "labels": '{"goog-dataflow-provided-template-type": "flex"}',
    }
    command = [sys.executable, str(ROOT / "pipelines" / FORMS[form].program)]
    command += filled(**sent) + [f"--{name}={value}" for name, value in launcher.items()]
    if form == "yaml":
        # Our programs connect to emulators without asking for credentials; Beam's asks.
        command.append("--no_auth")
    ended = subprocess.run(
        command, env=program.environment(), capture_output=True, text=True, timeout=600, check=False
    )
    assert ended.returncode == 0, ended.stderr
    job = json.loads(bucket.files(place.removeprefix(bucket.path()))[""])
    staged = job["environment"]["sdkPipelineOptions"]["options"]["pipelineUrl"]
    return bucket.files(staged.removeprefix(bucket.path()))[""]
