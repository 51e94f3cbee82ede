"""The keys of the YAML transforms are the options of the programs, and take the same values."""

import argparse
import pathlib
import re

import pytest
from apache_beam.yaml.yaml_provider import InlineProvider

from beam_dpne import engines, yaml
from beam_dpne.cli import options_by_command as tables
from beam_dpne.cli.options import add_table, options_of
from beam_dpne.documents import batch, row_types, sources
from beam_dpne.errors import UsageError
from beam_dpne.release import publishing
from beam_dpne.yaml.configuration import (
    ADVICE,
    ALL,
    BAYESIAN,
    LEFT_OUT,
    NGRAMS,
    READ,
    RELEASE,
    REWORDED,
    in_words_of_yaml,
)
from beam_dpne.yaml.configuration import SET_UNION as UNION

PRIVATE = {"ngrams": (tables.NGRAMS, NGRAMS), "set-union": (tables.SET_UNION, UNION)}
PRIVATE |= {"bayesian": (tables.BAYESIAN, BAYESIAN)}
BUDGET = {"epsilon": 4, "delta": 1e-6}
OTHER_HELP = ("input_format", "partitions", "text_field", "fields", "text_is_tokens")


def names_of(options):
    return {option.name for option in options}


@pytest.mark.parametrize("program", PRIVATE)
def test_every_option_of_a_program_is_a_key_or_is_left_out_with_a_reason(program):
    table, keys = PRIVATE[program]
    offered = names_of(keys.options) | names_of(RELEASE.options)
    assert names_of(options_of(table)) == offered | (LEFT_OUT.keys() & names_of(options_of(table)))
    assert names_of(READ.options) - names_of(options_of(table)) == {"fields", "text_is_tokens"}
    assert not names_of(keys.options) & (names_of(RELEASE.options) | LEFT_OUT.keys())


def test_no_option_is_left_out_that_no_program_has():
    everything = {name for table, _ in PRIVATE.values() for name in names_of(options_of(table))}
    assert LEFT_OUT.keys() <= everything


@pytest.mark.parametrize("keys", ALL, ids=lambda keys: keys.transform)
def test_help_and_default_are_those_of_the_option(keys):
    options = [o for table, _ in PRIVATE.values() for o in options_of(table)]
    for option in keys.options:
        if keys is RELEASE or option.name in OTHER_HELP:
            continue
        assert option in options, option.name


@pytest.mark.parametrize("phrase", REWORDED)
def test_every_reworded_phrase_stands_in_some_help_text(phrase):
    helps = [option.help for table, _ in PRIVATE.values() for option in options_of(table)]
    assert any(phrase in text for text in helps)


@pytest.mark.parametrize("phrase", ADVICE)
def test_all_advice_for_python_stands_in_some_error(phrase):
    rooms = (row_types, batch, sources, publishing, engines)
    texts = " ".join(pathlib.Path(room.__file__).read_text(encoding="utf-8") for room in rooms)
    # A text of the source goes over several lines.
    assert phrase in re.sub(r'"\s+f?"', "", texts) or phrase == row_types.KINDS


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("tokens, give --tokenizer tokens.", "tokens, give tokenizer tokens."),
        (
            f"may hang; add {' '.join(engines.FLINK_OPTIONS)}, to it",
            f"may hang; add {' '.join(engines.FLINK_OPTIONS)}, to it",
        ),
        ("Convert it before.", "Convert it with MapToFields before."),
    ],
)
def test_errors_give_advice_for_yaml(message, expected):
    with pytest.raises(ValueError, match="^" + re.escape(expected) + "$"), in_words_of_yaml():
        raise ValueError(message)


@pytest.mark.parametrize("keys", ALL, ids=lambda keys: keys.transform)
def test_beam_reads_the_schema_and_the_documentation_of_every_key(keys):
    transform = getattr(yaml, keys.transform)
    schema = InlineProvider.config_schema_from_callable(transform)
    fields = {field.name: field for field in schema.fields}
    assert list(fields) == [option.name for option in keys.options]
    assert {name for name, field in fields.items() if not field.type.nullable} == set(keys.required)
    for option in keys.options:
        text = fields[option.name].description
        assert len(text) > 30
        assert "--" not in text
        assert "beam-dpne set-union" not in text
        assert ("It is required" in text) == (option.name in keys.required)
    assert "Args:" not in InlineProvider.description_from_callable(transform)
    assert transform.__name__ == keys.transform


def test_types_are_those_of_the_options():
    schema = InlineProvider.config_schema_from_callable(yaml.PrivateNgrams)
    kinds = {field.name: field.type for field in schema.fields}
    assert kinds["max_contributions"].array_type.element_type.atomic_type == 4  # INT64
    assert kinds["budget_shares"].array_type.element_type.atomic_type == 6  # DOUBLE
    assert kinds["text_field"].array_type.element_type.atomic_type == 7  # STRING
    assert kinds["epsilon"].atomic_type == 6
    assert kinds["strategy"].atomic_type == 7
    written = InlineProvider.config_schema_from_callable(yaml.WriteRelease)
    assert {f.name: f.type.atomic_type for f in written.fields}["overwrite"] == 8  # BOOLEAN


# A value of YAML, and the words that mean the same on the command line.
SAME = [
    ("max_contributions", 10, ["10"]),
    ("max_contributions", [10, 20], ["10,20"]),
    ("max_contributions", "10,20", ["10,20"]),
    ("budget_shares", [0.5, 0.5], ["0.5,0.5"]),
    ("epsilon", 4, ["4"]),
    ("epsilon", "4", ["4"]),
    ("delta", 1e-06, ["1e-06"]),
    ("delta", "1e-6", ["1e-6"]),
    ("text_field", "body", ["body"]),
    ("text_field", ["subject", "a,b"], ["subject", "a,b"]),
    ("user_field", "who", ["who"]),
    ("strategy", "one_round", ["one_round"]),
    ("max_length", 3, ["3"]),
    ("run_key_file", "gs://bucket/key", ["gs://bucket/key"]),
    ("plan", None, []),
]


@pytest.mark.parametrize(("name", "value", "words"), SAME)
def test_a_value_is_parsed_as_the_program_parses_it(name, value, words):
    parser = argparse.ArgumentParser()
    add_table(parser, tables.NGRAMS)
    expected = parser.parse_args([part for word in words for part in (f"--{name}", word)])
    found = NGRAMS.parse({name: value})
    assert getattr(found, name) == getattr(expected, name)


@pytest.mark.parametrize("value", [True, "true"])
def test_a_flag_is_true_or_false(value):
    assert RELEASE.parse({"overwrite": value}).overwrite is True
    assert RELEASE.parse({"overwrite": "false"}).overwrite is False
    assert RELEASE.parse({}).overwrite is None


REFUSED = [
    ("max_length", 3.0, "must be an integer, e.g. 10, got max_length=3.0"),
    ("max_length", True, "must be an integer"),
    ("max_length", "3_0", "must be an integer"),
    ("max_length", [3], "must be an integer"),
    ("epsilon", "four", "must be a number"),
    ("epsilon", [4], "must be a number"),
    ("epsilon", True, "must be a number"),
    ("max_contributions", [1, "a"], "must be an integer or a list of integers"),
    ("max_contributions", [], "must be an integer or a list of integers"),
    ("max_contributions", [[1]], "must be an integer or a list of integers"),
    ("text_field", ["a", 7], "must be the name of a field, or a list of names"),
    ("text_field", [], "must be the name of a field"),
    ("user_field", 7, "must be text, in quotes if YAML reads it as something else"),
    ("user_field", ["a"], "must be text"),
    ("tokenizer", {"name": "words"}, "must be text"),
    ("strategy", "adaptiv", "must be one of adaptive, one_round, .*Did you mean adaptive?"),
]


@pytest.mark.parametrize(("name", "value", "message"), REFUSED)
def test_a_value_of_a_wrong_type_is_refused(name, value, message):
    with pytest.raises(UsageError, match=f"^{name} {message}"):
        NGRAMS.parse({name: value})


@pytest.mark.parametrize("value", ["yes", 1, "True", [True]])
def test_a_flag_takes_nothing_else(value):
    with pytest.raises(UsageError, match=r"^overwrite must be true or false, got overwrite="):
        RELEASE.parse({"overwrite": value})


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("max_lenght", "has no key max_lenght. Did you mean max_length?"),
        ("maxLength", "has no key maxLength. Did you mean max_length?"),
        ("max-length", "has no key max-length. Did you mean max_length?"),
        ("user", "has no key user. Did you mean user_field?"),
        ("users", "has no key users. Did you mean user_field?"),
        ("user_id", "has no key user_id. Did you mean user_field?"),
        ("text", "has no key text. Did you mean text_field?"),
        ("textColumn", "has no key textColumn. Did you mean text_field?"),
        ("output", "has no key output, which is a key of WriteRelease."),
        ("zebra", "has no key zebra. Its keys are epsilon, delta, max_length,"),
        ("input", "which is an option of the program only: the rows are the input"),
        ("arpa", "which is an option of the program only: "),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_name(name, wanted):
    with pytest.raises(UsageError) as caught:
        yaml.PrivateNgrams(**{**BUDGET, name: 3})
    assert wanted in str(caught.value)


def test_two_spellings_of_a_key_are_refused():
    with pytest.raises(UsageError, match=r"no key maxLength\. Did you mean max_length\?"):
        yaml.PrivateNgrams(**BUDGET, max_length=3, maxLength=4)
