"""The checks of an operator's fields against the option tables."""

import re
import subprocess
import sys

import pytest

from beam_dpne.airflow.options import (
    ENDS_BEFORE_JOB,
    TABLES,
    arguments,
    is_inside,
    is_template,
    paths_of,
)
from beam_dpne.cli.main import OneLineParser, run_program
from beam_dpne.cli.options import add_program, options_of

FIELDS = {"input": "/data/a.csv", "epsilon": 1, "delta": 1e-7, "run_key_file": None}


def of(program="ngrams", options=None, releases="/releases", without=None, remote=False, **fields):
    return arguments(
        program,
        fields={**FIELDS, **fields},
        options=options,
        releases=releases,
        without=without,
        remote=remote,
    )


def parsed(program, given):
    """What the program's own parser makes of the arguments."""
    seen = []
    parser = OneLineParser(allow_abbrev=False)
    add_program(parser, TABLES[program])
    parser.set_defaults(command=lambda given, beam: seen.append((given, beam)))
    assert run_program(parser, given) == 0
    return seen[0]


def test_the_program_s_parser_reads_what_the_operator_means():
    given, beam = parsed(
        "ngrams",
        of(
            input=["/data/a.csv", "/data/b.csv"],
            epsilon="0.5",
            options={
                "max_contributions": [5, 6, 7],
                "text_field": ["title", "body"],
                "strict": True,
                "failure_log_remote": False,
                "strategy": "one_round",
                "budget_shares": (0.2, 0.8),
                "columns": ["user", "text"],
                "rejects": None,
            },
        ),
    )
    assert beam == []
    assert given.input == ["/data/a.csv", "/data/b.csv"]
    assert (given.epsilon, given.delta) == (0.5, 1e-7)
    assert given.max_contributions == (5, 6, 7)
    assert given.text_field == ["title", "body"]
    assert (given.strict, given.failure_log_remote) == (True, False)
    assert (given.strategy, given.budget_shares) == ("one_round", (0.2, 0.8))
    assert given.columns == ("user", "text")
    assert given.rejects is None


@pytest.mark.parametrize("program", TABLES)
def test_all_options_but_those_that_the_operator_has_itself_are_taken(program):
    def is_taken(name):
        public = {"public": "/public.txt"} if program == "bayesian" else {}
        try:
            of(program, {**public, name: None} if name != "public" else public)
        except ValueError:
            return False
        return True

    names = {option.name for option in options_of(TABLES[program])}
    assert {name for name in names if not is_taken(name)} == {
        "output",
        "overwrite",
        "budget",
        *FIELDS,
    }


@pytest.mark.parametrize(
    ("program", "options", "message"),
    [
        ("ngrams", {"max_lenght": 3}, "got 'max_lenght'; did you mean 'max_length'"),
        (
            "set-union",
            {"max_length": 3},
            "must be options of beam-dpne set-union, got 'max_length'",
        ),
        ("ngrams", {"max_length": "three"}, "max_length must match"),
        ("ngrams", {"max_length": -3}, "max_length must match"),
        ("ngrams", {"max_length": [3, 4]}, "max_length must have one value, got 2 values"),
        ("ngrams", {"strategy": "adaptiv"}, "did you mean 'adaptive'"),
        ("ngrams", {"strict": "yes"}, "strict must match true|false"),
        ("ngrams", {"input": "/data/b.csv"}, "input, which is a field of the operator"),
        ("ngrams", {"output": "/other"}, "options must not have output here"),
        ("ngrams", {"overwrite": True}, "second expense of its budget"),
        ("ngrams", {"{{ name }}": 3}, "names that are no templates"),
        ("bayesian", {}, "public must be given"),
        ("ngrams", ["strict"], "options must be a dict of options, got list"),
        (
            "ngram",
            {},
            "program must be one of ngrams, set-union, bayesian, got program='ngram'; did",
        ),
    ],
)
def test_a_wrong_option_is_refused_by_name(program, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        of(program, options)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"input": None}, "input must be given"),
        ({"input": []}, "input must be given"),
        ({"epsilon": None}, "epsilon must be given"),
        ({"delta": None}, "delta must be given"),
        ({"epsilon": "much"}, "epsilon must match"),
        ({"epsilon": True}, "epsilon must match"),
        ({"input": "data/a.csv"}, "input must be an absolute path or an address"),
        ({"releases": "releases"}, "releases must be an absolute path or an address"),
        ({"run_key_file": "run.key"}, "run_key_file must be an absolute path"),
        ({"input": "/data/a.csv", "remote": True}, "must be an address on Google Cloud Storage"),
    ],
)
def test_a_wrong_field_is_refused_by_name(fields, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        of(**fields)


def test_a_plan_stands_for_the_budget():
    given = of(epsilon=None, delta=None, options={"plan": "/plans/approved.json"})
    assert given == ["--input=/data/a.csv", "--plan=/plans/approved.json"]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("rejects", "/releases/rejects"),
        ("failure_log", "/releases/dag/task/run/failure.log"),
        ("vocabulary", "/elsewhere/../releases/words.txt"),
        ("rejects", "/releases"),
    ],
)
def test_no_option_may_be_a_path_among_the_releases(name, path):
    with pytest.raises(ValueError, match=f"{name} must be outside /releases, which holds releases"):
        of(options={name: path})


@pytest.mark.parametrize(
    "fields", [{"run_key_file": "/releases/run.key"}, {"input": ["/releases/*"]}]
)
def test_no_field_may_be_a_path_among_the_releases(fields):
    with pytest.raises(ValueError, match="must be outside /releases"):
        of(**fields)


def test_a_language_model_may_not_be_among_the_releases_but_a_release_may_be_the_public_counts():
    assert of("bayesian", {"public": "/releases/dag/task/run"})
    with pytest.raises(ValueError, match="arpa must be outside /releases"):
        of("bayesian", {"public": "/public.txt", "arpa": "/releases/model.arpa"})


def test_templates_are_left_for_the_task():
    assert of(
        input="{{ params.input }}",
        epsilon="{{ params.epsilon }}",
        delta=1e-7,
        options={"max_length": "{{ params.length }}", "strict": True},
        releases="{{ var.value.releases }}",
    ) == ["--delta=1e-07", "--strict=true"]
    assert of(options=lambda context, jinja_env: {}) == [
        *("--input=/data/a.csv", "--epsilon=1", "--delta=1e-07"),
    ]


def test_a_template_beside_a_wrong_option_hides_nothing():
    with pytest.raises(ValueError, match="did you mean 'max_length'"):
        of(options={"max_lenght": "{{ params.length }}"})


@pytest.mark.parametrize("value", ["{% if x %}a{% endif %}", "{# a #}", ["a", "{{ b }}"], object()])
def test_what_airflow_renders_is_a_template(value):
    assert is_template(value)


@pytest.mark.parametrize("value", ["a{b}", 1, 1.5, True, None, ["a"], {"a": 1}])
def test_what_airflow_leaves_alone_is_none(value):
    assert not is_template(value)


def test_an_option_that_an_engine_cannot_honour_is_refused_with_the_reason():
    for name in ENDS_BEFORE_JOB:
        if name == "arpa":
            continue
        value = True if name == "failure_log_remote" else "/private/log"
        with pytest.raises(
            ValueError, match=f"not have {name} here: the program that starts the job"
        ):
            of(options={name: value}, without=ENDS_BEFORE_JOB)


def test_the_paths_of_a_command_are_found_several_in_one_text_too():
    given = ["--input=gs://b/a.csv,gs://b/c.csv", "--rejects=/r", "--strict=true", "--epsilon=1"]
    assert paths_of("ngrams", given) == [
        ("input", "gs://b/a.csv"),
        ("input", "gs://b/c.csv"),
        ("rejects", "/r"),
    ]
    assert paths_of("bayesian", ["--public=/p", "--arpa=/m.arpa"]) == [("arpa", "/m.arpa")]


def test_insideness_goes_by_whole_names():
    assert is_inside("gs://bucket/releases/a", "gs://bucket/releases/")
    assert not is_inside("gs://bucket/releases2", "gs://bucket/releases")
    assert not is_inside("gs://bucket/../other/releases", "gs://bucket/other/releases")


def test_parsing_a_dag_needs_no_beam():
    script = (
        "import sys, beam_dpne.airflow.options, beam_dpne.airflow.provider\n"
        "assert not {'apache_beam', 'numpy', 'pyarrow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
