"""Ledgers of releases under any plan, made by the package's own functions without a run."""

import json
import pathlib

import numpy as np
import pyarrow as pa
from msgspec import UNSET
from msgspec.structs import replace

from beam_dpne import BayesianPlan, LengthReport, PrivacyPlan, SetUnionPlan
from beam_dpne.bayesian.counting import NgramProbabilities
from beam_dpne.bayesian.ledger import bayesian_contents
from beam_dpne.ngrams.ledger import reported_contents
from beam_dpne.release.ledger import Run, ledger_bytes, whole_ledger
from beam_dpne.release.schema import NO_NOTES, Part, ReleaseNotes
from beam_dpne.set_union.elements import ItemSet
from beam_dpne.set_union.ledger import set_union_contents

Plan = PrivacyPlan | SetUnionPlan | BayesianPlan


def ledger_of(
    plan: Plan, *, rows: int = 2, notes: ReleaseNotes = NO_NOTES, run_key_given: bool = False
) -> dict:
    """Returns the ledger of a release with so many rows, in one part."""
    contents, stem = _contents(plan, rows)
    run = Run(plan=plan, tokenizer="words", run_key_given=run_key_given)
    name = f"{stem}-{'0' * 16}-00000-of-00001.jsonl"
    part = Part(name=name, rows=rows, sha256="a" * 64, bytes=9)
    ledger = whole_ledger(contents, run, rows, notes)
    return json.loads(ledger_bytes(replace(ledger, rows=UNSET, parts=[part])))


def write_ledger(folder: pathlib.Path, plan: Plan, **others) -> str:
    """Writes a ledger into a folder, and an empty file for its part; returns the folder's path."""
    folder.mkdir(parents=True, exist_ok=True)
    ledger = ledger_of(plan, **others)
    (folder / "ledger.json").write_text(json.dumps(ledger))
    (folder / ledger["parts"][0]["name"]).write_bytes(b"")
    return str(folder)


def _contents(plan, rows):
    if isinstance(plan, PrivacyPlan):
        reports = []
        for length in plan.lengths:
            noise, threshold = length.noise_stddev, length.threshold
            released = rows if length.length == plan.max_length else 0
            reports.append(LengthReport(length.length, noise, threshold, released, None, 0.0))
        return reported_contents(plan, reports), "ngrams"
    if isinstance(plan, SetUnionPlan):
        items = ItemSet(
            items=pa.array([f"i{number}" for number in range(rows)], pa.string()),
            scores=np.ones(rows),
            users=np.ones((rows, 3), np.int64) if plan.count_share else None,
            report=plan.report(),
        )
        return set_union_contents(plan, [items]), "items"
    public = {"ngrams": rows, "length": plan.length, "sha256": "0" * 64}
    found = NgramProbabilities(
        ngrams=pa.array([f"a b c{number}" for number in range(rows)], pa.string()),
        probabilities=np.full(rows, 1 / max(rows, 1)),
        guarantee=plan.guarantee,
        report=plan.report() | {"public": public},
    )
    return bayesian_contents(plan, [found]), "probabilities"
