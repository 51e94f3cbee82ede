"""The ledger of n-gram probabilities: what it says, and what it refuses to say."""

import dataclasses
import json

import numpy as np
import pyarrow as pa
from msgspec import UNSET
from msgspec.structs import replace

from beam_dpne.bayesian.counting import NgramProbabilities
from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.bayesian.transform import bayesian_contents
from beam_dpne.elements.coders import BatchCoder
from beam_dpne.elements.rows import rounded_probabilities
from beam_dpne.release.ledger import Run, ledger_bytes, whole_ledger
from beam_dpne.release.reading import parse_ledger
from beam_dpne.release.schema import Part


def plan_of(**others) -> BayesianPlan:
    return BayesianPlan(**{"epsilon": 0.5, "delta": 1e-7, **others})


def found_of(plan: BayesianPlan, **others) -> NgramProbabilities:
    public = {"ngrams": 2, "length": 3, "sha256": "0" * 64}
    found = NgramProbabilities(
        ngrams=pa.array(["a b c", "b c d"]),
        probabilities=np.array([0.75, 0.25]),
        public=public,
    )
    return dataclasses.replace(found, **others)


def ledger_of(plan: BayesianPlan, found: NgramProbabilities | None = None, rows: int = 2) -> dict:
    name = f"probabilities-{'0' * 16}-00000-of-00001.jsonl"
    part = Part(name=name, rows=rows, sha256="a" * 64, bytes=9)
    contents = bayesian_contents(plan, [found or found_of(plan)])
    run = Run(plan=plan, tokenizer="words", run_key_given=False)
    ledger = whole_ledger(contents, run, rows)
    return json.loads(ledger_bytes(replace(ledger, rows=UNSET, parts=[part])))


def test_a_ledger_is_read_back_whole():
    written = ledger_of(plan_of())
    assert parse_ledger(json.dumps(written).encode(), "here") == written
    assert BayesianPlan.from_json(json.dumps(written["plan"])) == plan_of()


def test_the_ledgers_numbers_are_the_plans():
    plan = plan_of(max_contributions=5)
    mechanism = ledger_of(plan)["mechanism"]
    assert mechanism["noise_stddev"] == plan.noise_stddev
    assert mechanism["sensitivity"] == plan.sensitivity


def test_the_coder_keeps_everything():
    found = found_of(plan_of())
    decoded = BatchCoder(NgramProbabilities).decode(BatchCoder(NgramProbabilities).encode(found))
    assert decoded.ngrams.to_pylist() == found.ngrams.to_pylist()
    assert decoded.probabilities.tolist() == found.probabilities.tolist()
    assert decoded.public == found.public


def test_probabilities_have_nine_digits():
    values = np.array([0.0, 1.0, 1 / 3, 1.23456789123e-12])
    assert rounded_probabilities(values).tolist() == [0.0, 1.0, 0.333333333, 1.23456789e-12]
