"""Launch forms and launch specifications of Flex Templates, from the options of the programs.

    python3 -m templates.generate
    python3 -m templates.generate --form ngrams --image REGION-docker.pkg.dev/PROJECT/REPO/NAME:TAG

The first writes the forms, `*_metadata.json` beside this file, and the Kubernetes Job of each further
program, from that of the first; the second prints the launch specification of one form, for `gs://`.
"""

import argparse
import dataclasses
import json
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from beam_dpne.cli.options import Option, Table, integer
from beam_dpne.cli.options_by_command import BAYESIAN, NGRAMS, PLAN, SET_UNION
from deploy.downloads import versions
from pipelines import msnbc

HERE = pathlib.Path(__file__).parent
# A worker elsewhere has none of the launcher's files, so forms want objects. As in options.py, the
# patterns are in the syntax that Python, Java and RE2 share.
_BUCKET = "gs://[a-z0-9][-_.a-z0-9]{1,220}[a-z0-9]/"
_PATTERNS = {
    "file": _BUCKET + r"[^*?\[\r\n]+",
    "directory": _BUCKET + r"[^*?\[\r\n]+",
    "files": _BUCKET + r"[^\r\n]+",
}
_PATH_TYPES = {"file": "GCS_READ_FILE", "files": "GCS_READ_FILE", "directory": "GCS_WRITE_FOLDER"}
_LAUNCHER_ONLY = {
    "harness_timeout": "a launcher of Dataflow hands the job over and does not wait",
    "workers": "a corpus that one worker holds needs no job on Dataflow",
    "budget": "the launcher ends before the job, so it cannot settle the budget",
    "quiet": "nobody looks at the launcher's progress",
    **dict.fromkeys(
        ("failure_log", "failure_log_remote"),
        "the launcher ends before the job, whose failure is in Dataflow's own logs",
    ),
}
_HAS_FIELDS = ("auto", "jsonl", "json", "csv", "tsv", "parquet")
_IS_TEXT = ("auto", "jsonl", "json", "csv", "tsv", "sequences")
_HAS_DELIMITERS = ("auto", "csv", "tsv")
_IN_SEQUENCE = ("policy_laplace", "policy_gaussian", "screened_gaussian", "greedy")
# Fields that a form shows only beside certain values of another one.
_SHOWN_FOR = {
    "user_field": ("input_format", _HAS_FIELDS),
    "text_field": ("input_format", _HAS_FIELDS),
    "encoding": ("input_format", _IS_TEXT),
    **dict.fromkeys(("delimiter", "quoting", "columns"), ("input_format", _HAS_DELIMITERS)),
    **dict.fromkeys(("rounds", "favour"), ("strategy", ("adaptive",))),
    "shards": ("policy", _IN_SEQUENCE),
    "cutoff_margin": ("policy", (*_IN_SEQUENCE, "mad", "mad2r")),
    **dict.fromkeys(("public_weight", "decay"), ("mode", ("log_global",))),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Form:
    """A launch form: a program, and what it asks for.

    Attributes:
      program: file of `pipelines` that the launcher starts.
      title: the template's name.
      description: what a launch does.
      required: options that must be filled in.
      table: the program's options, by the heading under which the form shows them.
      without: options of the program that the form does not have, and why.
      defaults: other ones than the options have.
    """

    program: str
    title: str
    description: str
    required: Sequence[str]
    table: Table = dataclasses.field(default_factory=lambda: NGRAMS)
    without: Mapping[str, str]
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)


# The parameters by which `gcloud dataflow yaml run` and Google's own template hand a pipeline over.
_YAML: Table = {
    "pipeline": (
        Option(
            name="yaml_pipeline_file",
            path="file",
            help="File with a pipeline of Beam YAML, e.g. one of pipelines/yaml, whose transforms "
            "PrivateNgrams, PrivateSetUnion, BayesianCounts and WriteRelease come from the package "
            "in this image. It is required, unless the text of a pipeline is given.",
        ),
        Option(
            name="yaml_pipeline",
            form_pattern=r"[^\x00]+",
            help="Text of a pipeline of Beam YAML, instead of a file. gcloud sends the text of a file "
            "that it can read, so that paths in the file must be complete addresses.",
        ),
        Option(
            name="jinja_variables",
            form_pattern=r"\{[^\x00]*\}",
            help="Variables of the pipeline, as a JSON object, e.g. "
            '{"input": "gs://bucket/tickets/*.jsonl", "output": "gs://bucket/release", '
            '"epsilon": 4, "delta": 1e-7}. They are shown with the job, so no secret may be in them.',
        ),
    )
}
_COMPLETE = "The release is complete when ledger.json is in its directory."
_DESCRIPTION = (
    "Releases the n-grams that many users share, with user-level (ε, δ)-differential privacy. "
    f"{_COMPLETE}"
)
_SINGLE = [option.name for option in PLAN["privacy"] if option.name != "plan"]
FORMS = {
    "ngrams": Form(
        program="ngrams.py",
        title="Private n-grams",
        description=_DESCRIPTION,
        required=("input", "epsilon", "delta", "output"),
        without={
            "plan": "a form fills in its defaults, which are refused beside a plan: see ngrams_plan",
            **_LAUNCHER_ONLY,
        },
    ),
    "ngrams_plan": Form(
        program="ngrams.py",
        title="Private n-grams under an approved plan",
        description=f"{_DESCRIPTION} All privacy parameters come from a file, e.g. an approved one.",
        required=("input", "plan", "output"),
        without={**dict.fromkeys(_SINGLE, "the plan has them all"), **_LAUNCHER_ONLY},
    ),
    "msnbc": Form(
        program="msnbc.py",
        title="Private n-grams of MSNBC page visits",
        description="Runs the paper's experiment on public data that the image holds, with the "
        "paper's parameters: a launch that shows whether the installation works.",
        required=("output",),
        without={
            **dict.fromkeys(
                (
                    *("input", "input_format", "user_field", "text_field", "encoding"),
                    *("delimiter", "quoting", "columns", "tokenizer"),
                ),
                "the program reads the data beside it",
            ),
            "plan": "the program's own privacy parameters are refused beside it",
            **_LAUNCHER_ONLY,
        },
        defaults={name: value for name, value in msnbc.PAPER.items() if name != "output"},
    ),
    "set_union": Form(
        program="set_union.py",
        title="Private set union",
        description="Releases the items that many users share, such as words, names or queries, with "
        f"user-level (ε, δ)-differential privacy. {_COMPLETE}",
        required=("input", "epsilon", "delta", "output"),
        table=SET_UNION,
        without=_LAUNCHER_ONLY,
    ),
    "bayesian": Form(
        program="bayesian.py",
        title="Private n-gram probabilities",
        description="Estimates a probability for every n-gram of a public vocabulary, with user-level "
        f"(ε, δ)-differential privacy. {_COMPLETE}",
        required=("input", "public", "epsilon", "delta", "output"),
        table=BAYESIAN,
        without={"arpa": "the launcher would have to wait for the release", **_LAUNCHER_ONLY},
    ),
    "yaml": Form(
        program="beam_yaml.py",
        title="Beam YAML with private transforms",
        description="Runs a pipeline of Beam YAML, which may use PrivateNgrams, PrivateSetUnion, "
        f"BayesianCounts and WriteRelease. {_COMPLETE}",
        required=(),
        table=_YAML,
        without={},
    ),
}
# Programs of `pipelines` that no launcher starts, and why.
NOT_LAUNCHED = dict.fromkeys(
    (
        *("reproduce_papers.py", "reproduce_bayesian.py", "measure_counts.py"),
        *("measure_unions.py", "forecast_profile.py"),
    ),
    "a study of public data, which publishes no release",
)
_JOB = HERE / "flink" / "job.yaml"
_JOBS = {"set_union_job.yaml": "set-union", "bayesian_job.yaml": "bayesian"}
_JOB_INPUT = "            - --input=/data/input/*.jsonl.gz\n"
# What a program needs beyond the options of `ngrams`.
_JOB_OPTIONS = {"bayesian": "            - --public=/data/public/trigrams.tsv.gz\n"}
_MADE = "# Made from job.yaml by `python3 -m templates.generate`.\n"


def metadata(form: Form) -> dict[str, Any]:
    """Returns a form as Dataflow's `TemplateMetadata`, in JSON types."""
    parameters = [
        _parameter(option, group.capitalize(), form)
        for group, options in form.table.items()
        for option in options
        if option.name not in form.without
    ]
    return {
        "name": form.title,
        "description": form.description,
        "streaming": False,
        "parameters": parameters,
    }


def specification(form: Form, image: str) -> dict[str, Any]:
    """Returns a launch specification, Dataflow's `ContainerSpec`, in JSON types.

    Args:
      form: to show and to check launches with.
      image: address of the image, of launcher and workers alike.
    """
    return {
        "image": image,
        "sdkInfo": {"language": "PYTHON", "version": versions()["BEAM_VERSION"]},
        "defaultEnvironment": {"sdkContainerImage": image},
        "metadata": metadata(form),
    }


def flink_jobs() -> dict[pathlib.Path, str]:
    """Returns the Kubernetes Jobs of programs beside `ngrams`: the same launch of another program."""
    text = _MADE + _JOB.read_text(encoding="utf-8")
    return {
        _JOB.with_name(name): text.replace("ngrams", program)
        .replace("--filename job.yaml", f"--filename {name}")
        .replace(_JOB_INPUT, _JOB_INPUT + _JOB_OPTIONS.get(program, ""))
        for name, program in _JOBS.items()
    }


def as_text(value: Mapping[str, Any]) -> str:
    """Returns JSON as the files hold it."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _parameter(option: Option, group: str, form: Form) -> dict[str, Any]:
    parameter: dict[str, Any] = {
        "name": option.name,
        "label": option.name.replace("_", " ").capitalize(),
        "helpText": option.help,
        "isOptional": option.name not in form.required,
        "groupName": group,
        "paramType": _type(option),
    }
    if option.choices:
        parameter["enumOptions"] = [{"value": choice, "label": choice} for choice in option.choices]
    else:
        parameter["regexes"] = [f"^({_PATTERNS.get(option.path, option.pattern)})$"]
    default = form.defaults.get(option.name, False if option.flag else option.default)
    if default is not None:
        parameter["defaultValue"] = str(default).lower() if option.flag else str(default)
    parent, values = _SHOWN_FOR.get(option.name, (None, ()))
    if parent is not None:
        parameter |= {"parentName": parent, "parentTriggerValues": list(values)}
    return parameter


def _type(option: Option) -> str:
    if option.flag:
        return "BOOLEAN"
    if option.choices:
        return "ENUM"
    # Real numbers are TEXT: whether the field of a NUMBER takes 1e-7 is nowhere said.
    if option.parse is integer:
        return "NUMBER"
    return _PATH_TYPES.get(option.path, "TEXT")


def main() -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--form", choices=FORMS, help="form whose launch specification is wanted")
    parser.add_argument("--image", help="address of the image, for the launch specification")
    given = parser.parse_args()
    if bool(given.form) != bool(given.image):
        parser.error("--form and --image go together")
    if given.form:
        sys.stdout.write(as_text(specification(FORMS[given.form], given.image)))
        return
    for name, form in FORMS.items():
        path = HERE / f"{name}_metadata.json"
        path.write_text(as_text(metadata(form)), encoding="utf-8")
    for path, text in flink_jobs().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
