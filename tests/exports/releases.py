"""Releases with given rows, published by the package's own functions without a pipeline."""

import pathlib
import random
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from beam_dpne import (
    BayesianPlan,
    LengthReport,
    PrivacyPlan,
    PublicCounts,
    RunKey,
    SetUnionPlan,
    join_tokens,
)
from beam_dpne.bayesian.counting import NgramProbabilities
from beam_dpne.bayesian.ledger import bayesian_contents
from beam_dpne.elements.rows import ITEM_SCHEMA, PROBABILITY_SCHEMA, ROW_SCHEMA, in_order
from beam_dpne.ngrams.decoding import ngram_table
from beam_dpne.ngrams.in_memory import ArraySteps, release_lengths
from beam_dpne.ngrams.ledger import ngrams_contents, reported_contents
from beam_dpne.reading.options import InputDescription
from beam_dpne.release.files import PROGRAMS, rows_section
from beam_dpne.release.ledger import Run, whole_ledger
from beam_dpne.release.notes import ReleaseNotes
from beam_dpne.release.publishing import publish_release
from beam_dpne.release.result import Described
from beam_dpne.set_union.elements import ItemSet
from beam_dpne.set_union.ledger import set_union_contents
from tests.ngrams.test_oracle import user_batches

NOTES = ReleaseNotes(title="Phrases <b>, a = 1", contact="privacy@example.com", unit="a customer")
DESCRIBED = InputDescription(user_field="customer_id", format="csv")

# Words that some format might take for something else.
HOSTILE = (
    *("[UNK]", "[PAD]", "<s>", "</s>", "<unk>", "[CLS]", "null", "---", "#c", "word=x", "f=0"),
    *(
        "=1+1",
        "+1",
        "-1",
        "@a",
        "'=1",
        "'",
        '"',
        '""',
        "a,b",
        "a;b",
        "a|b",
        "`x`",
        "$x$",
        "\\",
        "\\e",
    ),
    *("<script>alert(1)</script>", "&lt;", "\u200fa\u202eb", "\u0645\u0631", "日本語", "e\u0301"),
    *("", "New York", "a\tb", "a\nb", "a\r\nb", " ", "a\x00b", "\x1e", "\x07", "\u2028", "\xa0"),
    *("x" * 40_000, "\ufeff", "\U0001f600", "--x", "*/", "'); DROP TABLE ngrams; --"),
)


def _publish(folder, program, table, contents, plan, tokenizer, settings, notes=NOTES):
    run = Run(plan=plan, tokenizer=tokenizer, run_key_given=False, described=DESCRIBED)
    rows = in_order(table)
    ledger = whole_ledger(contents, run, rows_section(PROGRAMS[program], rows), notes)
    publish_release(Described(PROGRAMS[program], rows, ledger), output=str(folder), **settings)
    return folder


def ngrams_release(
    folder: pathlib.Path,
    scores: Mapping[Sequence[str], float],
    *,
    max_length: int = 3,
    tokenizer: str = "tokens",
    notes: ReleaseNotes = NOTES,
    **settings,
) -> pathlib.Path:
    """A release of these n-grams without numbers of users, given by their words."""
    plan = PrivacyPlan(
        epsilon=1, delta=1e-7, max_length=max_length, strategy="one_round", count_share=0
    )
    lengths = [len(words) for words in scores]
    reports = [
        LengthReport(each.length, each.noise_stddev, each.threshold or 9.0, number, 100, 0.1)
        for each in plan.lengths
        for number in [lengths.count(each.length)]
    ]
    table = pa.table(
        [lengths, list(map(join_tokens, scores)), list(map(float, scores.values()))],
        schema=ROW_SCHEMA,
    )
    contents = reported_contents(plan, reports)
    return _publish(folder, "ngrams", table, contents, plan, tokenizer, settings, notes)


def counted_ngrams(folder: pathlib.Path, **settings) -> pathlib.Path:
    """A release with numbers of users, made by the mechanism from 2,000 users with made-up phrases."""
    rng = random.Random(0)
    words = [f"w{number}" for number in range(30)]
    chances = [1 / (number + 2) for number in range(30)]
    documents = {
        f"user{number}": [tuple(rng.choices(words, chances, k=5)) for _ in range(3)]
        for number in range(2000)
    }
    plan = PrivacyPlan(epsilon=8, delta=1e-6, max_length=3)
    key = RunKey(bytes(range(32)))
    users = user_batches(documents, plan, key, rng, partitions=1)
    found = release_lengths(ArraySteps(plan=plan, run_key=key), plan, users)
    contents = ngrams_contents(plan, found)
    table = ngram_table(found)
    return _publish(folder, "ngrams", table, contents, plan, "words", settings)


def items_release(folder: pathlib.Path, scores: Mapping[str, float], **settings) -> pathlib.Path:
    """A release of these items."""
    plan = SetUnionPlan(epsilon=1, delta=1e-7, policy="weighted_gaussian", count_share=0)
    values = np.array(list(map(float, scores.values())))
    found = ItemSet(items=pa.array(list(scores), pa.string()), scores=values, report=plan.report())
    table = pa.table([found.items, values], schema=ITEM_SCHEMA)
    contents = set_union_contents(plan, [found])
    return _publish(folder, "set-union", table, contents, plan, "item", settings)


def probabilities_release(
    folder: pathlib.Path,
    probabilities: Mapping[Sequence[str], float],
    *,
    public: PublicCounts | None = None,
    vocabulary_size: int = 50_000,
    **settings,
) -> pathlib.Path:
    """A release of these probabilities, with these public counts."""
    length = len(next(iter(probabilities)))
    plan = BayesianPlan(epsilon=0.5, delta=1e-7, length=length, vocabulary_size=vocabulary_size)
    texts = pa.array(list(map(join_tokens, probabilities)))
    values = np.array(list(probabilities.values()))
    sha256 = public.fingerprint() if public else "0" * 64
    used = {"ngrams": len(values), "length": length, "sha256": sha256}
    found = NgramProbabilities(
        ngrams=texts,
        probabilities=values,
        guarantee=plan.guarantee,
        report=plan.report() | {"public": used},
    )
    table = pa.table([texts, values], schema=PROBABILITY_SCHEMA)
    contents = bayesian_contents(plan, [found])
    return _publish(folder, "bayesian", table, contents, plan, "words", settings)


def small_ngrams(folder: pathlib.Path, **settings) -> pathlib.Path:
    """A release of a few words, pairs and triples."""
    scores = {
        ("see",): 60.0,
        ("you",): 50.0,
        ("soon",): 20.0,
        ("best",): 12.0,
        ("see", "you"): 40.0,
        ("you", "soon"): 15.0,
        ("you", "see"): 10.0,
        ("see", "you", "soon"): 12.5,
    }
    return ngrams_release(folder, scores, tokenizer="words", **settings)


def hostile_ngrams(folder: pathlib.Path, **settings) -> pathlib.Path:
    """A release of hostile words, each alone and before and after a harmless one."""
    words = [("ok",), *((word,) for word in HOSTILE)]
    pairs = [pair for word in HOSTILE for pair in ((word, "ok"), ("ok", word))]
    rows = {row: 90.0 - number / 8 for number, row in enumerate([*words, *pairs])}
    return ngrams_release(folder, rows, max_length=2, **settings)
