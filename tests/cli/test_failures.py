"""Reasons of failures hold no data; `--failure_log` gives the operator what stderr withholds."""

import json
import logging
import os
import pathlib
import stat

import pyarrow as pa
import pytest

from beam_dpne import errors
from beam_dpne.cli.main import outcome
from beam_dpne.documents.tokenizers import resolve_tokenizer, tokenizer_name
from beam_dpne.elements import progress
from beam_dpne.errors import RunError, printable_reason
from beam_dpne.jobs.failures import LOGGERS, failure_log, whole_chain
from beam_dpne.jobs.inputs import with_cause
from beam_dpne.storage import directories

ROOT = pathlib.Path(__file__).parents[2]
CANARY = "zebra4711"
BUDGET = ("--epsilon", 10, "--delta", 1e-4, "--max_length", 1)
SPLITTER = """
def quotes_the_text(texts):
    raise KeyError(f"cannot split {texts[0]}")
"""


def paths_of(program, folder):
    return program.environment(PYTHONPATH=f"{ROOT}{os.pathsep}{folder}")


@pytest.fixture
def fails(cli, tmp_path, monkeypatch):
    """Runs `beam-dpne ngrams` with a tokenizer that quotes the text when it fails."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "quoting_splitter.py").write_text(SPLITTER)
    monkeypatch.syspath_prepend(tmp_path / "in")
    lines = [json.dumps({"user": f"u{place}", "text": f"{CANARY} day"}) for place in range(50)]
    (tmp_path / "in" / "notes.jsonl").write_text("\n".join(lines))
    files = ("--input", tmp_path / "in" / "notes.jsonl", "--output", tmp_path / "out")

    def run(*arguments, tokenizer="quoting_splitter:quotes_the_text"):
        return cli("ngrams", *files, *BUDGET, "--tokenizer", tokenizer, *arguments)

    return run


@pytest.mark.parametrize(
    ("error", "before", "after"),
    [
        (ValueError(CANARY), 2, None),
        (FileNotFoundError(CANARY), 2, None),
        (errors.UsageError(CANARY), 2, 2),
        (errors.ReleaseError(CANARY), 2, 2),
        (RunError(CANARY), 1, 1),
        (pa.ArrowInvalid(CANARY), None, None),
        (type("Other", (errors.InputError,), {})(CANARY), None, None),
        (type("Other", (RunError,), {})(CANARY), None, None),
    ],
)
def test_a_message_is_printed_if_it_cannot_quote_the_data(error, before, after):
    """None stands for a message that is withheld, with status 1; after: once the data are read."""
    for stage, printed in (("", before), ("read", after)):
        progress.reset()
        if stage:
            progress.enter(stage)
        try:
            raise error
        except Exception as caught:
            status, text = outcome(caught)
        assert status == (printed or 1)
        assert (CANARY in text) is (printed is not None)
        assert ("its message is withheld" in text) is (printed is None)
    progress.reset()


@pytest.mark.parametrize("workers", [1, 2])
def test_the_log_has_what_stderr_withholds(fails, tmp_path, workers, capfd):
    log = tmp_path / "failure.log"
    ended = fails("--failure_log", log, "--direct_num_workers", workers, "--runner", "FnApiRunner")
    assert (ended.status, ended.out) == (1, "")
    assert f"The whole failure is in {log}, which is as private as the data." in ended.err
    assert ended.err.splitlines()[-1].startswith("beam-dpne: the run failed: ")
    assert CANARY not in ended.err + "".join(capfd.readouterr())
    text = log.read_text()
    assert f"KeyError: 'cannot split {CANARY} day'" in text
    assert "in quotes_the_text" in text
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert not (tmp_path / "out").exists()


def test_without_a_log_the_line_says_how_to_get_it(fails, tmp_path):
    ended = fails()
    assert ended.status == 1
    assert "Run again with --failure_log FILE" in ended.err
    assert CANARY not in ended.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def test_a_second_failure_is_added_and_a_run_that_ends_well_leaves_the_log_as_it_was(
    fails, tmp_path
):
    log = tmp_path / "failure.log"
    assert fails("--failure_log", log, tokenizer="words").status == 0
    assert not log.exists()
    for number in (1, 2):
        fails("--failure_log", log, "--overwrite")
        assert log.read_text().count("what was raised") == number
    assert fails("--failure_log", log, "--overwrite", tokenizer="words").status == 0
    assert log.read_text().count("what was raised") == 2


def test_the_log_is_refused_where_it_could_be_published(fails, tmp_path):
    assert fails("--quiet", tokenizer="words").status == 0
    for path in (tmp_path / "out" / "f.log", "gs://bucket/f.log", tmp_path / "none" / "f.log"):
        ended = fails("--overwrite", "--failure_log", path)
        assert ended.status == 2
        assert "failure_log must be" in ended.err


def test_a_process_with_a_log_prints_nothing_of_what_is_in_it(program, tmp_path):
    """Beam makes a handler that prints, unless there is one, as there always is in these tests."""
    (tmp_path / "quoting_splitter.py").write_text(SPLITTER)
    (tmp_path / "notes.jsonl").write_text(json.dumps({"user": "u", "text": f"{CANARY} day"}))
    log = tmp_path / "failure.log"
    files = ("--input", tmp_path / "notes.jsonl", "--output", tmp_path / "out")
    splitter = ("--tokenizer", "quoting_splitter:quotes_the_text")
    ended = program.run(
        "ngrams", *files, *BUDGET, *splitter, "--failure_log", log, env=paths_of(program, tmp_path)
    )
    assert ended.status == 1
    assert f"cannot split {CANARY} day" in log.read_text()
    assert CANARY not in ended.out + ended.err


def test_errors_that_libraries_log_are_in_the_file_and_shown_to_nobody(tmp_path, capfd):
    with failure_log(str(tmp_path / "f.log"), None):
        logging.getLogger("some.library").error("quotes %s", CANARY)
    assert CANARY in (tmp_path / "f.log").read_text()
    assert CANARY not in "".join(capfd.readouterr())


UNHANDLED = """
import threading
import warnings
from pyarrow import compute

class Finalized:
    def __init__(self, text):
        self.text = text
    def __del__(self):
        raise KeyError(f"cannot finalize {self.text}")

def cut(texts):
    def quotes_the_text():
        raise KeyError(f"cannot split {texts[0]}")
    thread = threading.Thread(target=quotes_the_text)
    thread.start()
    thread.join()
    Finalized(texts[0])
    warnings.warn(f"cannot like {texts[0]}")
    return compute.utf8_split_whitespace(texts)
"""


def test_errors_that_nobody_can_catch_are_in_the_file_and_not_on_stderr(program, tmp_path):
    """The interpreter would print them by itself, and so it would warnings."""
    (tmp_path / "unhandled.py").write_text(UNHANDLED)
    line = json.dumps({"user": "u", "text": f"{CANARY} day"})
    (tmp_path / "notes.jsonl").write_text(line)
    files = ("--input", tmp_path / "notes.jsonl", "--output", tmp_path / "out")
    log = tmp_path / "f.log"
    given = (*files, *BUDGET, "--tokenizer", "unhandled:cut", "--failure_log", log)
    ended = program.run("ngrams", *given, env=paths_of(program, tmp_path))
    assert ended.status == 0
    assert CANARY not in ended.out + ended.err
    text = log.read_text()
    assert [f"{what} {CANARY}" in text for what in ("cannot split", "cannot finalize")] == [
        True
    ] * 2


def test_a_chain_is_whole_although_it_was_cut():
    try:
        try:
            raise KeyError(CANARY)
        except KeyError:
            raise ValueError("no data") from None
    except ValueError as error:
        text = whole_chain(error)
    assert text.index(CANARY) < text.index("no data")


def test_the_wrapper_of_a_tokenizer_has_its_name():
    wrapped = with_cause("pyarrow.compute:utf8_split_whitespace")
    assert tokenizer_name(wrapped) == "pyarrow.compute:utf8_split_whitespace"
    assert resolve_tokenizer(wrapped)(pa.array(["a b"])).to_pylist() == [["a", "b"]]


def _named(text: str) -> type[Exception]:
    """A class that is named by a text, as a tokenizer may make one."""
    return type(text, (KeyError,), {})


def _of_module(module: object) -> type[Exception]:
    return type(CANARY, (KeyError,), {"__module__": module})


@pytest.mark.parametrize(
    "kind", [_named(CANARY), *map(_of_module, ("builtins", "beam_dpne.errors", None, 7))]
)
def test_a_class_that_is_named_by_a_text_is_not_named(kind):
    error = kind()
    found = [
        outcome(error)[1],
        printable_reason(error),
        errors.kind_of(error),
        directories.reason(error),
    ]
    assert not [text for text in found if CANARY in text]
    assert all("KeyError" in text for text in found)


NAMED = """
import logging

def named_by_the_text(texts):
    logging.getLogger("own_level").setLevel(logging.WARNING)
    for name in ("beam_dpne.plugin", "beam_dpne.storage.directories.x", "own_level", __name__):
        logging.getLogger(name).error("cannot split %s", texts[0])
    raise type(texts[0].as_py(), (KeyError,), {})()
"""


@pytest.mark.parametrize("how", [("--runner", "FnApiRunner"), ("--workers", 1), ("--workers", 2)])
def test_neither_classes_nor_loggers_of_the_operators_module_are_printed(program, tmp_path, how):
    (tmp_path / "beam_dpne_x.py").write_text(NAMED)
    lines = [
        json.dumps({"user": f"u{number}", "text": f"{CANARY}@example.org"}) for number in (1, 2)
    ]
    (tmp_path / "notes.jsonl").write_text("\n".join(lines))
    files = ("--input", tmp_path / "notes.jsonl", "--output", tmp_path / "out")
    given = ("--tokenizer", "beam_dpne_x:named_by_the_text", *how)
    for more in ((), ("--failure_log", tmp_path / "f.log")):
        paths = paths_of(program, tmp_path)
        ended = program.run("ngrams", *files, *BUDGET, *given, *more, env=paths)
        assert (ended.status, "raised KeyError" in ended.err) == (1, True), ended.err
        assert CANARY not in ended.out + ended.err
    assert CANARY in (tmp_path / "f.log").read_text()


def test_a_log_follows_no_link_and_may_be_gone_at_the_end(tmp_path):
    (tmp_path / "target").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(errors.UsageError, match="`failure_log` must be"):
        failure_log(str(tmp_path / "link"), None).__enter__()
    assert (tmp_path / "target").read_text() == "kept"
    with failure_log(str(tmp_path / "f.log"), None):
        (tmp_path / "f.log").unlink()


_TRACE = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    g()\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"{_TRACE}beam_dpne.errors.ReleaseError: no data [while running 'A']\n", "no data"),
        (f"{_TRACE}ValueError: {CANARY}\n", "ValueError; its message is withheld"),
        (f"{_TRACE}others.ReleaseError: {CANARY}\n", "RuntimeError; its message is withheld"),
        (f"beam_dpne.errors.ReleaseError: {CANARY}", "RuntimeError; its message is withheld"),
        (f"{_TRACE}OSError: [Errno 28] {CANARY}\n", "No space left on device."),
    ],
)
def test_of_an_engines_error_nothing_that_may_be_data_is_told(text, told):
    reason = printable_reason(RuntimeError(text))
    assert reason.startswith(told)
    assert CANARY not in reason


def test_what_any_module_of_the_package_logs_is_printed():
    found = set()
    for path in (ROOT / "beam_dpne").rglob("*.py"):
        if "logging.getLogger(__name__)" in path.read_text(encoding="utf-8"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found.add(".".join(parts).removesuffix(".__init__"))
    assert found == set(LOGGERS)
