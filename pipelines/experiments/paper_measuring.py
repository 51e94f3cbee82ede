"""Measuring one run: its released n-grams, the number of real ones among them, and its time."""

import json
import os
import pathlib
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from beam_dpne.cli.runners import CachedOptions, EmbeddedRunner
from beam_dpne.elements import progress
from beam_dpne.evaluation.coverage import Coverage, evaluate, released_codes
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams.decoding import DecodeGrams, LengthReport, ListReport
from beam_dpne.ngrams.transform import PrivateNgrams
from beam_dpne.set_union import transform
from beam_dpne.set_union.threshold import release_items
from pipelines.experiments import union_policies
from pipelines.experiments.baselines import dpsu_all, dpsu_even, dpsu_single
from pipelines.experiments.corpora import Corpora
from pipelines.experiments.runs import BaselineRun, NgramRun, Run, UnionRun
from pipelines.experiments.saved_corpora import documents_of, load_corpus
from pipelines.experiments.union_policies import UnionParameters

# Those of DPNE's Figure 4 and DPSU's Table 2, and some for context.
K_ANONYMITY = (1, 2, 5, 10, 15, 18, 20, 25, 50, 100)
_BASELINES = {"DPSU-all": dpsu_all, "DPSU-even": dpsu_even, "DPSU-single": dpsu_single}
_TOKENS = "tokens"


def measure(run: Run, corpora: Corpora, run_key: RunKey) -> dict[str, Any]:
    """Makes a run and returns its measurements, as JSON types; they are as secret as the data.

    Args:
      run: The run.
      corpora: The data, among them those of the run.
      run_key: The run key for which the run's number stands.

    Returns:
      `seconds` of the run alone; but for costs `lengths`, one for each length, see `_length`; for costs
      `peak_bytes` and `cpu_seconds`.

    Raises:
      RunError: a process failed.
    """
    corpora.corpus(run.corpus)
    if isinstance(run, NgramRun):
        released, bounds, seconds = _run_ngrams(run, corpora, run_key)
        max_length = run.plan.max_length
    elif isinstance(run, BaselineRun):
        released, seconds = _run_baseline(run, corpora, run_key)
        bounds, max_length = {}, run.max_length
    else:
        released, seconds = _run_union(run, corpora, run_key)
        bounds, max_length = {}, 1
    judged = evaluate(corpora.index(run.corpus, max_length), released, k_anonymity=K_ANONYMITY)
    rows = [_length(row, bounds.get(row.length or 0, 0.0)) for row in judged[:-1]]
    return {"seconds": seconds, "lengths": rows}


def _length(row: Coverage, bound: float) -> dict[str, Any]:
    return {
        "length": row.length,
        "released": row.released,
        "real": row.real,
        "spurious": row.spurious,
        "spurious_bound": bound,
        "occurrence_share": row.occurrence_share,
        "k_anonymity": [[each.k, each.held, each.released] for each in row.k_anonymity],
    }


def _run_ngrams(
    run: NgramRun, corpora: Corpora, run_key: RunKey
) -> tuple[dict[int, np.ndarray], dict[int, float], float]:
    """Returns the released n-grams, each length's bound on spurious ones, and the run's seconds."""
    corpus_folder = str(corpora.folder(run.corpus))
    partitions = corpora.partitions(run.corpus)
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        with _pipeline() as pipeline:
            ngrams = _documents(pipeline, corpus_folder) | PrivateNgrams(
                plan=run.plan, tokenizer=_TOKENS, partitions=partitions, run_key=run_key
            )
            rows = ngrams.released | DecodeGrams()
            _ = rows | "WriteRows" >> beam.Map(_write_rows, folder)
            _ = ngrams.released | ListReport() | "WriteFacts" >> beam.Map(_write_facts, folder)
        seconds = time.monotonic() - started
        table = _read_rows(folder, pa.schema([("length", pa.int32()), ("ngram", pa.string())]))
        bounds = dict(json.loads(path.read_text()) for path in pathlib.Path(folder).glob("*.json"))
    return released_codes(corpora.corpus(run.corpus), table), bounds, seconds


def _run_union(
    run: UnionRun, corpora: Corpora, run_key: RunKey
) -> tuple[dict[int, np.ndarray], float]:
    """Returns the released items and the seconds of the run, which is done in memory."""
    corpus = corpora.corpus(run.corpus)
    if isinstance(run.plan, UnionParameters):
        held = corpora.holdings(run.corpus)
        started = time.monotonic()
        found = union_policies.release_items(held, run.plan, run.key)
        return {1: found.astype(np.int32)[:, np.newaxis]}, time.monotonic() - started
    bound = run_key.bound_to(transform.run_context(run.plan, _TOKENS))
    items = corpora.user_items(run.corpus, bound)
    started = time.monotonic()
    released = release_items(items, run.plan, bound)
    seconds = time.monotonic() - started
    table = pa.table({"item": released.items})
    return released_codes(corpus, table), seconds


def _run_baseline(
    run: BaselineRun, corpora: Corpora, run_key: RunKey
) -> tuple[dict[int, np.ndarray], float]:
    grams = corpora.ranked(run.corpus, run.max_length)
    started = time.monotonic()
    result = _BASELINES[run.baseline](
        grams,
        epsilon=run.epsilon,
        delta=run.delta,
        max_contributions=run.max_contributions,
        run_key=run_key,
    )
    return result.released, time.monotonic() - started


def _pipeline() -> beam.Pipeline:
    progress.reset()
    return beam.Pipeline(runner=EmbeddedRunner(), options=CachedOptions([]))


def _documents(pipeline: beam.Pipeline, folder: str) -> Any:
    return (
        pipeline
        | "Corpus" >> beam.Create([folder])
        | "Documents" >> beam.FlatMap(_read_documents).with_output_types(pa.RecordBatch)
    )


def _read_documents(folder: str) -> Iterator[pa.RecordBatch]:
    yield from documents_of(load_corpus(folder))


def _write_rows(rows: pa.RecordBatch, folder: str) -> None:
    """Writes a file for each batch, named by the length of the batch's first row."""
    name = rows.column("length")[0].as_py() if "length" in rows.schema.names else 1
    path = os.path.join(folder, f"{name}.arrow")
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_batch(rows)


def _write_facts(facts: LengthReport, folder: str) -> None:
    numbers: tuple[int, float] = (facts.length, facts.spurious_bound)
    pathlib.Path(folder, f"{facts.length}.json").write_text(json.dumps(numbers), encoding="utf-8")


def _read_rows(folder: str, schema: pa.Schema) -> pa.Table:
    """Returns the rows of all written files, or an empty table without any."""
    tables = [schema.empty_table()]
    for path in sorted(pathlib.Path(folder).glob("*.arrow")):
        with pa.OSFile(str(path), "rb") as source:
            tables.append(pa.ipc.open_file(source).read_all().select(schema.names))
    return pa.concat_tables(tables).combine_chunks()
