"""Small releases of every program, written by the package's own functions without a pipeline."""

import pathlib

import numpy as np
import pyarrow as pa

from beam_dpne import LengthReport, PrivacyPlan, ReleaseNotes
from beam_dpne.bayesian.counting import NgramProbabilities, probability_table
from beam_dpne.bayesian.ledger import bayesian_contents
from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.elements.rows import COUNTED_ITEM_SCHEMA, ITEM_SCHEMA, ROW_SCHEMA, in_order
from beam_dpne.ngrams.decoding import RoundReport
from beam_dpne.ngrams.ledger import reported_contents
from beam_dpne.reading.options import InputDescription
from beam_dpne.release.files import PROGRAMS, render_parts, rows_section
from beam_dpne.release.ledger import Contents, Run, ledger_bytes, whole_ledger, with_parts
from beam_dpne.release.notes import NO_NOTES
from beam_dpne.set_union.elements import ItemSet
from beam_dpne.set_union.ledger import set_union_contents
from beam_dpne.set_union.plan import SetUnionPlan

NOTES = ReleaseNotes(title="Tickets & co", contact="ask@example.com", unit="a customer")
DESCRIBED = InputDescription(user_field="customer_number", text_fields=("ticket_body",))
# Each could do harm in a page: markup, the end of a script, quotes, another order of letters, links.
HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(2)>",
    "</style><b>bold</b>",
    "<!--",
    "\"'`quotes`",
    "| a | b |",
    "**bold** _it_ [x](http://evil.example) http://evil.example www.evil.example",
    "&lt;b&gt;",
    "\u202egnp.exe",
    "\u2066a\u2069",
    "nul\x00 bell\x07 esc\x1b[31m",
    "line\u2028and\u2029paragraph",
    "אבג",
    "$x^2$ {curly} \\backslash",
    "x" * 1000,
)


def ngrams(folder, rows, *, strategy="adaptive", spurious=0.25, notes=NOTES, **settings):
    """A release of n-grams without numbers of users, from (length, ngram, score)."""
    longest = max([2, *(length for length, *_ in rows)])
    plan = PrivacyPlan(
        epsilon=4,
        delta=1e-7,
        max_length=longest,
        max_contributions=20,
        strategy=strategy,
        count_share=0,
    )
    reports = []
    for length in plan.lengths:
        released = sum(row[0] == length.length for row in rows)
        valid = None if length.length == 1 else 1000
        bound = spurious if length.length > 1 else 0.0
        rounds = (RoundReport(1, 1.0, 5.5, None, 1e-7, (1.0,)),) if strategy == "adaptive" else ()
        threshold = (length.threshold or 5.0) + 1
        report = LengthReport(
            length.length, length.noise_stddev, threshold, released, valid, bound, rounds
        )
        reports.append(report)
    table = pa.Table.from_pylist(
        [{"length": length, "ngram": text, "score": score} for length, text, score in rows],
        schema=ROW_SCHEMA,
    )
    return _write(folder, reported_contents(plan, reports), plan, table, notes, **settings)


def items(folder, texts, *, policy="screened_gaussian", count_share=0, notes=NOTES, **settings):
    """A release of items, with falling scores, and with numbers of users if they have a share."""
    plan = SetUnionPlan(epsilon=2, delta=1e-6, policy=policy, count_share=count_share)
    scores = np.linspace(90, 10, len(texts)) if texts else np.zeros(0)
    users = np.rint(scores[:, None] * (1, 0.5, 2)).astype(np.int64) if count_share else None
    found = ItemSet(
        items=pa.array(texts, pa.string()), scores=scores, users=users, report=plan.report()
    )
    columns = [found.items, pa.array(scores)]
    if users is None:
        table = pa.table(columns, schema=ITEM_SCHEMA)
    else:
        table = pa.table([*columns, *map(pa.array, users.T)], schema=COUNTED_ITEM_SCHEMA)
    return _write(folder, set_union_contents(plan, [found]), plan, table, notes, **settings)


def probabilities(folder, notes=NOTES, **settings):
    """A release of probabilities of two public n-grams."""
    plan = BayesianPlan(epsilon=1, delta=1e-6)
    public = {"ngrams": 2, "length": 3, "sha256": "0" * 64}
    found = NgramProbabilities(
        ngrams=pa.array(["see you soon", "b c d"]),
        probabilities=np.array([0.75, 0.25]),
        guarantee=plan.guarantee,
        report=plan.report() | {"public": public},
    )
    contents = bayesian_contents(plan, [found])
    return _write(folder, contents, plan, probability_table([found]), notes, **settings)


def hostile(folder, **settings):
    """A release of n-grams whose texts could do harm."""
    rows = [(1, "good", 99.5), (2, "good morning", 40.25)]
    rows += [(1, text, 90.0 - place) for place, text in enumerate(HOSTILE)]
    return ngrams(folder, rows, **settings)


def _write(
    folder: pathlib.Path,
    contents: Contents,
    plan,
    rows: pa.Table,
    notes: ReleaseNotes = NO_NOTES,
    output_format: str = "jsonl",
    described: InputDescription | None = DESCRIBED,
    tokenizer: str = "company.private_tokens:split",
) -> pathlib.Path:
    program = PROGRAMS[contents.program]
    rows = in_order(rows)
    run = Run(plan=plan, tokenizer=tokenizer, run_key_given=True, described=described)
    folder.mkdir(parents=True)
    parts = []
    for part, data in render_parts(program, rows, output_format, 1000):
        (folder / part.name).write_bytes(data)
        parts.append(part)
    ledger = whole_ledger(contents, run, rows_section(program, rows), notes)
    (folder / "ledger.json").write_bytes(ledger_bytes(with_parts(ledger, parts)))
    return folder
