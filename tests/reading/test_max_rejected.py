"""`--max_rejected`: a run that would lose a large share of its records publishes nothing."""

import gzip
import json
import stat

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dpne import PrivacyPlan, PrivateNgrams
from beam_dpne.cli.failures import printable_reason
from beam_dpne.errors import TooManyRejectedError
from beam_dpne.reading.rejects import (
    Tally,
    add_up,
    describe,
    rejected_of,
    require_few_rejected,
    tally_of,
)
from beam_dpne.reading.transform import ReadDocuments
from beam_dpne.release.publishing import WriteRelease
from beam_dpne.release.reading import read_release

BUDGET = ("--epsilon", 10, "--delta", 1e-4)
LENGTHS = ("--max_length", 2, "--max_contributions", 5)
CANARY = "zebra4711"
COMMANDS = {
    "ngrams": (*BUDGET, *LENGTHS),
    "set-union": BUDGET,
    "bayesian": (*BUDGET, "--length", 1),
}


def good(count):
    return [json.dumps({"user": f"u{place}", "text": "good morning"}) for place in range(count)]


def write(path, lines):
    path.write_text("\n".join(lines) + "\n")
    return path


def options_of(command, folder):
    if command != "bayesian":
        return COMMANDS[command]
    public = write(folder / "public.txt", ["good morning"] * 3)
    return (*COMMANDS[command], "--public", public)


def left(folder):
    """What a run has left in a folder, besides its inputs."""
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("command", "quiet"),
    [*((command, ()) for command in COMMANDS), ("ngrams", ("--quiet",))],
)
def test_a_run_that_rejects_every_record_fails_and_publishes_nothing(
    cli, tmp_path, monkeypatch, command, quiet
):
    temporary, work = tmp_path / "temporary", tmp_path / "work"
    temporary.mkdir()
    work.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    latin = f"user,text\n{CANARY},caf\u00e9\n".encode("latin-1") + "bob,caf\u00e9\n".encode(
        "latin-1"
    )
    (tmp_path / "notes.csv").write_bytes(latin)
    files = ("--input", tmp_path / "notes.csv", "--output", work / "out")
    ended = cli(command, *files, *options_of(command, tmp_path), *quiet)
    assert (ended.status, ended.out) == (1, "")
    assert "2 rejected of 2 records: 2 not valid UTF-8" in ended.err
    assert "got max_rejected=0.05" in ended.err
    assert "as secret as the data" in ended.err
    assert CANARY not in ended.err
    assert left(work) == []
    assert left(temporary) == []


def test_the_reasons_are_counted_over_all_files(cli, tmp_path):
    lines = [*good(7), "{", '{"user":null,"text":"a"}', '{"text":"a"}']
    write(tmp_path / "a.jsonl", lines)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b"{\n[]\n"))
    files = ("--input", tmp_path / "?.jsonl*", "--output", tmp_path / "out")
    ended = cli("ngrams", *files, *BUDGET, *LENGTHS, "--max_rejected", 0.4)
    assert ended.status == 1
    counts = "2 malformed JSON, 2 user is null or missing, 1 not a JSON object"
    assert f"5 rejected of 12 records: {counts}." in ended.err
    below = cli("ngrams", *files, *BUDGET, *LENGTHS, "--max_rejected", 0.42)
    assert below.status == 0, below.err
    assert f"5 records were rejected (--rejects DIR lists them): {counts}." in below.err


@pytest.mark.parametrize(("given", "status"), [((), 0), (("--max_rejected", 0.04), 1)])
def test_exactly_the_allowed_share_is_allowed(cli, tmp_path, given, status):
    files = ("--input", write(tmp_path / "a.jsonl", [*good(19), "{"]), "--output", tmp_path / "out")
    ended = cli("ngrams", *files, *BUDGET, *LENGTHS, *given)
    assert ended.status == status, ended.err
    assert "1 malformed JSON" in ended.err
    assert (tmp_path / "out").exists() == (status == 0)


def test_1_publishes_whatever_is_left(cli, tmp_path):
    files = ("--input", write(tmp_path / "a.jsonl", ["{", "[]"]), "--output", tmp_path / "out")
    ended = cli("ngrams", *files, *BUDGET, *LENGTHS, "--max_rejected", 1)
    assert ended.status == 0, ended.err
    assert len(read_release(str(tmp_path / "out")).table()) == 0


@pytest.mark.parametrize("quiet", [(), ("--quiet",)])
def test_an_input_without_records_is_reported_to_the_operator_only(cli, tmp_path, quiet):
    files = ("--input", write(tmp_path / "a.csv", ["user,text"]), "--output", tmp_path / "out")
    ended = cli("ngrams", *files, *BUDGET, *LENGTHS, *quiet)
    assert ended.status == 0, ended.err
    assert ("the input has no records" in ended.err) == (not quiet)
    assert len(read_release(str(tmp_path / "out")).table()) == 0


def test_a_run_that_fails_has_listed_the_rejects(cli, tmp_path):
    """Else the operator would have to run again to see where they are."""
    files = ("--input", write(tmp_path / "a.jsonl", [*good(3), "{"]), "--output", tmp_path / "out")
    ended = cli("ngrams", *files, *BUDGET, *LENGTHS, "--rejects", tmp_path / "rejects")
    assert ended.status == 1
    (listed,) = (tmp_path / "rejects").iterdir()
    assert json.loads(listed.read_text())["reason"] == "malformed JSON"
    assert stat.S_IMODE(listed.stat().st_mode) == 0o600
    assert not (tmp_path / "out").exists()


def test_a_release_that_is_there_stays_whole(cli, tmp_path):
    out = tmp_path / "out"
    write(tmp_path / "a.jsonl", good(100))
    options = ("--input", tmp_path / "a.jsonl", "--output", out, *BUDGET, *LENGTHS, "--overwrite")
    assert cli("ngrams", *options).status == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    write(tmp_path / "a.jsonl", ["{"] * 100)
    assert cli("ngrams", *options).status == 1
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.parametrize("wrong", ["-0.1", "1.1", "nan"])
def test_what_is_no_share_is_refused(cli, tmp_path, wrong):
    files = ("--input", write(tmp_path / "a.jsonl", good(3)), "--output", tmp_path / "out")
    ended = cli("ngrams", *files, *BUDGET, f"--max_rejected={wrong}")
    assert (ended.status, ended.out) == (2, "")
    assert (
        f"max_rejected must be a share of the records in [0, 1], got max_rejected={float(wrong)}"
        in (ended.err)
    )


# In pipelines of one's own


@pytest.mark.parametrize("max_rejected", [0.25, 0.24])
def test_a_pipeline_of_ones_own_can_ask_for_it(tmp_path, max_rejected):
    path = write(tmp_path / "a.jsonl", [*good(75), *["{"] * 25])
    plan = PrivacyPlan(epsilon=10, delta=1e-4, max_length=2, max_contributions=2)
    raised = None
    try:
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            # Small pieces of work, so that there are many tallies.
            read = pipeline | ReadDocuments(inputs=[str(path)], split_bytes=256, block_bytes=64)
            _ = (
                read.documents
                | PrivateNgrams(plan=plan)
                | WriteRelease(
                    output=str(tmp_path / "out"),
                    output_format="jsonl",
                    tally=read.tally,
                    max_rejected=max_rejected,
                )
            )
    except Exception as error:
        raised = printable_reason(error)
    assert (tmp_path / "out").exists() == (max_rejected == 0.25)
    if max_rejected == 0.25:
        assert raised is None
    else:
        assert raised is not None
        assert "25 rejected of 100 records: 25 malformed JSON." in raised


def test_the_field_of_the_library_is_checked_when_the_pipeline_is_built():
    with pytest.raises(ValueError, match=r"max_rejected must be a share .* got max_rejected=2"):
        WriteRelease(output="out", max_rejected=2)


# Arithmetic


@pytest.mark.parametrize(
    ("records", "rejected", "max_rejected", "fails"),
    [
        (0, 0, 0.0, False),
        (100, 0, 0.0, False),
        (100, 1, 0.0, True),
        (100, 29, 0.29, False),  # 0.29 * 100 is below 29.
        (100, 7, 0.07, False),
        (100, 30, 0.29, True),
        (10, 10, 0.999, True),
        (10, 10, 1, False),
        (20_000, 20_000, 0.05, True),
    ],
)
def test_the_share_is_compared_exactly(records, rejected, max_rejected, fails):
    tally = tally_of(records - rejected, {"malformed JSON": rejected} if rejected else {})
    assert tally.records == records
    if fails:
        with pytest.raises(TooManyRejectedError, match=f"{rejected:,} rejected of {records:,}"):
            require_few_rejected(tally, max_rejected)
    else:
        require_few_rejected(tally, max_rejected)


def test_no_tallies_add_up_to_nothing():
    assert add_up([]) == Tally(0, {})


def test_counters_hold_the_reasons_as_they_are():
    rejected = {"not valid UTF-8": 3, "longer than max_record_bytes": 1}
    counters = {f"rejected_records.{key.replace(' ', '.')}": n for key, n in rejected.items()}
    assert rejected_of({**counters, "rejected_records": 4, "other": 1}) == rejected
    assert describe(rejected) == "3 not valid UTF-8, 1 longer than max_record_bytes"


def test_a_record_of_several_texts_counts_once(cli, tmp_path):
    """8 of 108 records are 7.4 %, but 8 of 308 texts and records would be 2.6 %."""
    texts = {"subject": "good morning", "body": "good night", "answer": "good day"}
    rows = [json.dumps({"user": f"u{place}", **texts}) for place in range(100)]
    write(tmp_path / "mails.jsonl", [*rows, *["not JSON"] * 8])
    files = ("--input", tmp_path / "mails.jsonl", "--output", tmp_path / "out")
    fields = [part for name in texts for part in ("--text_field", name)]
    ended = cli("ngrams", *files, *fields, *COMMANDS["ngrams"])
    assert ended.status == 1
    assert "8 rejected of 108 records" in ended.err
