"""Reasons of failures hold no data; `--failure_log` gives the operator what stderr withholds."""

import ast
import importlib
import json
import logging
import os
import pathlib
import pkgutil
import signal
import stat
import threading
import time
import traceback
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

import beam_dpne
from beam_dpne import errors
from beam_dpne.cli.failures import ErrorRecords, printable_reason, whole_chain, with_cause
from beam_dpne.cli.main import _outcome
from beam_dpne.documents.tokenizers import resolve_tokenizer, tokenize, tokenizer_name
from beam_dpne.elements import progress
from beam_dpne.engines.flink import failures_at_flink
from beam_dpne.errors import BeamDpneError, RunError, TokenizerError, may_be_printed

CANARY = "zebra4711"
BUDGET = ("--epsilon", 10, "--delta", 1e-4)
LENGTHS = ("--max_length", 1, "--max_contributions", 5)
SPLITTER = """
import time
import pyarrow.compute as pc

def quotes_the_text(texts):
    raise KeyError(f"cannot split {texts[0]}")

def splits(texts):
    return pc.split_pattern(texts, ' ')

def takes_long(texts):
    time.sleep(60)
"""
HINT = "Run again with --failure_log FILE"


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The options of an input and an output."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "quoting_splitter.py").write_text(SPLITTER)
    monkeypatch.syspath_prepend(tmp_path / "in")
    lines = [json.dumps({"user": f"u{place}", "text": f"{CANARY} day"}) for place in range(50)]
    (tmp_path / "in" / "notes.jsonl").write_text("\n".join(lines))
    return ("--input", tmp_path / "in" / "notes.jsonl", "--output", tmp_path / "out")


@pytest.fixture
def fails(cli, files):
    """Runs `beam-dpne ngrams` with a tokenizer that quotes the text when it fails."""

    def run(*arguments):
        own = ("--tokenizer", "quoting_splitter:quotes_the_text")
        return cli("ngrams", *files, *BUDGET, *LENGTHS, *own, *arguments)

    return run


def mode_of(path):
    return stat.S_IMODE(os.stat(path).st_mode)


# A failure


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
            status, text = _outcome(caught)
        assert status == (printed or 1)
        assert (CANARY in text) is (printed is not None)
        assert ("its message is withheld" in text) is (printed is None)
    progress.reset()


@pytest.mark.parametrize("workers", [1, 2])
def test_the_log_has_what_stderr_withholds(fails, tmp_path, workers, capfd):
    log = tmp_path / "failure.log"
    ended = fails("--failure_log", log, "--direct_num_workers", workers)
    assert (ended.status, ended.out) == (1, "")
    assert "raised KeyError (its message is left out" in ended.err
    assert f"The whole failure is in {log}, which is as private as the data." in ended.err
    assert ended.err.splitlines()[-1].startswith("beam-dpne: the run failed: ")
    assert CANARY not in ended.err + "".join(capfd.readouterr())
    text = log.read_text()
    assert f"KeyError: 'cannot split {CANARY} day'" in text
    assert "in quotes_the_text" in text
    assert "quoting_splitter.py" in text
    assert "in run_pipeline" in text
    assert mode_of(log) == 0o600
    assert not (tmp_path / "out").exists()


def test_without_a_log_the_line_says_how_to_get_it(fails, tmp_path):
    ended = fails()
    assert ended.status == 1
    assert HINT in ended.err
    assert CANARY not in ended.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def test_a_message_that_is_told_whole_needs_no_hint(cli, files):
    (notes,) = (path for path in files if str(path).endswith("notes.jsonl"))
    notes.write_text("{\n")
    ended = cli("ngrams", *files, *BUDGET, *LENGTHS)
    assert ended.status == 1
    assert "max_rejected" in ended.err
    assert HINT not in ended.err


def test_a_second_failure_is_added_to_the_first_and_both_outlive_a_run_that_ends_well(
    fails, cli, files, tmp_path
):
    log = tmp_path / "failure.log"
    assert fails("--failure_log", log).status == 1
    first = log.read_text()
    assert fails("--failure_log", log).status == 1
    both = log.read_text()
    assert both.startswith(first)
    assert both.count("beam-dpne failure log:") == 2
    assert cli("ngrams", *files, *BUDGET, *LENGTHS, "--failure_log", log).status == 0
    assert log.read_text() == both


def test_the_log_may_be_beside_the_rejects(fails, tmp_path):
    (tmp_path / "rejects").mkdir()
    given = ("--rejects", tmp_path / "rejects", "--failure_log", tmp_path / "rejects" / "a.log")
    assert fails(*given).status == 1
    assert CANARY in (tmp_path / "rejects" / "a.log").read_text()


def test_evaluate_has_it_too(cli, files, tmp_path):
    own = ("--tokenizer", "quoting_splitter:splits")
    assert cli("ngrams", *files, *BUDGET, *LENGTHS, *own).status == 0
    own = ("--tokenizer", "quoting_splitter:quotes_the_text")
    judged = ("evaluate", "--input", files[1], "--release", tmp_path / "out", *own)
    without = cli(*judged)
    log = tmp_path / "failure.log"
    ended = cli(*judged, "--failure_log", log)
    assert without.status == ended.status != 0
    assert HINT in without.err
    assert f"The whole failure is in {log}" in ended.err
    assert CANARY not in without.err + ended.err
    assert f"KeyError: 'cannot split {CANARY} day'" in log.read_text()
    assert cli(*judged[:-2], "--failure_log", tmp_path / "none.log").status == 0
    assert not (tmp_path / "none.log").exists()


# No failure


def test_a_run_that_ends_well_leaves_no_log_and_the_same_release(cli, files, tmp_path):
    """The name of a tokenizer is in the ledger, and the run key is bound to it."""
    (tmp_path / "key").write_text("5a" * 32)
    log = tmp_path / "failure.log"
    tokenizer = ("--tokenizer", "quoting_splitter:splits")
    key = ("--run_key_file", tmp_path / "key", "--overwrite")
    found = []
    for more in ((), ("--failure_log", log)):
        assert cli("ngrams", *files, *BUDGET, *LENGTHS, *tokenizer, *key, *more).status == 0
        found.append({path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()})
    assert found[0] == found[1]
    assert CANARY.encode() in b"".join(found[0].values())
    assert not log.exists()


def test_a_usage_error_leaves_no_log(fails, tmp_path):
    ended = fails("--failure_log", tmp_path / "failure.log", "--partitions", 0)
    assert ended.status == 2
    assert not (tmp_path / "failure.log").exists()


def test_an_interrupted_run_leaves_no_log(program, files, tmp_path):
    environment = dict(program.environment())
    environment["PYTHONPATH"] += os.pathsep + str(tmp_path / "in")
    log = tmp_path / "failure.log"
    given = ("--tokenizer", "quoting_splitter:takes_long", "--failure_log", log)
    with program.start("ngrams", *files, *BUDGET, *LENGTHS, *given, env=environment) as process:
        while not process.stderr.readline().strip().endswith("tokenizing"):
            assert process.poll() is None
        assert mode_of(log) == 0o600
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert not log.exists()


# Where it must not be


def refused(ended, log):
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.count("\n") == 1
    assert "failure_log must be" in ended.err
    assert str(log) in ended.err


def test_the_log_is_refused_inside_the_release(fails, tmp_path):
    for log in (tmp_path / "out" / "a.log", tmp_path / "in" / ".." / "out" / "a.log"):
        refused(fails("--failure_log", log), log)
    assert not (tmp_path / "out").exists()


def test_the_log_is_refused_inside_any_release(fails, tmp_path):
    (tmp_path / "other" / "below").mkdir(parents=True)
    (tmp_path / "other" / "ledger.json").write_text("{}")
    for log in (tmp_path / "other" / "a.log", tmp_path / "other" / "below" / "a.log"):
        refused(fails("--failure_log", log), log)
        assert not log.exists()
    (tmp_path / "link").symlink_to(tmp_path / "other")
    refused(fails("--failure_log", tmp_path / "link" / "a.log"), tmp_path / "link" / "a.log")


def test_a_link_is_never_followed(fails, tmp_path):
    for target in (tmp_path / "target", tmp_path / "missing"):
        (tmp_path / "target").write_text("")
        os.chmod(tmp_path / "target", 0o600)
        log = tmp_path / f"to-{target.name}"
        log.symlink_to(target)
        refused(fails("--failure_log", log), log)
    assert (tmp_path / "target").read_text() == ""
    assert not (tmp_path / "missing").exists()


def test_a_file_that_others_may_open_is_refused_and_stays(fails, tmp_path):
    log = tmp_path / "failure.log"
    assert fails("--failure_log", log).status == 1
    before = log.read_bytes()
    for mode in (0o644, 0o640, 0o602):
        os.chmod(log, mode)
        refused(fails("--failure_log", log), log)
        assert (mode_of(log), log.read_bytes()) == (mode, before)


def test_another_file_is_refused_and_stays(fails, tmp_path):
    key = tmp_path / "run.key"
    key.write_text("5a" * 32)
    os.chmod(key, 0o600)
    refused(fails("--failure_log", key), key)
    assert key.read_text() == "5a" * 32


def test_what_is_no_file_is_refused(fails, tmp_path):
    os.mkfifo(tmp_path / "pipe", 0o600)
    for log in (tmp_path, tmp_path / "pipe", tmp_path / "missing" / "a.log"):
        refused(fails("--failure_log", log), log)
    assert fails("--failure_log", "").status == 2


def test_a_bucket_needs_a_word_of_the_operator(fails):
    ended = fails("--failure_log", "gs://bucket/private/failure.log")
    refused(ended, "gs://bucket/private/failure.log")
    assert "--failure_log_remote" in ended.err


# What is gathered


def test_a_chain_is_whole_although_it_was_cut():
    try:
        try:
            raise KeyError("first")
        except KeyError:
            raise ValueError("second") from None
    except ValueError as error:
        text = whole_chain(error)
    assert text.index("KeyError: 'first'") < text.index("ValueError: second")
    assert "test_failures.py" in text


def test_errors_that_libraries_log_are_caught_and_shown_to_nobody(capfd):
    """As in a program, whose root logger is silent."""
    root, shown, seen = logging.getLogger(), logging.StreamHandler(), ErrorRecords()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = [shown]
    root.setLevel(logging.CRITICAL + 1)
    ours = logging.getLogger("beam_dpne.of_this_test")
    ours.setLevel(logging.WARNING)
    try:
        with seen.caught():
            logging.getLogger("apache_beam.somewhere").error("worker said %s", CANARY)
            logging.getLogger("apache_beam.somewhere").warning("no error")
            logging.log(logging.ERROR, "of the root")
            ours.warning("told as before")
        assert (root.handlers, root.level) == ([shown], logging.CRITICAL + 1)
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    assert f"worker said {CANARY}" in seen.text()
    assert "of the root" in seen.text()
    assert "no error" not in seen.text()
    assert capfd.readouterr().err == "told as before\n"


def test_of_very_many_errors_the_latest_are_kept():
    seen = ErrorRecords()
    for place in range(20):
        seen.add(f"{place} " + "x" * 2**20)
    assert len(seen.text()) < 9 * 2**20
    assert "\n19 x" in seen.text()
    assert seen.text().startswith("(13 earlier records are left out.)")


class _Flink(BaseHTTPRequestHandler):
    """Answers as Flink's REST interface does, of two jobs of one name."""

    ANSWERS: ClassVar[dict[str, Any]] = {
        "/jobs/overview": {
            "jobs": [
                {"jid": "old", "name": "titles", "state": "FAILED", "start-time": 1},
                {"jid": "new", "name": "titles", "state": "FAILED", "start-time": 2},
                {"jid": "other", "name": "others", "state": "FAILED", "start-time": 3},
            ]
        },
        "/jobs/new/exceptions": {
            "exceptionHistory": {
                "entries": [{"taskName": "Read", "stacktrace": f"java.lang.X: {CANARY}"}]
            }
        },
    }

    def do_GET(self):
        body = json.dumps(self.ANSWERS[self.path]).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Nothing."""


class _Result:
    _job_id = "titles_1f0b"


def test_flink_is_asked_why_the_job_failed():
    with HTTPServer(("localhost", 0), _Flink) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = PipelineOptions(["--flink_master", f"localhost:{server.server_port}"])
        assert failures_at_flink(_Result(), options) == f"Read:\njava.lang.X: {CANARY}"
        assert failures_at_flink(None, options) == ""
        server.shutdown()
    assert failures_at_flink(_Result(), PipelineOptions([])) == ""
    assert RunError("a").details is None


def test_the_wrapper_has_the_tokenizers_name(files):
    assert tokenizer_name(with_cause("quoting_splitter:splits")) == "quoting_splitter:splits"
    assert with_cause("item") == "item"


def test_a_workers_traceback_holds_the_cause_only_if_the_operator_wants_a_log(files):
    """Engines report a worker's traceback as text, so the cause must be in the text."""
    named = "quoting_splitter:quotes_the_text"
    for tokenizer, holds in ((with_cause(named), True), (resolve_tokenizer(named), False)):
        with pytest.raises(TokenizerError) as raised:
            tokenize(tokenizer, pa.array([CANARY]))
        text = "".join(traceback.format_exception(raised.value))
        assert (CANARY in text) is holds
        assert CANARY not in str(raised.value)


FLINK_SAYS = """Pipeline BeamApp_1 failed in state FAILED: java.lang.RuntimeException: Error received \
from SDK harness for instruction 7: Traceback (most recent call last):
  File "sdk_worker.py", line 300, in _execute
    raise ValueError("private words")
ValueError: private words

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "publishing.py", line 12, in _replace
beam_dpne.errors.ReleaseError: out is a release already. [while running 'Publish/Publish']

\tat java.base/java.lang.Thread.run(Thread.java:840)"""


def test_of_an_engines_error_our_own_words_are_told():
    assert printable_reason(RuntimeError(FLINK_SAYS)) == "out is a release already."


@pytest.mark.parametrize(
    "raised",
    [
        "beam_dpne_acme.tokenizers.BadText: cannot split 'patient John Smith'",
        "acme.Error: hello\nbeam_dpne.ledger.ReleaseError: patient John Smith",
        "ValueError: a\nMrSmithIsPositiveError",
        "ValueError: a\n[Errno 123456789] Smith",
        "ValueError: [Errno 4111] Smith",
        "OSError: [Errno 4111111111111111] Smith",
        "Smith: John",
        "SmithError",
    ],
)
def test_of_an_engines_error_nothing_that_may_be_data_is_told(raised):
    line = (
        "beam_dpne.errors.ReleaseError: out is a release already. [while running 'Publish/Publish']"
    )
    text = printable_reason(RuntimeError(FLINK_SAYS.replace(line, raised)))
    assert "Smith" not in text
    assert "4111" not in text
    assert "withheld" in text


def test_known_errors_of_the_system_are_told_in_its_words():
    line = (
        "beam_dpne.errors.ReleaseError: out is a release already. [while running 'Publish/Publish']"
    )
    full = FLINK_SAYS.replace(line, "OSError: [Errno 28] No space left on device: '/smith'")
    assert printable_reason(RuntimeError(full)) == "No space left on device."


OF_AIRFLOW = {f"beam_dpne.airflow.{name}" for name in ("dataflow", "operators", "release")}


def test_modules_that_need_airflow_define_no_errors():
    for name in OF_AIRFLOW:
        path = pathlib.Path(beam_dpne.__path__[0], *name.split(".")[1:]).with_suffix(".py")
        classes = [
            node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)
        ]
        bases = {ast.unparse(base) for kind in classes for base in kind.bases}
        assert not {base for base in bases if base.endswith(("Error", "Exception"))}


def test_all_our_errors_and_only_ours_are_told():
    kinds = set()
    for module in pkgutil.walk_packages(beam_dpne.__path__, "beam_dpne."):
        if module.name == "beam_dpne.storage.gcs" or module.name in OF_AIRFLOW:  # Of an extra.
            continue
        found = vars(importlib.import_module(module.name)).values()
        kinds |= {k for k in found if isinstance(k, type) and issubclass(k, Exception)}
    kinds = {kind for kind in kinds if kind.__module__.startswith("beam_dpne.")}
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in kinds}
    # The reader catches this error and reports it by its own phrases.
    caught = {
        "beam_dpne.reading.records.BrokenText",
    }
    printed = {f"{kind.__module__}.{kind.__qualname__}" for kind in kinds - {BeamDpneError}}
    assert len(printed - caught) == len(BeamDpneError.__subclasses__())
    assert {name for name in names if may_be_printed(name)} == names - caught
    assert all(issubclass(k, BeamDpneError) for k in kinds if k.__module__ == errors.__name__)


def test_messages_of_subclasses_that_others_write_are_withheld():
    class Theirs(errors.ReleaseError):
        pass

    assert "withheld" in printable_reason(Theirs("Smith"))
    assert not may_be_printed("beam_dpne.errors.Callable")
    assert not may_be_printed("beam_dpne.errors.may_be_printed")
