"""Templates: the forms are the programs' options, and what a form may send, the programs take."""

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
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_dpne.yaml
from beam_dpne import PrivacyPlan
from beam_dpne.cli import options as definitions
from beam_dpne.cli.main import OneLineParser
from beam_dpne.cli.msnbc import main as msnbc
from beam_dpne.cli.options_by_command import BAYESIAN, NGRAMS, SET_UNION
from beam_dpne.yaml.__main__ import listing
from deploy import processes
from deploy.downloads import versions
from templates import generate
from templates.generate import (
    FORMS,
    HERE,
    NOT_LAUNCHED,
    as_text,
    flink_jobs,
    metadata,
    specification,
)
from tests.conftest import ROOT
from tests.engines.conftest import SAMPLE

pytest_plugins = ["tests.engines.storage"]
PROGRAMS = {
    "ngrams": ("ngrams", "ngrams_plan"),
    "set-union": ("set_union",),
    "bayesian": ("bayesian",),
}
TYPES = {kind.name for kind in dataflow.ParameterType}
# Texts that are refused by somebody must be refused by the form: of each kind, some that look right.
NOT_WHOLE = ("", " 5", "5 ", "+5", "-5", "5.0", "1e3", "1_000", "٥", "five", "1" * 19, "5\n")
NOT_REAL = (
    "",
    " 1",
    "+1",
    "-1",
    "1_0",
    "١",
    "nan",
    "inf",
    "-inf",
    "infinity",
    "1e",
    ".",
    "1,5",
    "0x1",
)
ACCEPTED = {
    "input": ("gs://bucket/a.jsonl", "gs://bucket/*/a?.csv.gz", "gs://bucket/a,gs://bucket/b"),
    "user_field": ("user", "User id", "naïve"),
    "text_field": ("text", "body/text"),
    "columns": ("user,text", "a,b,text,user"),
    "encoding": ("latin-1", "utf_16_le", "Shift_JIS", "cp1252"),
    "delimiter": (",", ";", "|", "\t", "\\t", "tab", "semicolon", "~", " "),
    "tokenizer": ("words", "tokens", "package.module:function", "m:Class.method"),
    "max_record_bytes": ("1", "16777216"),
    "epsilon": ("4", "0.5", ".5", "4.", "1e-3", "1E+0"),
    "delta": ("1e-7", "0.00001", "1E-06"),
    "max_length": ("1", "007"),
    "max_contributions": ("10", "10,20,30,40,50"),
    "spurious_fraction": ("0.01",),
    "count_share": ("0", "0.15", "1e-3"),
    "max_rejected": ("0", "0.05", "1"),
    "vocabulary_delta_share": ("0.5", "5e-1"),
    "max_tokens_per_user": ("1000",),
    "rejects": ("gs://bucket/rejects", "gs://bucket-1.a_b/r/"),
    "output": ("gs://bucket/release", "gs://bucket/releases/2025-01/"),
    "plan": ("gs://bucket/plan.json",),
    "run_key_file": ("gs://bucket/secret/run.key",),
    "partitions": ("1", "4096"),
    "side_input_limit": ("67108864",),
    "strict": ("true", "false"),
    "overwrite": ("true", "false"),
    "title": ("Support phrases, spring 2025", "Überschrift"),
    "contact": ("privacy@example.com",),
    "unit": ("a customer", '"the" author'),
    "rounds": ("1", "3"),
    "cutoff_margin": ("0", "5", "2.5"),
    "shards": ("1", "64"),
    "max_shard_users": ("5000000",),
    "max_users": ("10000000",),
    "public_user_count": ("50000",),
    "max_items_per_user": ("1000",),
    "public": ("gs://bucket/public.txt.gz", "gs://bucket/releases/first/"),
    **dict.fromkeys(("length", "vocabulary_size", "max_count"), ("3",)),
    **dict.fromkeys(("public_weight", "decay"), ("0.5", "1e-2")),
}
PATHS = ("", "local/file", "/local/file", "gs://bucket", "gs://bucket/", "gs:/bucket/a", "s3://b/a")
REFUSED = {
    "input": PATHS,
    "output": (*PATHS, "gs://bucket/a\nb", "gs://Bucket/a", "gs://bucket/*"),
    "rejects": PATHS,
    "plan": (*PATHS, "gs://bucket/*.json"),
    "run_key_file": (*PATHS, "gs://bucket/*.key"),
    "user_field": ("", 'a"b', "a\\b", "a\tb"),
    "text_field": ("", 'a"b', "a\\b", "a\tb"),
    "tokenizer": ("", "letters", "Words", "module", "module:", ":function", "a b:c", "1m:f"),
    "columns": ("",),
    "encoding": ("", "a b", "é", "-1"),
    "delimiter": ("", '"', "\n", "\r", "\0", "é", ",,", "tabs"),
    "strict": ("", "True", "yes", "1", "on"),
    "overwrite": ("", "TRUE", "no", "0"),
    **dict.fromkeys(("title", "contact", "unit"), ("", "two\nlines", "a\ttab", "x" * 201)),
    "max_contributions": (*NOT_WHOLE, "5,", ",5", "5,,6", "5, 6", "5;6"),
    **dict.fromkeys(("max_length", "max_tokens_per_user", "max_record_bytes"), NOT_WHOLE),
    **dict.fromkeys(("partitions", "side_input_limit"), NOT_WHOLE),
    **dict.fromkeys(
        ("epsilon", "delta", "spurious_fraction", "count_share", "max_rejected"),
        NOT_REAL,
    ),
    **dict.fromkeys(("vocabulary_delta_share", "cutoff_margin"), NOT_REAL),
    **dict.fromkeys(("rounds", "shards", "max_shard_users"), NOT_WHOLE),
    **dict.fromkeys(("max_users", "max_items_per_user", "public_user_count"), NOT_WHOLE),
    "public": (*PATHS, "gs://bucket/*.txt"),
    **dict.fromkeys(("length", "vocabulary_size", "max_count"), NOT_WHOLE),
    **dict.fromkeys(("public_weight", "decay"), NOT_REAL),
}

# Where the programs differ.
OWN = {
    "ngrams": {},
    "set-union": {
        "tokenizer": (("item", "m:f"), ("", "items", "letters")),
        "max_contributions": (("10",), (*NOT_WHOLE, "10,20")),
    },
    "bayesian": {"max_contributions": (("10",), (*NOT_WHOLE, "10,20"))},
}


@functools.cache
def fields(form):
    return {field["name"]: field for field in metadata(FORMS[form])["parameters"]}


def options_of(form):
    return {option.name: option for option in definitions.options_of(FORMS[form].table)}


@functools.cache
def all_fields(program):
    return {name: field for form in PROGRAMS[program] for name, field in fields(form).items()}


def examples(of, program):
    """(name, text) of each example; the program's own where it differs."""
    place = [ACCEPTED, REFUSED].index(of)
    own = OWN[program]
    names = [name for name in sorted(all_fields(program)) if name in of]
    texts = {name: own[name][place] if name in own else of[name] for name in names}
    return [(name, text) for name in names for text in texts[name]]


def matches(field, text):
    return all(re.fullmatch(pattern, text) for pattern in field["regexes"])


@functools.cache
def parser(program="ngrams"):
    """The program's, which hands what it has parsed to nobody."""
    made = OneLineParser(allow_abbrev=False)
    tables = {"ngrams": NGRAMS, "set-union": SET_UNION, "bayesian": BAYESIAN}
    definitions.add_program(made, tables[program])
    return made


def program_of(form):
    return {"set_union": "set-union", "bayesian": "bayesian"}.get(form, "ngrams")


def parse(text, name, program="ngrams"):
    """What the program's parser makes of one option; None if it refuses."""
    try:
        return getattr(parser(program).parse_known_args([f"--{name}={text}"])[0], name)
    except SystemExit:
        return None


# The files


@pytest.mark.parametrize("form", FORMS)
def test_a_committed_form_is_that_of_the_options(form):
    """If this fails: python3 -m templates.generate."""
    path = HERE / f"{form}_metadata.json"
    assert path.read_text(encoding="utf-8") == as_text(metadata(FORMS[form]))


def test_there_is_no_form_that_nobody_makes():
    assert {path.name for path in HERE.glob("*.json")} == {f"{n}_metadata.json" for n in FORMS}


def test_the_flink_jobs_of_other_programs_are_made_from_the_first():
    """If this fails: python3 -m templates.generate."""
    for path, text in flink_jobs().items():
        assert path.read_text(encoding="utf-8") == text
    made = {path.name for path in flink_jobs()}
    assert {path.name for path in (HERE / "flink").glob("*.yaml")} == made | {"job.yaml"}


def test_there_is_no_pipeline_without_a_template():
    """A new one needs a form, and a Kubernetes Job if it is for private data."""
    there = {path.name for path in (ROOT / "pipelines").glob("*.py")}
    launched = {form.program for form in FORMS.values()}
    assert not launched & set(NOT_LAUNCHED)
    assert all(NOT_LAUNCHED.values())
    assert launched <= there
    assert there - set(NOT_LAUNCHED) == launched
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    for name in launched:
        assert f"(../pipelines/{name})" in readme


@pytest.mark.parametrize("form", FORMS)
def test_the_official_client_reads_a_form(form):
    text = (HERE / f"{form}_metadata.json").read_text(encoding="utf-8")
    read = dataflow.TemplateMetadata.from_json(text, ignore_unknown_fields=False)
    assert len(read.parameters) == len(fields(form))
    assert read.name
    assert read.description
    assert read.streaming is False


@pytest.mark.parametrize("form", FORMS)
def test_a_form_asks_for_each_option_once_or_says_why_not(form):
    names = [field["name"] for field in metadata(FORMS[form])["parameters"]]
    left_out = FORMS[form].without
    assert len(names) == len(set(names))
    assert sorted([*names, *left_out]) == sorted(options_of(form))
    assert all(left_out.values())
    assert set(FORMS[form].required) <= set(names)


@pytest.mark.parametrize("form", FORMS)
def test_every_field_is_whole(form):
    """What the official client does not see."""
    known = fields(form)
    for name, field in known.items():
        assert field["label"].strip(), name
        assert len(field["helpText"]) > 40, name
        assert field["helpText"].endswith("."), name
        assert field["groupName"] in ("Reading", "Privacy", "Writing", "Running", "Pipeline")
        assert field["paramType"] in TYPES
        assert ("enumOptions" in field) == (field["paramType"] == "ENUM")
        assert ("regexes" in field) == (field["paramType"] != "ENUM")
        for pattern in field.get("regexes", ()):
            assert pattern.startswith("^(")
            assert pattern.endswith(")$")
            assert re.compile(pattern)
            # Not in the syntax that Python, Java and RE2 share.
            assert not re.search(r"\(\?|\\[pPdDwWsSbB1-9]", pattern), name
        if "parentName" in field:
            parent = known[field["parentName"]]
            values = {choice["value"] for choice in parent["enumOptions"]}
            assert set(field["parentTriggerValues"]) < values
            # A hidden field's default would be sent all the same.
            shown = parent["defaultValue"] in field["parentTriggerValues"]
            assert shown or "defaultValue" not in field
            assert field["isOptional"]


@pytest.mark.parametrize("form", FORMS)
def test_a_default_is_the_programs_and_its_own_field_takes_it(form):
    for name, field in fields(form).items():
        own, option = FORMS[form].defaults, options_of(form)[name]
        value = own.get(name, False if option.flag else option.default)
        assert ("defaultValue" in field) == (value is not None)
        if value is None:
            continue
        text = field["defaultValue"]
        read = parse(text, name, program_of(form))
        assert read == (value if not option.repeatable else [value])
        if "regexes" in field:
            assert matches(field, text), name
        else:
            assert text in [choice["value"] for choice in field["enumOptions"]]


@pytest.mark.parametrize("form", FORMS)
def test_choices_are_the_programs(form):
    for name, field in fields(form).items():
        choices = options_of(form)[name].choices
        if choices:
            shown = [choice["value"] for choice in field["enumOptions"]]
            assert shown == list(choices)
            assert all(parse(value, name, program_of(form)) == value for value in shown)


# What a form may send


def test_every_field_with_a_pattern_has_examples():
    patterned = {
        name
        for program in PROGRAMS
        for name, field in all_fields(program).items()
        if "regexes" in field
    }
    assert patterned == set(ACCEPTED) == set(REFUSED)


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_the_form_takes_the_program_takes(program):
    for name, text in examples(ACCEPTED, program):
        assert matches(all_fields(program)[name], text), (name, text)
        assert parse(text, name, program) is not None, (name, text)


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_the_program_refuses_the_form_refuses(program, cli):
    """Paths apart, which a form wants on Cloud Storage: the program takes local ones as well."""
    needed = {"input": "none.jsonl", "output": "none", "epsilon": "4", "delta": "1e-7"}
    if program == "bayesian":
        needed["public"] = "none.tsv"
    for name, text in examples(REFUSED, program):
        field = all_fields(program)[name]
        assert not matches(field, text), (name, text)
        if field["paramType"].startswith("GCS_") or name == "columns":
            continue
        values = {**needed, name: text}
        ended = cli(program, *(f"--{option}={value}" for option, value in values.items()))
        assert ended.status == 2, (name, text)
        assert name in ended.err, (name, text)
        assert "none.jsonl" not in ended.err, (name, text)


ALL_OPTIONS = [option for form in FORMS for option in options_of(form).values()]
KINDS = {
    name: next(option for option in ALL_OPTIONS if option.parse is parse_text)
    for name in ("integer", "number", "integers")
    for parse_text in [getattr(definitions, name)]
}


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=75, deadline=None)
def test_a_pattern_is_the_parser_except_for_signs_and_what_is_not_finite(kind, data):
    option = KINDS[kind]
    text = data.draw(
        st.one_of(
            st.text("0123456789.,eE+-_ nainf٣", max_size=12),
            st.from_regex(option.pattern, fullmatch=True, alphabet=st.characters(codec="ascii")),
        )
    )
    try:
        option.parse(text)
        taken = True
    except ValueError:
        taken = False
    parts = text.split(",") if kind.endswith("s") else [text]
    odd = any(part.startswith("-") or part in ("inf", "nan") for part in parts)
    assert bool(re.fullmatch(option.pattern, text)) == (taken and not odd)


@pytest.mark.parametrize(
    ("given_texts", "value"),
    [
        (["gs://a/b.csv"], ["gs://a/b.csv"]),
        (["gs://a/b.csv,gs://a/c.csv", "d.csv"], ["gs://a/b.csv", "gs://a/c.csv", "d.csv"]),
        (["gs://a/b,c.csv, \ngs://a/d.csv"], ["gs://a/b,c.csv", "gs://a/d.csv"]),
        (["one,two.csv"], ["one,two.csv"]),
    ],
)
def test_several_inputs_fit_in_one_field(given_texts, value):
    arguments = [f"--input={text}" for text in given_texts]
    assert parser().parse_known_args(arguments)[0].input == value


def test_a_flag_may_have_a_value():
    for name in (option.name for option in options_of("ngrams").values() if option.flag):
        for arguments, value in ([f"--{name}"], True), ([f"--{name}=true"], True), ([], None):
            assert getattr(parser().parse_known_args(arguments)[0], name) is value
        assert parse("false", name) is False


# A whole form


def filled(form, **others):
    """A launch as Dataflow's launcher would start it: one --name=value for each field."""
    known = fields(form)
    sent = {name: field["defaultValue"] for name, field in known.items() if "defaultValue" in field}
    sent |= others
    missing = [
        name for name, field in known.items() if not field["isOptional"] and name not in sent
    ]
    assert not missing
    return [f"--{name}={text}" for name, text in sent.items()]


@pytest.fixture
def filled_files(tmp_path):
    """Local paths of data, a plan and public counts, since Cloud Storage is for the engines' tests."""
    lines = "".join(f"u{i},see you soon\n" for i in range(99))
    (tmp_path / "a.csv").write_text("user,text\n" + lines)
    (tmp_path / "plan.json").write_text(PrivacyPlan(epsilon=4, delta=1e-5, max_length=2).to_json())
    (tmp_path / "public.tsv").write_text("see you soon\t3\nyou and me\t2\n")
    return {"input": str(tmp_path / "a.csv"), "output": str(tmp_path / "release")}


@pytest.mark.parametrize(
    ("form", "others"),
    [
        ("ngrams", {"epsilon": "4", "delta": "1e-5", "strict": "true", "max_length": "2"}),
        ("ngrams_plan", {"plan": "plan.json"}),
        ("set_union", {"epsilon": "4", "delta": "1e-5", "tokenizer": "item"}),
        ("bayesian", {"epsilon": "0.5", "delta": "1e-5", "public": "public.tsv"}),
    ],
)
def test_a_form_as_it_is_filled_in_runs(cli, tmp_path, filled_files, form, others):
    paths = {name: str(tmp_path / others[name]) for name in ("plan", "public") if name in others}
    ended = cli(program_of(form), *filled(form, **filled_files, **others | paths))
    assert ended.status == 0, ended.err
    ledger = json.loads((tmp_path / "release" / "ledger.json").read_text())
    assert ledger["program"] == program_of(form)


def test_the_msnbc_form_runs_the_paper(capsys, tmp_path):
    data = tmp_path / "small.seq"
    header = (
        "% Different categories found in input file:\n\nfrontpage news tech\n\n% Sequences:\n\n"
    )
    data.write_text(header + "1 2 3 \n" * 300)
    assert msnbc(filled("msnbc", output=str(tmp_path / "release")), data) == 0
    ledger = json.loads((tmp_path / "release" / "ledger.json").read_text())
    assert (ledger["plan"]["epsilon"], ledger["plan"]["max_contributions"]) == (1.0, 10)


def test_a_wrong_form_is_answered_in_words_of_the_form(cli, tmp_path):
    sent = filled("ngrams", input="gs://b/a.csv", output="x", epsilon="4", delta="2")
    ended = cli("ngrams", *sent)
    assert (ended.status, ended.err.count("\n")) == (2, 1)
    assert "delta must be in (0, 1)" in ended.err


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
    titles.write_bytes(gzip.decompress(SAMPLE.read_bytes())[:200_000].rpartition(b"\n")[0] + b"\n")
    variables = {"input": str(titles), "output": str(output), "epsilon": 4, "delta": 1e-6}
    sent = filled("yaml", yaml_pipeline=pipeline, jinja_variables=json.dumps(variables))
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


def test_a_specification_needs_form_and_image(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["generate", "--form", "ngrams"])
    with pytest.raises(SystemExit, match="2"):
        generate.main()
    assert "--form and --image go together" in capsys.readouterr().err


def dockerfile():
    return (HERE / "Dockerfile").read_text(encoding="utf-8")


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
    assert sources == {line[1:] for line in ignored if line.startswith("!") and "/" not in line}
    assert all((ROOT / source).exists() for source in sources)
    kept = [line[1:] for line in ignored if line.startswith("!") and "/" in line]
    assert kept
    assert all((ROOT / path).is_file() for path in kept)


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
    plan = PrivacyPlan(epsilon=4, delta=1e-6, max_length=2)
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
    assert f"plan cannot be read, got {bucket.path('none.json')}" in missing.err


@pytest.mark.engines
@pytest.mark.storage
@pytest.mark.dataflow
@pytest.mark.parametrize("form", ["ngrams", "ngrams_plan", "msnbc", "set_union", "bayesian"])
def test_a_launch_of_a_form_is_staged(stored_titles, form, program):
    """As Dataflow's launcher does it: the image's program, the form's parameters, its own options."""
    bucket, _ = stored_titles
    wanted = {
        "input": f"{bucket.path('in/titles.jsonl.gz')},{bucket.path('in/*.gz')}",
        "output": bucket.path("release/"),
        "plan": bucket.path("plan.json"),
        "rejects": bucket.path("rejects/"),
        "strict": "true",
    }
    if form in ("ngrams", "set_union", "bayesian"):
        wanted |= {"epsilon": "4", "delta": "1e-6"}
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
    command += filled(form, **sent) + [f"--{name}={value}" for name, value in launcher.items()]
    if (
        form == "yaml"
    ):  # Our programs connect to emulators without asking for credentials; Beam's asks.
        command.append("--no_auth")
    ended = subprocess.run(
        command, env=program.environment(), capture_output=True, text=True, timeout=600, check=False
    )
    assert ended.returncode == 0, ended.stderr
    job = json.loads(bucket.files(place.removeprefix(bucket.path()))[""])
    staged = job["environment"]["sdkPipelineOptions"]["options"]["pipelineUrl"]
    return bucket.files(staged.removeprefix(bucket.path()))[""]
