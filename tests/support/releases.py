"""Releases and ledgers of every program, made by the package's own functions without a run."""

import dataclasses
import functools
import hashlib
import json
import pathlib
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import UNSET
from msgspec.structs import replace

from beam_dpne import (
    NgramsPlan,
    ProbabilitiesPlan,
    PublicCounts,
    ReleaseNotes,
    RunKey,
    SetUnionPlan,
    join_tokens,
)
from beam_dpne.bayesian.grams import NgramProbabilities, probability_table
from beam_dpne.bayesian.ledger import bayesian_contents
from beam_dpne.documents.participants import SeriesPlace
from beam_dpne.documents.run_keys import RunKeys
from beam_dpne.elements.rows import (
    COUNTED_ITEM_SCHEMA,
    ITEM_SCHEMA,
    ROW_SCHEMA,
    in_order,
    with_rounded_scores,
)
from beam_dpne.ngrams.in_memory import release_ngrams
from beam_dpne.ngrams.ledger import ngrams_contents, reported_contents
from beam_dpne.ngrams.released_rows import ReleasedRows
from beam_dpne.reading.options import InputDescription
from beam_dpne.release.ledger import Run, ledger_bytes, whole_ledger
from beam_dpne.release.publishing import publish_release
from beam_dpne.release.schema import NO_NOTES, Length, Part
from beam_dpne.set_union.elements import ItemSet
from beam_dpne.set_union.ledger import set_union_contents
from tests.ngrams.test_oracle import user_batches

NOTES = ReleaseNotes(title="Phrases <b>, a = 1", contact="ask@example.com", unit="a customer")
DESCRIBED = InputDescription(user_field="customer_id", text_fields=("ticket_body",))

# Words that some format, page or reader might take for something else.
HOSTILE = (
    *("[UNK]", "[PAD]", "<s>", "</s>", "<unk>", "null", "---", "#c", "word=x", "f=0", "x" * 40_000),
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
        "| a | b |",
        "`x`",
        "$x$",
        "\\",
    ),
    *(
        "\\e",
        "<script>alert(1)</script>",
        "</script><img src=x onerror=alert(2)>",
        "</style><b>b</b>",
    ),
    *("<!--", "**bold** _it_ [x](http://evil.example) www.evil.example", "&lt;", "\u200fa\u202eb"),
    *("\u2066a\u2069", "אבג", "日本語", "e\u0301", "", "New York", "a\tb", "a\nb", "a\r\nb", " "),
    *("a\x00b\x1b[31m", "\x1e", "\x07", "\u2028", "\xa0", "\ufeff", "\U0001f600", "--x", "*/"),
    "'); DROP TABLE ngrams; --",
)


def ngrams(
    folder: pathlib.Path | str,
    scores: Mapping[Sequence[str], float],
    *,
    strategy: str = "one_round",
    max_length: int = 3,
    spurious: float = 0.25,
    **settings,
) -> Any:
    """A release of these n-grams without numbers of users, given by their words."""
    plan = NgramsPlan(
        epsilon=1, delta=1e-7, max_length=max_length, strategy=strategy, count_share=0
    )
    reports = []
    for each in plan.lengths:
        number = sum(len(words) == each.length for words in scores)
        valid, bound = (None, 0.0) if each.length == 1 else (1000, spurious)
        threshold = (each.threshold or 5.0) + 1
        report = length_of(plan, each.length, threshold, number, valid, bound)
        reports.append(report)
    columns = [
        list(map(len, scores)),
        list(map(join_tokens, scores)),
        [*map(float, scores.values())],
    ]
    table = pa.table(columns, schema=ROW_SCHEMA)
    return _publish(folder, table, reported_contents(plan, reports), plan, **settings)


def words(folder: pathlib.Path | str, texts: Sequence[str] = HOSTILE, **settings) -> Any:
    """A release of words, each alone and before and after a harmless one."""
    single = [("ok",), *((word,) for word in texts)]
    pairs = [pair for word in texts for pair in ((word, "ok"), ("ok", word))]
    rows = {row: 90.0 - number / 8 for number, row in enumerate([*single, *pairs])}
    return ngrams(folder, rows, max_length=2, **settings)


@functools.cache
def _counted() -> tuple[NgramsPlan, list]:
    """N-grams with numbers of users, made by the mechanism from 2,000 users with made-up phrases."""
    rng = random.Random(0)
    names = [f"w{number}" for number in range(30)]
    chances = [1 / (number + 2) for number in range(30)]
    documents = {
        f"user{number}": [tuple(rng.choices(names, chances, k=5)) for _ in range(3)]
        for number in range(2000)
    }
    plan = NgramsPlan(epsilon=8, delta=1e-6, max_length=3)
    key = RunKey(bytes(range(32)))
    users = user_batches(documents, plan, key, rng, partitions=1)
    return plan, release_ngrams(users, plan, key)


def counted_ngrams(folder: pathlib.Path | str, **settings) -> Any:
    """A release with numbers of users."""
    plan, found = _counted()
    return _publish(
        folder, ReleasedRows.of(found).table(), ngrams_contents(plan, found), plan, **settings
    )


def items(
    folder: pathlib.Path | str,
    scores: Mapping[str, float],
    *,
    policy: str = "weighted_gaussian",
    count_share: float = 0,
    **settings,
) -> Any:
    """A release of these items, and of made-up numbers of users if they have a share."""
    plan = SetUnionPlan(epsilon=1, delta=1e-7, policy=policy, count_share=count_share)
    values = np.array(list(map(float, scores.values())))
    users = np.rint(values[:, None] * (1, 0.5, 2)).astype(np.int64) if count_share else None
    found = ItemSet(items=pa.array(list(scores), pa.string()), scores=values, users=users)
    columns = [found.items, values]
    schema = ITEM_SCHEMA
    if users is not None:
        columns, schema = [*columns, *map(pa.array, users.T)], COUNTED_ITEM_SCHEMA
    table = pa.table(columns, schema=schema)
    return _publish(folder, table, set_union_contents(plan, [found]), plan, **settings)


def probabilities(
    folder: pathlib.Path | str,
    given: Mapping[Sequence[str], float],
    *,
    public: PublicCounts | None = None,
    vocabulary_size: int = 50_000,
    **settings,
) -> Any:
    """A release of these probabilities, with these public counts."""
    length = len(next(iter(given)))
    plan = ProbabilitiesPlan(
        epsilon=0.5, delta=1e-7, length=length, vocabulary_size=vocabulary_size
    )
    sha256 = public.fingerprint() if public else "0" * 64
    found = NgramProbabilities(
        ngrams=pa.array(list(map(join_tokens, given))),
        noisy=np.zeros(len(given), np.int64),
        probabilities=np.array(list(given.values())),
        public={"ngrams": len(given), "length": length, "sha256": sha256},
    )
    contents = bayesian_contents(plan, [found])
    return _publish(folder, probability_table([found]), contents, plan, **settings)


def sums(data: bytes) -> dict[str, object]:
    """What a ledger states of the bytes of a part."""
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


def _publish(
    folder: pathlib.Path | str,
    table: pa.Table,
    contents,
    plan,
    *,
    tokenizer: str = "words",
    tokenizer_version: str | None = None,
    notes: ReleaseNotes = NOTES,
    described: InputDescription = DESCRIBED,
    **settings,
) -> Any:
    facts = {"tokenizer": tokenizer, "tokenizer_version": tokenizer_version}
    run = run_of(plan, described=described, **facts)
    if "score" in table.column_names:
        table = with_rounded_scores(table)
    rows = in_order(table)
    ledger = whole_ledger(contents, run, len(rows), notes)
    publish_release(rows, ledger, output=str(folder), **settings)
    return folder


def ledger_of(
    plan: NgramsPlan | SetUnionPlan | ProbabilitiesPlan,
    *,
    rows: int = 2,
    notes: ReleaseNotes = NO_NOTES,
    run_key_given: bool = False,
    keys: RunKeys | None = None,
    same_people: Sequence[str] = (),
    content: str = "c" * 64,
    series: SeriesPlace | None = None,
) -> dict:
    """Returns the ledger of a release with so many rows, in one part.

    Args:
      plan: its plan.
      rows: the number of its rows.
      notes: the operator's notes.
      run_key_given: whether the key was given.
      keys: its key and the bound one; by default always the same.
      same_people: SHA-256 of the known releases about the same people.
      content: SHA-256 of its rows.
      series: its place in a series.
    """
    contents, stem = _contents(plan, rows)
    run = run_of(plan, keys, run_key_given=run_key_given, series=series)
    if same_people:
        lists = [{"kind": "release", "sha256": each, "same_people": True} for each in same_people]
        run = dataclasses.replace(run, known={"lists": lists})
    name = f"{stem}-{'0' * 16}-00000-of-00001.jsonl"
    part = Part(name=name, rows=rows, sha256="a" * 64, bytes=9)
    ledger = whole_ledger(contents, run, rows, notes)
    return json.loads(ledger_bytes(replace(ledger, rows=UNSET, content=content, parts=[part])))


def run_of(plan, keys: RunKeys | None = None, **facts) -> Run:
    """The public facts of a run under these keys, by default always the same."""
    own, bound = keys or RunKeys(RunKey(bytes(range(32))), RunKey(bytes(range(1, 33))))
    whole = {"tokenizer": "words", "run_key_given": False} | facts
    digests = {"commitment": own.commitment(), "bound_commitment": bound.commitment()}
    return Run(plan=plan, **digests, **whole)


def write_ledger(
    folder: pathlib.Path, plan: NgramsPlan | SetUnionPlan | ProbabilitiesPlan, **others
) -> str:
    """Writes a ledger into a folder, and an empty file for its part; returns the folder's path."""
    folder.mkdir(parents=True, exist_ok=True)
    ledger = ledger_of(plan, **others)
    (folder / "ledger.json").write_text(json.dumps(ledger))
    (folder / ledger["parts"][0]["name"]).write_bytes(b"")
    return str(folder)


def length_of(plan, length, threshold, released, valid=None, bound=0.0) -> Length:
    """What a ledger says of one length of a run under this plan."""
    own = plan.lengths[length - 1]
    details = {}
    if plan.is_adaptive:
        names = ("round", "evidence_stddev", "threshold", "cut", "null_probability", "loadings")
        one = dict(zip(names, (1, 1.0, 5.5, 0.5, 1e-7, [1.0]), strict=True))
        details = {"rounds": [one], "classes": [], "groups": []}
    return Length(
        length=length,
        budget_share=own.budget_share,
        max_contributions=own.max_contributions,
        noise_stddev=own.noise_stddev,
        threshold=threshold,
        released=released,
        valid=valid,
        expected_spurious_at_most=bound,
        **details,
    )


def _contents(plan, rows):
    if isinstance(plan, NgramsPlan):
        reports = []
        for length in plan.lengths:
            released = rows if length.length == plan.max_length else 0
            reports.append(length_of(plan, length.length, length.threshold, released))
        return reported_contents(plan, reports), "ngrams"
    if isinstance(plan, SetUnionPlan):
        items = ItemSet(
            items=pa.array([f"i{number}" for number in range(rows)], pa.string()),
            scores=np.ones(rows),
            users=np.ones((rows, 3), np.int64) if plan.count_share else None,
        )
        return set_union_contents(plan, [items]), "items"
    public = {"ngrams": rows, "length": plan.length, "sha256": "0" * 64}
    found = NgramProbabilities(
        ngrams=pa.array([f"a b c{number}" for number in range(rows)], pa.string()),
        noisy=np.zeros(rows, np.int64),
        probabilities=np.full(rows, 1 / max(rows, 1)),
        public=public,
    )
    return bayesian_contents(plan, [found]), "probabilities"
