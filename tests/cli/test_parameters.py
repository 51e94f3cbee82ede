"""The one definition of parameters: command lines, files of parameters, and what they refuse."""

import json
import os
import re
import subprocess
import sys

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from beam_dpne.cli.commands import COMMANDS, command_of
from beam_dpne.errors import UsageError
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.validation import parameters_of

BY_NAME = {command.name: command for command in COMMANDS}
BUDGET = ("--epsilon", 1, "--delta", 1e-6)
FILES = ("--input", "in.jsonl", "--output", "out")
RUN = (*FILES, *BUDGET)


# Commands with the parameters of a program's plan, which they take after its name.
PLANNED = [
    command_of((name, program))[0]
    for name in ("plan", "audit")
    for program in ("set-union", "bayesian")
]
# Texts of parameters with a form of their own, and a list whose members have a comma and a quote.
TEXTS = {
    "where": ["turns.role=a,b", "kind=note"],
    "encoding": "cp1252",
    "delimiter": "semicolon",
    "tokenizer": "words",
    "item_separator": ";",
    "columns": ["user", 'text, "long"'],
}


def options(command):
    return [name for name, each in command.parameters.items() if each.in_short_help]


def example(each):
    """A value of a parameter, other than its default, in the types of JSON."""
    if each.name in TEXTS:
        return TEXTS[each.name]
    if each.kind is bool:
        return True
    if each.choices:
        one, *others = [choice for choice in each.choices if choice != each.default]
        return [one, *others[:1]] if each.several else one
    if each.kind is str:
        one = "a text, long"
    else:
        low = max(each.least, each.above, 0)
        high = min(each.most, each.below, low + 6)
        one = int(high) if each.kind is int else low + (high - low) / 4
    return [one, one] if each.several else one


@pytest.mark.parametrize(
    ("command", "each"),
    [
        pytest.param(
            command, each, id=f"{command.name}-{command.groups.get('privacy', '')[:1]}-{name}"
        )
        for command in [*COMMANDS, *PLANNED]
        for name, each in command.parameters.items()
        if name != "plan"
    ],
)
def test_each_parameter_is_an_option_with_the_value_that_the_plan_file_gives(
    tmp_path, command, each
):
    value = example(each)
    texts = each.texts(value)
    if each.kind is bool:
        arguments = [f"--{each.name}"]
    elif each.name == command.positional:
        arguments = texts
    else:
        arguments = [f"--{each.name}={text}" for text in texts]
    given, others = command.read(arguments)
    assert (list(given), others) == ([each.name], [])
    assert each.checked(given[each.name]) == each.checked(value) != each.default
    if "plan" in command.parameters:
        (tmp_path / "plan.json").write_text(json.dumps({each.name: value}))
        in_file, _ = command.read(["--plan", str(tmp_path / "plan.json")])
        assert each.checked(in_file[each.name]) == each.checked(given[each.name])
        with pytest.raises(UsageError, match="already"):
            command.read([*arguments, "--plan", str(tmp_path / "plan.json")])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("--columns=user,text", ("user", "text")),
        ('--columns="a text, long",user', ("a text, long", "user")),
        ("--mask=urls,emails", ("urls", "emails")),
        ("--budget_shares=0.25,0.75", (0.25, 0.75)),
        ("--text_field=a, b", "a, b"),
        ("--input=a,b.csv", "a,b.csv"),
    ],
)
def test_lists_have_commas_but_names_and_paths_that_are_mostly_one_do_not(text, value):
    given, _ = BY_NAME["ngrams"].read([text])
    assert list(given.values()) == [value]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each.name)
def test_an_option_of_one_value_is_given_once(command, capsys):
    for name, each in command.parameters.items():
        if each.several or name == command.positional:
            continue
        one = f"--{name}" if each.kind is bool else f"--{name}={each.texts(example(each))[0]}"
        with pytest.raises(SystemExit) as ended:
            command.read([one, one])
        assert ended.value.code == 2
        assert f"--{name} is given twice" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("whole", "message"),
    [
        (
            '{"epsilon": -1, "delta": 0.1}',
            "in the file {}: epsilon must be a number > 0, got epsilon=-1",
        ),
        (
            '{"mask": ["urls", "x"]}',
            "in the file {}: mask must be some of urls,",
        ),
        (
            '{"epsilon": 1, "epsilon": 2}',
            "--plan {} must have each parameter once, got epsilon twice",
        ),
        (
            '{"epsilom": 1}',
            "--plan {} must have known parameters, got epsilom. Did you mean epsilon?",
        ),
        (
            "UNION",
            "--plan must be a file of parameters of this command, got {}, which is a plan of set",
        ),
    ],
)
def test_an_error_in_a_file_of_parameters_names_the_file(cli, tmp_path, whole, message):
    path = tmp_path / "plan.json"
    path.write_text(SetUnionPlan(epsilon=1, delta=1e-6).to_json() if whole == "UNION" else whole)
    ended = cli("ngrams", *FILES, "--plan", path)
    assert ended.status == 2
    assert ended.err.startswith(f"beam-dpne: error: {message.format(path)}")


def test_no_option_has_the_name_of_one_of_beam():
    parsers = []
    PipelineOptions([]).get_all_options(add_extra_args_fn=parsers.append)
    beams = set(re.findall(r"--(\w+)", parsers[0].format_usage()))
    assert {"job_name", "temp_location", "streaming"} <= beams
    for command in COMMANDS:
        if command.takes_beam:
            assert not beams & set(command.parameters)


@pytest.mark.parametrize("command", ["plan", "audit"])
def test_a_program_comes_before_the_parameters_of_its_plan(cli, command):
    assert cli(command, "set-union", *BUDGET, "--max_items_per_user", 0).err.startswith(
        "beam-dpne: error: --max_items_per_user must be an integer"
    )
    assert (
        "there is no option --max_items_per_user"
        in cli(command, "ngrams", "--max_items_per_user", 1).err
    )
    ended = cli(command, *BUDGET, "set-union")
    assert (ended.status, "PROGRAM must be the first argument" in ended.err) == (2, True)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each.name)
def test_the_whole_help_shows_each_parameter_with_its_sentences_and_its_default(cli, command):
    ended = cli(command.name, "--help-all")
    assert (ended.status, ended.err) == (0, "")
    text = " ".join(ended.out.split())
    for name, each in command.parameters.items():
        assert (name.upper() if name == command.positional else name) in text
        assert each.help in text
        assert (
            each.shown_default in ("none", "required") or f"default: {each.shown_default}" in text
        )


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each.name)
def test_the_help_is_two_screens_with_what_must_be_given_first(cli, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    ended = cli(command.name, "--help")
    lines = ended.out.splitlines()
    assert (ended.status, ended.err) == (0, "")
    assert len(lines) <= 2 * 24
    assert max(map(len, lines)) < 80
    assert f"beam-dpne {command.name} " in lines[4] + lines[5] + lines[6]
    shown = {name: at for at, line in enumerate(lines) for name in re.findall(r"^  --(\w+)", line)}
    assert {*shown, command.positional} >= {*options(command)}
    required = {name for name, each in command.parameters.items() if each.required} & {*shown}
    assert all(lines[shown[name]].startswith(f"  --{name} ") for name in required)
    others = [shown[name] for name in options(command) if name in {*shown} - required]
    assert max((shown[name] for name in required), default=0) < max(others, default=len(lines))
    first = " ".join(lines[: min(others, default=len(lines))])
    assert all(f"--{name} " in first for name in required)


def test_a_command_has_each_parameter_once():
    for command in [*COMMANDS, *PLANNED]:
        names = [
            each.name
            for kinds in command.load_groups().values()
            for kind in kinds
            for each in parameters_of(kind)
        ]
        assert len(set(names)) == len(names)


def test_help_holds_for_every_way_of_giving_a_parameter():
    for command in COMMANDS:
        for name, each in command.parameters.items():
            assert each.help.endswith("."), name
            assert "--" not in each.help, name
            assert "option" not in each.help.lower(), name


def test_commands_and_the_version_are_listed(cli):
    ended = cli("--help")
    assert ended.status == 0
    assert all(command.name in ended.out for command in COMMANDS)
    assert cli("--version").out.startswith("beam-dpne ")
    alone = cli()
    assert (alone.status, alone.out) == (2, ended.out)
    of_series = cli("series", "--help")
    assert (of_series.status, of_series.err) == (0, "")
    assert {"series create", "series show"} < {
        line[2:15].strip() for line in of_series.out.split("\n")
    }
    assert "set-union" not in of_series.out
    assert "there is no command ngram. Did you mean ngrams?" in cli("ngram", *RUN).err


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        ("ngrams", (), "--input, --epsilon, --delta and --output must be given"),
        ("ngrams", FILES, "--epsilon and --delta must be given"),
        ("ngrams", (*RUN, "--max_length", "0"), "--max_length must be an integer from 1 to 100"),
        ("ngrams", (*RUN, "--max_length", "2_0"), "--max_length must be an integer"),
        ("ngrams", (*FILES, "--epsilon", "inf"), "--epsilon must be a number > 0"),
        ("ngrams", (*FILES, "--epsilon", 1, "--delta", 1), "--delta must be a number in (0, 1), got"),
        ("ngrams", (*FILES, "--epsilon", 1, "--delta", 1e-21), "--delta must be at least 1e-20"),
        ("ngrams", (*RUN, "--strategy", "greedy"), "--strategy must be one of adaptive, one_round"),
        ("ngrams", (*RUN, "--max_contributions", "1,2"), "--max_contributions must have one value for"),
        ("ngrams", (*RUN, "--workers", "257"), "--workers must be an integer from 1 to 256"),
        ("ngrams", (*RUN, "--tokenizer", "wrds"), "--tokenizer must be words, unicode_words"),
        ("ngrams", (*RUN, "--user_field", "text"),
         "name each field once, got --user_field='text' and --text_field='text'."),
        ("ngrams", (*RUN, "--text_field", "user"),
         "name each field once, got --user_field='user' and --text_field='user'."),
        ("ngrams", (*RUN, "--plan", ""), "--plan must be the path of a file, got --plan=''"),
        ("ngrams", (*RUN, "--mask", "urls,urls"), "--mask must name each value once, got --mask=urls"),
        ("check", (), "PROGRAM must be given. Program of the run. It is one of ngrams, set-union, "),
        ("audit", ("foo",), "PROGRAM must be one of ngrams, set-union, "),
        ("ngrams", (*RUN, "--columns", "a,b"),
         "--user_field='user' must stand once in --columns=a,b."),
        ("ngrams", (*BUDGET, "--output", "x", "--input", ""), "--input must be a path, or a list"),
        ("ngrams", (*FILES, "--epsilon", "--delta", 1), "--epsilon must have a value"),
        ("show", ("--release", "r"), "--release must be left out: its value is given by itself"),
        ("series", ("show",), "FOLDER must be given"),
        ("series", (), "there is no command series. There are series create and series show"),
        ("report", ("r", "--since", ""), "--since must be text, got --since=''"),
        ("ngrams", (*RUN, "--budget_shares", ".5,.5"),
         "--budget_shares must be left out with --strategy='adaptive', got --budget_shares=0.5,0.5."),
        ("ngrams", (*RUN, "--item_separator", ""), "--item_separator must be 1 to 8 characters"),
        ("ngrams", (*RUN, "--partitions", 2**21), "--partitions must be an integer from 1 to 1048576"),
        ("ngrams", (*RUN, "--encoding", "utf-99"), "--encoding must be"),
        ("ngrams", (*RUN, "--overwrite=yes"), "--overwrite must be true or false"),
        ("ngrams", (*RUN, "--max_rejected", "2"), "--max_rejected must be a number in [0, 1]"),
        ("ngrams", (*RUN, "--title", "  "), "--title must be one line"),
        ("ngrams", (*RUN, "--noise_growth", "2"), "--noise_growth must be left out with --strategy="),
        ("set-union", (*RUN, "--policy", "none"), "--policy must be one of "),
        ("bayesian", RUN, "--public must be given"),
        ("bayesian", (*RUN, "--public", "p", "--length", "6"), "--length must be an integer from"),
        ("plan", (*BUDGET, "--users", "10"), "--users, --documents_per_user, --epsilons and --known"),
        ("plan", (*BUDGET, "--releases", "0"), "--releases must be an integer of at least 1"),
        ("plan", (*BUDGET, "--runner", "X"), "there is no option --runner"),
        ("evaluate", ("--input", "x"), "--release must be given"),
        ("report", (), "RELEASE must be given"),
        ("export", ("r",), "--to and --output must be given"),
        ("account", (), "account takes one of: LEDGERS;"),
        ("account", ("--create",), "--budget, --population, --epsilon and --delta must be given"),
        ("account", ("--budget", "b", "--add"), "LEDGERS must be given as well, got --budget and"),
        ("account", ("r", "--budget", "b"), "--add must be given as well, got LEDGERS"),
        ("audit", (), "PROGRAM, --epsilon and --delta must be given"),
        ("check", ("--input", "x"), "PROGRAM must be given"),
        ("plan", ("trigrams", *BUDGET), "PROGRAM must be one of ngrams, set-union, bayesian, count,"),
        ("audit", ("ngrams", *BUDGET, "--runs", "3"), "--runs must be an integer from 200 to 10000000"),
        ("audit", ("ngrams", "--epsilon", "1"), "--delta must be given"),
    ],
)  # fmt: skip
def test_a_wrong_parameter_is_one_line_and_status_2(cli, command, arguments, message):
    ended = cli(command, *arguments)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith(f"beam-dpne: error: {message}"), ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    ("data", "given", "named"),
    [
        (b"name,words\nann,hello\n", (), ["--user_field", "--columns to", "--delimiter to"]),
        (b"us\xe4r,text\nann,hello\n", (), ["--encoding=cp1252", "--columns to"]),
        (b"user;text\nann;hello\n", (), ["--delimiter=semicolon"]),
        (b"user,text\n", ("--encoding", "utf-16"), ["--encoding=utf-8"]),
    ],
)
def test_the_remedy_for_a_file_names_options_as_they_are_typed(cli, tmp_path, data, given, named):
    path = tmp_path / "notes.csv"
    path.write_bytes(data)
    ended = cli("ngrams", "--input", path, "--output", tmp_path / "out", *BUDGET, *given)
    assert ended.status == 2
    for option in named:
        assert option in ended.err, ended.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "--plan {path} must be a JSON object; line 1 is not JSON"),
        ("[1]", "--plan {path} must be a JSON object of parameters"),
        (
            '{"epsylon": 1}',
            "--plan {path} must have known parameters, got epsylon. Did you mean epsilon?",
        ),
        (
            '{"policy": "sips"}',
            "--plan must be a file of parameters of this command, got {path}, which is",
        ),
        ('{"epsilon": 1}', "--epsilon is in the file"),
        (
            '{"rounds": "3"}',
            "in the file {path}: rounds must be an integer from 1 to 3, got rounds='3'",
        ),
        (
            '{"adjacency": "replace_one_user"}',
            "adjacency must be one of add_or_remove_one_user",
        ),
        (
            '{"public_user_count": 10000000}',
            "--delta must be at most 1/public_user_count",
        ),
        (
            '{"known_same_people": true}',
            "known_same_people (in {path}) must be given with --known, which names",
        ),
    ],
)
def test_a_wrong_file_of_parameters_is_one_line_and_status_2(cli, tmp_path, text, message):
    path = tmp_path / "plan.json"
    path.write_text(text)
    ended = cli("ngrams", *RUN, "--plan", path)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith(f"beam-dpne: error: {message.format(path=path)}"), ended.err


def test_a_file_of_parameters_may_hold_any_of_them(cli, tmp_path):
    """The file alone gives the whole run, paths included."""
    lines = [json.dumps({"who": f"u{place}", "body": "good day"}) for place in range(60)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    values = {
        "input": [str(tmp_path / "in.jsonl")],
        "user_field": "who",
        "text_field": ["body"],
        "epsilon": 10,
        "delta": 1e-4,
        "max_length": 2,
        "max_contributions": [5, 8],
        "rounds": 1,
        "favour": None,
        "output": str(tmp_path / "out"),
        "title": "A title",
        "partitions": 2,
        "quiet": True,
    }
    (tmp_path / "plan.json").write_text(json.dumps(values))
    ended = cli("ngrams", "--plan", tmp_path / "plan.json")
    assert (ended.status, ended.err) == (0, "")
    ledger = json.loads((tmp_path / "out" / "ledger.json").read_text())
    assert ledger["plan"]["rounds"] == 1
    assert ledger["plan"]["max_contributions"] == [5, 8]
    assert ledger["notes"]["title"] == "A title"


def test_a_missing_file_of_parameters_is_named(cli, tmp_path):
    ended = cli("ngrams", *RUN, "--plan", tmp_path / "none.json")
    assert ended.status == 2
    assert "plan cannot be read" in ended.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("ngrams", "--help"),
        ("ngrams", *RUN, "--max_length", 0),
        ("set-union", *RUN, "--policy", "none"),
        ("evaluate",),
    ],
)
def test_help_and_a_wrong_parameter_do_not_wait_for_beam(program, arguments):
    script = (
        "import sys\n"
        "from beam_dpne.cli.main import main\n"
        f"main({[str(each) for each in arguments]!r})\n"
        "print([name for name in ('apache_beam', 'pandas') if name in sys.modules])\n"
    )
    ended = program.run_python(script)
    assert ended.out.splitlines()[-1] == "[]"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["ngrams", "--help"], ["--help"], ["--version"]])
def test_help_whose_reader_has_enough_ends_in_silence(arguments, unbuffered):
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [sys.executable, "-m", "beam_dpne", *arguments],
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.parametrize("runner", [(), ("--runner", "FlinkRunner")])
@pytest.mark.parametrize("meant", ["output", "max_length", "epsilon"])
def test_a_misspelt_option_is_named_before_one_that_is_missing(cli, runner, meant):
    """An engine would drop it, so that a run would have another plan."""
    ended = cli("ngrams", "--input", "a.jsonl", f"--{meant}s", "3", *runner)
    assert ended.status == 2
    assert f"there is no option --{meant}s. Did you mean --{meant}?" in ended.err


def test_an_option_of_beam_that_is_nearly_one_of_ours_is_beams(cli):
    """--project is nearly --rejects; it comes with its value."""
    ended = cli("ngrams", "--input", "none.jsonl", "--runner", "FnApiRunner", "--project", "lab")
    assert ended.status == 2
    assert "must be given" in ended.err


@pytest.mark.parametrize(
    ("option", "value", "meant"),
    [
        ("mask", "emails,url", "urls"),
        ("fold", "witdh", "width"),
        ("keep", "hashtag", "hashtags"),
        ("output_format", "json", "jsonl"),
        ("input_format", "parket", "parquet"),
        ("quoting", "backslashes", "backslash"),
        ("delimiter", "semicolons", "semicolon"),
        ("tokenizer", "word", "words"),
        ("encoding", "utf-18", "utf-16"),
        ("strategy", "adaptiv", "adaptive"),
    ],
)
def test_a_wrong_name_of_a_value_is_told_the_one_that_was_meant(cli, option, value, meant):
    ended = cli("ngrams", "--input", "a.jsonl", *BUDGET, "--output", "x", f"--{option}", value)
    assert ended.status == 2
    assert re.search(rf"Did you mean (\S+ or )?{meant}\b", ended.err), ended.err


def test_an_unknown_option_is_refused_with_the_one_that_was_meant(cli):
    ended = cli("ngrams", *RUN, "--max_lenght", 3)
    assert ended.status == 2
    assert "there is no option --max_lenght. Did you mean --max_length?" in ended.err
    for command in (("ngrams", *RUN), ("evaluate", "--input", "a.jsonl")):
        refused = cli(*command, "b.jsonl")
        assert refused.status == 2
        assert "no argument b.jsonl" in refused.err
        assert "quote the glob" in refused.err
        assert ("by --release b.jsonl" in refused.err) == (command[0] == "evaluate")
    assert "no argument b.jsonl" in cli("ngrams", "b.jsonl").err
