"""A run reports its inputs and its output as lineage by the operator's names, and no other file."""

import json
import logging
import os

import apache_beam as beam
import pytest
from apache_beam.metrics.metric import Lineage
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dpne import PrivacyPlan, PrivateNgrams, RunKeyFile, SetStore, WriteRelease
from beam_dpne.cli import runners
from beam_dpne.reading.rejects import WriteRejects
from beam_dpne.reading.transform import ReadDocuments
from beam_dpne.storage.lineage import report_sink

PLAN = PrivacyPlan(epsilon=10, delta=1e-4, max_length=2, strategy="one_round")
USERS = 300


def lineage_of(result):
    """The names of sources and of sinks that a finished run has reported."""
    metrics = result.metrics()
    return [Lineage.query(metrics, label) for label in (Lineage.SOURCE, Lineage.SINK)]


def local(*paths):
    return {f"filesystem:localhost.{path}" for path in paths}


@pytest.fixture
def corpus(tmp_path):
    """A folder with one file for each of a few users and one with the others, and a run key."""
    folder = tmp_path / "notes"
    folder.mkdir()
    texts = [json.dumps({"user": f"u{n}", "text": "Good morning"}) for n in range(USERS)]
    (folder / "all.jsonl").write_text("\n".join([*texts, "no record"]))
    for user in ("ann", "bob"):
        record = json.dumps({"user": user, "text": "Good night"})
        (folder / f"{user}.jsonl").write_text(record)
    (tmp_path / "run.key").write_text("5eed" * 16)
    return tmp_path


def run_of(corpus, inputs):
    """Runs a pipeline with a key in a file and sets in temporary storage; returns its result."""
    pipeline = beam.Pipeline(runner=FnApiRunner())
    read = pipeline | ReadDocuments(inputs=inputs)
    ngrams = PrivateNgrams(
        plan=PLAN,
        run_key=RunKeyFile.checked(str(corpus / "run.key")),
        described=read.described,
        store=SetStore(folder=str(corpus / "temporary"), limit=1),
    )
    _ = read.rejects | WriteRejects(path=str(corpus / "rejects"))
    _ = read.documents | ngrams | WriteRelease(output=str(corpus / "release"), rows_per_part=1)
    result = pipeline.run()
    result.wait_until_finish()
    assert os.listdir(corpus / "temporary"), "sets were kept in temporary storage"
    assert len(os.listdir(corpus / "release")) > 2, "there are several parts"
    return result


@pytest.mark.parametrize("named", ["notes/*.jsonl", "notes"])
def test_a_run_reports_its_input_and_outputs_and_nothing_else(corpus, named):
    sources, sinks = lineage_of(run_of(corpus, [str(corpus / named)]))
    assert sources == local(corpus / named), "no name of a file that was found"
    rejects = corpus / "rejects" / "rejects-00000-of-00001.jsonl"
    assert sinks == local(corpus / "release", rejects)


def test_relative_names_are_reported_as_absolute_ones(corpus, monkeypatch):
    monkeypatch.chdir(corpus)
    sources, _ = lineage_of(run_of(corpus, ["notes/all.jsonl", "notes/ann.jsonl"]))
    assert sources == local(corpus / "notes/all.jsonl", corpus / "notes/ann.jsonl")


def test_a_program_reports_the_words_of_the_operator(cli, corpus, monkeypatch):
    """The launcher finds the files, and the job names them by the patterns on the command line."""
    results, run_pipeline = [], runners.run_pipeline

    def kept(*arguments):
        results.append(run_pipeline(*arguments))
        return results[-1]

    monkeypatch.setattr(runners, "run_pipeline", kept)
    monkeypatch.chdir(corpus)
    key = ["--run_key_file", "run.key", "--side_input_limit", 1, "--rejects", "rejects"]
    where = ["--input", "notes", "--output", "release", *key]
    ended = cli("ngrams", "--epsilon", 10, "--delta", 1e-4, "--max_length", 2, *where)
    assert ended.status == 0, ended.err
    sources, sinks = lineage_of(results[0])
    assert sources == local(corpus / "notes")
    rejects = corpus / "rejects" / "rejects-00000-of-00001.jsonl"
    assert sinks == local(corpus / "release", rejects)


def test_lineage_that_cannot_be_reported_is_logged_and_fails_nothing(caplog):
    with caplog.at_level(logging.WARNING):
        report_sink("nowhere://bucket/release")
    said = "The lineage of nowhere://bucket/release could not be reported: ValueError."
    assert said in caplog.text
