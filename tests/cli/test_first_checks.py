"""An error of a parameter is told before Apache Beam is loaded, which takes seconds."""

import subprocess
import sys

import pytest

from beam_dpne.cli.runners import beam_options
from beam_dpne.cli.running import check_arguments

RUN = """
import sys
from beam_dpne.cli.main import main
status = main(sys.argv[1:])
print(status, *(name for name in ("apache_beam", "scipy", "pyarrow") if name in sys.modules))
"""

PATHS = ("--input", "texts.jsonl", "--output", "release")


def run(*arguments: str) -> tuple[str, str]:
    """Returns the status with the modules that were loaded, and the error."""
    command = [sys.executable, "-c", RUN, *arguments]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    return ended.stdout.strip(), ended.stderr


@pytest.mark.parametrize("program", ["ngrams", "set-union", "bayesian", "plan"])
@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (["--epsilon", "-1", "--delta", "1e-7"], "epsilon must be a finite number > 0"),
        (["--epsilon", "1", "--delta", "2"], "delta must be in (0, 1)"),
        (["--epsilon", "1"], "delta must be given"),
    ],
)
def test_a_wrong_budget_needs_neither_beam_nor_scipy(program, budget, said):
    loaded, error = run(program, *budget)
    assert loaded == "2"
    assert error.startswith(f"beam-dpne: error: {said}")


@pytest.mark.parametrize(
    ("program", "option", "said"),
    [
        ("ngrams", ["--max_length", "0"], "max_length must be"),
        ("set-union", ["--max_contributions", "0"], "max_contributions must be"),
        ("bayesian", ["--max_count", "0"], "max_count must be"),
        ("plan", ["--count_share", "2"], "count_share must be"),
    ],
)
def test_a_wrong_parameter_of_the_plan_needs_neither_beam_nor_scipy(program, option, said):
    loaded, error = run(program, "--epsilon", "1", "--delta", "1e-7", *option)
    assert loaded == "2"
    assert error.startswith(f"beam-dpne: error: {said}")


@pytest.mark.parametrize(
    ("program", "option", "said"),
    [
        ("ngrams", ["--vocabulary_policy", "public"], "vocabulary must name a file"),
        ("ngrams", ["--output", "release"], "input must be given"),
        ("set-union", ["--input", "texts.jsonl"], "output must be given"),
        ("ngrams", [*PATHS, "--workers", "-1"], "workers must be at least 0"),
        ("set-union", [*PATHS, "--workers", "257"], "workers must be at most 256"),
        ("set-union", [*PATHS, "--partitions", "0"], "partitions must be at least 1"),
        ("ngrams", [*PATHS, "--side_input_limit", "0"], "side_input_limit must be at least 1"),
        ("bayesian", [*PATHS, "--harness_timeout", "-1"], "harness_timeout must be at least 0"),
    ],
)
def test_another_wrong_parameter_does_not_need_beam(program, option, said):
    loaded, error = run(program, "--epsilon", "1", "--delta", "1e-7", *option)
    assert loaded == "2 scipy"
    assert error.startswith(f"beam-dpne: error: {said}")


@pytest.mark.parametrize("program", ["ngrams", "set-union", "bayesian"])
@pytest.mark.parametrize(
    ("tokenizer", "said"),
    [
        ("wrods", "tokenizer must be one of words, whitespace, tokens, item, unicode_words or"),
        ("tokenizers_of_nobody:split", "tokenizer must name a function that can be imported"),
        ("string:digits", "tokenizer must name a function, got tokenizer='string:digits'"),
    ],
)
def test_an_unknown_tokenizer_does_not_need_beam(program, tokenizer, said):
    budget = ("--epsilon", "1", "--delta", "1e-7")
    loaded, error = run(program, *budget, *PATHS, "--tokenizer", tokenizer)
    assert loaded == "2 scipy pyarrow"
    assert error.startswith(f"beam-dpne: error: {said}")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ngrams", "--strategy", "fast"), "argument --strategy: invalid choice: 'fast'"),
        (("set-union", "--policy", "fast"), "argument --policy: invalid choice: 'fast'"),
        (
            ("ngrams", *PATHS, "--policy", "mad"),
            "there is no option --policy here; it is of another",
        ),
        (("set-union", *PATHS, "--max_length=3"), "there is no option --max_length here; it is of"),
        (
            ("bayesian", *PATHS, "--job_name", "a", "--rounds", "2"),
            "there is no option --rounds here",
        ),
        (
            ("ngrams", "a.csv", "--output", "b"),
            "there is no argument 'a.csv'; name input files with",
        ),
        (("plan", "--runner", "x"), "beam-dpne plan has no option --runner."),
        (
            ("evaluate", "--runner=x"),
            "beam-dpne evaluate has no option --runner; it runs in memory",
        ),
        (("account", "--runner", "x"), "beam-dpne account has no option --runner."),
        (("export", "r", "--runner", "x"), "beam-dpne export has no option --runner."),
        (("report", "r", "more"), "beam-dpne report has no option more, and takes one RELEASE."),
        (("audit", "gaussian", "-x"), "beam-dpne audit has no option -x, and takes one MECHANISM."),
    ],
)
def test_an_option_that_is_certainly_unknown_needs_neither_beam_nor_scipy(arguments, said):
    loaded, error = run(*arguments)
    assert loaded == "2"
    assert error.startswith(f"beam-dpne: error: {said}")


def test_no_option_of_beam_is_refused_as_one_of_another_program():
    beams = beam_options([]).pipeline_options.get_all_options()
    check_arguments([f"--{name}" for name in beams])
    assert "job_name" in beams
