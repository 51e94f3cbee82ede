"""Launch forms and launch specifications of Flex Templates, from the parameters of the programs.

    python3 -m templates.generate --form ngrams
    python3 -m templates.generate --form ngrams --image REGION-docker.pkg.dev/PROJECT/REPO/NAME:TAG

The first prints a form, Dataflow's `TemplateMetadata`; the second the launch specification, which holds
the form and the address of the image, for `gs://`.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from beam_dpne.jobs.parameters import FailureLogging, Quiet
from beam_dpne.jobs.programs import PROGRAMS
from beam_dpne.validation import PATTERNS, Parameter, parameters_of
from deploy.downloads import versions

# A worker elsewhere has none of the launcher's files, so forms want objects. The patterns are in the
# syntax that Python, Java and RE2 share.
_BUCKET = "gs://[a-z0-9][-_.a-z0-9]{1,220}[a-z0-9]/"
_PATTERNS = {
    "file": _BUCKET + r"[^*?\[\r\n]+",
    "directory": _BUCKET + r"[^*?\[\r\n]+",
    "files": _BUCKET + r"[^\r\n]+",
}
_PATH_TYPES = {"file": "GCS_READ_FILE", "files": "GCS_READ_FILE", "directory": "GCS_WRITE_FOLDER"}
# The launcher ends before the job, and nobody looks at it.
_LAUNCHER_ONLY = (FailureLogging, Quiet)
# A corpus that one worker holds needs no job on Dataflow, and the launcher settles no budget and ends
# before workers do a first step.
_NOT_ON_DATAFLOW = ("workers", "budget", "harness_timeout")
_COMPLETE = "The release is complete when ledger.json is in its directory."


@dataclasses.dataclass(frozen=True, kw_only=True)
class Yaml:
    """The parameters by which `gcloud dataflow yaml run` hands a pipeline over."""

    yaml_pipeline_file: Annotated[
        str | None,
        Parameter(
            path="file",
            help="File with a pipeline of Beam YAML, e.g. one of pipelines/yaml, whose transforms "
            "PrivateNgrams, PrivateSetUnion, BayesianCounts, CountPhrases and WriteRelease come from "
            "the package in this image. It is required, unless the text of a pipeline is given.",
        ),
    ] = None
    yaml_pipeline: Annotated[
        str | None,
        Parameter(
            pattern=r"[^\x00]+",
            help="Text of a pipeline of Beam YAML, instead of a file. gcloud sends the text of a file "
            "that it can read, so that paths in the file must be complete addresses.",
        ),
    ] = None
    jinja_variables: Annotated[
        str | None,
        Parameter(
            pattern=r"\{[^\x00]*\}",
            help="Variables of the pipeline, as a JSON object, e.g. "
            '{"input": "gs://bucket/tickets/*.jsonl", "output": "gs://bucket/release", '
            '"epsilon": 4, "delta": 1e-7}. They are shown with the job, so no secret may be in them.',
        ),
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Form:
    """A launch form: a program, and what it asks for.

    Attributes:
      program: file of `pipelines` that the launcher starts.
      title: the template's name.
      description: what a launch does.
      groups: the groups of parameters, by the heading under which the form shows them.
    """

    program: str
    title: str
    description: str
    groups: Mapping[str, Sequence[type]]

    @property
    def parameters(self) -> list[tuple[str, Parameter]]:
        """The parameters that a launch may have, each with its heading."""
        return [
            (heading, parameter)
            for heading, groups in self.groups.items()
            for group in groups
            for parameter in parameters_of(group)
            if parameter.name not in _NOT_ON_DATAFLOW
        ]


def _of_program(name: str) -> Mapping[str, Sequence[type]]:
    """Returns the groups of a program, without those that are for its launcher alone."""
    return {
        title.capitalize(): [kind for kind in kinds if kind not in _LAUNCHER_ONLY]
        for title, kinds in PROGRAMS[name].load_groups().items()
    }


FORMS = {
    "ngrams": Form(
        program="ngrams.py",
        title="Private n-grams",
        description="Releases the n-grams that many users share, with user-level (ε, δ)-differential "
        f"privacy. {_COMPLETE}",
        groups=_of_program("ngrams"),
    ),
    "set_union": Form(
        program="set_union.py",
        title="Private set union",
        description="Releases the items that many users share, such as words, names or queries, with "
        f"user-level (ε, δ)-differential privacy. {_COMPLETE}",
        groups=_of_program("set-union"),
    ),
    "bayesian": Form(
        program="bayesian.py",
        title="Private n-gram probabilities",
        description="Estimates a probability for every n-gram of a public vocabulary, with user-level "
        f"(ε, δ)-differential privacy. {_COMPLETE}",
        groups=_of_program("bayesian"),
    ),
    "count": Form(
        program="count.py",
        title="Numbers of users of a list",
        description="Counts the users of each phrase of a public list, with user-level (ε, δ)-"
        f"differential privacy. {_COMPLETE}",
        groups=_of_program("count"),
    ),
    "yaml": Form(
        program="beam_yaml.py",
        title="Beam YAML with private transforms",
        description="Runs a pipeline of Beam YAML, which may use PrivateNgrams, PrivateSetUnion, "
        f"BayesianCounts, CountPhrases and WriteRelease. {_COMPLETE}",
        groups={"Pipeline": (Yaml,)},
    ),
}


def metadata(form: Form) -> dict[str, Any]:
    """Returns a form as Dataflow's `TemplateMetadata`, in JSON types."""
    return {
        "name": form.title,
        "description": form.description,
        "streaming": False,
        "parameters": [_field(heading, each) for heading, each in form.parameters],
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


def _field(heading: str, parameter: Parameter) -> dict[str, Any]:
    """Returns a field of a form. It has no default, so that a plan file may hold the parameter."""
    in_plan_file = heading == "Privacy"
    default = "" if parameter.required else f" The default is {parameter.shown_default}."
    field: dict[str, Any] = {
        "name": parameter.name,
        "label": parameter.name.replace("_", " ").capitalize(),
        "helpText": parameter.help + default,
        "isOptional": in_plan_file or not parameter.required,
        "groupName": heading,
        "paramType": _type(parameter),
    }
    if parameter.choices:
        field["enumOptions"] = [{"value": each, "label": each} for each in parameter.choices]
    else:
        field["regexes"] = [f"^({_PATTERNS.get(parameter.path, _text_pattern(parameter))})$"]
    return field


def _text_pattern(parameter: Parameter) -> str:
    """Returns the regular expression of the texts that a parameter accepts."""
    one = parameter.pattern or "|".join(parameter.choices) or PATTERNS[parameter.kind]
    return f"({one})(,({one}))*" if parameter.has_commas else one


def _type(parameter: Parameter) -> str:
    if parameter.kind is bool:
        return "BOOLEAN"
    if parameter.choices:
        return "ENUM"
    # Real numbers are TEXT: whether the field of a NUMBER takes 1e-7 is nowhere said.
    if parameter.kind is int and not parameter.several:
        return "NUMBER"
    return _PATH_TYPES.get(parameter.path, "TEXT")


def main() -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--form", choices=FORMS, required=True, help="the form")
    parser.add_argument("--image", help="address of the image, for the launch specification")
    given = parser.parse_args()
    form = FORMS[given.form]
    value = specification(form, given.image) if given.image else metadata(form)
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
