"""What the rules of texts leave out is in no release, whatever lists and noise say."""

import json
import random

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dpne import (
    BayesianCounts,
    KnownNgrams,
    NgramsPlan,
    PrivateNgrams,
    PrivateSetUnion,
    ProbabilitiesPlan,
    PublicCounts,
    RunKey,
    SetUnionPlan,
)
from beam_dpne.documents.masks import TextRules
from beam_dpne.elements.rows import join_tokens
from beam_dpne.lists.left_out import LeftOut
from beam_dpne.lists.public_counts import read_public_counts
from beam_dpne.ngrams.run import NgramsRun
from beam_dpne.release.reading import read_ledger, read_release
from tests.ngrams.test_known import texts_of
from tests.reading.files import write
from tests.support.in_memory import rows_in_memory
from tests.support.pipelines import keep

WORDS = "abcdefgh"
# Nobody says two words in a row, so that every longer n-gram of these words comes of noise.
APART = [(f"user {number}", word) for number in range(60) for word in WORDS]
PHRASES = [f"{one} {two}" for one in WORDS for two in WORDS if one < two] + ["h g f", "b a h"]
ADAPTIVE = NgramsPlan(epsilon=20, delta=1e-3, max_length=3, spurious_fraction=0.5, count_share=0.0)
SINGLE, BOTH = (
    NgramsPlan(
        epsilon=20,
        delta=1e-3,
        max_length=3,
        spurious_fraction=0.5,
        count_share=0.0,
        strategy="one_round",
        pruning=pruning,
    )
    for pruning in ("single", "both")
)
COUNTED = NgramsPlan(epsilon=20, delta=1e-3, max_length=3, spurious_fraction=0.5)


def has_phrase(text: str) -> bool:
    return any(f" {phrase} " in f" {text} " for phrase in PHRASES)


@pytest.mark.parametrize("seed", range(20))
def test_n_grams_with_a_word_or_a_phrase_of_the_list_are_found(seed):
    rng = random.Random(seed)
    phrases = [tuple(rng.choices("abcd", k=rng.choice([1, 2, 2, 3]))) for _ in range(3)]
    rows = np.array([rng.choices(range(5), k=4) for _ in range(100)])
    rows[:50, 3] = -1
    words = pa.array(list("abcde"))
    texts = [" ".join("abcde"[code] for code in row if code >= 0) for row in rows.tolist()]
    expected = [any(f" {' '.join(each)} " in f" {text} " for each in phrases) for text in texts]
    found = LeftOut(phrases=frozenset(phrases)).of_rows(words, rows)
    assert found.tolist() == expected


@pytest.mark.parametrize("is_local", [False, True])
@pytest.mark.parametrize(
    ("plan", "group_field"),
    [
        (ADAPTIVE, None),
        (ADAPTIVE, "group"),
        (COUNTED, None),
        (BOTH, None),
        (BOTH, "group"),
        (SINGLE, None),
    ],
)
def test_a_phrase_whose_words_are_released_apart_is_never_released(plan, group_field, is_local):
    rows = [(*row, "all") if group_field else row for row in APART]
    # A run on Beam takes a second; under three of the keys some come of noise by each plan.
    keys = range(5) if is_local else range(3)

    def released(*stop_list: str) -> set[str]:
        found = set()
        for number in keys:
            run = NgramsRun(
                plan=plan,
                tokenizer=TextRules(tokenizer="whitespace", stop_list=stop_list),
                run_key=RunKey(bytes([number]) * 32),
                group_field=group_field,
            )
            if is_local:
                names = run.form.row_type(plan)._fields
                place = names.index("ngram")
                found |= {row[place] for row in rows_in_memory(run, rows)}
                continue
            with beam.Pipeline(runner=FnApiRunner()) as pipeline:
                transform = PrivateNgrams.of(run, None)
                kept = keep((pipeline | beam.Create(rows) | transform).rows)
            found |= {row.ngram for row in kept}
        return found

    assert any(map(has_phrase, released("x y")))
    found = released(*PHRASES)
    assert max(len(text.split()) for text in found) > 1
    assert not any(map(has_phrase, found))


@pytest.mark.parametrize("program", ["ngrams", "set-union"])
def test_the_last_release_is_known_without_what_the_stop_list_leaves_out(program, cli, tmp_path):
    rows = [(f"user {n}", text) for n in range(300) for text in ("green tea please", "no 1 tea")]
    notes = tmp_path / "notes.jsonl"
    notes.write_text("\n".join(json.dumps({"user": user, "text": text}) for user, text in rows))
    (tmp_path / "stop.txt").write_text("please\ngreen tea\n")
    run = (program, "--input", notes, "--epsilon", "8", "--delta", "1e-5")
    run += ("--max_length", "3") if program == "ngrams" else ("--tokenizer", "words")
    assert cli(*run, "--output", tmp_path / "first").status == 0
    rules = ("--stop_list", tmp_path / "stop.txt", "--mask", "numbers")
    known = ("--known", tmp_path / "first", "--known_same_people")
    assert cli(*run, *rules, *known, "--output", tmp_path / "second").status == 0
    release = read_release(str(tmp_path / "first"))
    texts = release.table()[release.text_column].to_pylist()
    gone = [each for each in texts if "green tea" in each or {"please", "1"} & {*each.split()}]
    (told,) = read_ledger(str(tmp_path / "second"))["known"]["lists"]
    assert gone
    assert (told["ngrams"], told["left_out"]) == (len(texts) - len(gone), len(gone))
    second = read_release(str(tmp_path / "second"))
    assert not {*second.table()[second.text_column].to_pylist()} & {*gone}


@pytest.mark.parametrize(
    ("rules", "kept", "gone"),
    [
        (TextRules(stop_list=("the", "new york")), [("york",), ("york", "new")], [("new", "york")]),
        (TextRules(mask=("numbers",)), [("one",)], [("x2",), ("one", "2024")]),
        (TextRules(tokenizer="item", item_separator=";"), [("a b",)], [("a;b",), (" a",), ("",)]),
        (TextRules(fold=("case",)), [("strasse",)], [("Straße",), ("straße", "nach")]),
        (TextRules(tokenizer="tokens", fold=("case",)), [("a",)], [("A",), ("a", "ß")]),
        (TextRules(tokenizer="item", fold=("width",)), [("a b",)], [("ａ b",)]),
        (TextRules(tokenizer="tokens", stop_list=("a b",)), [("a", "b")], [("a b",), ("a b", "c")]),
    ],
)
def test_given_and_tabled_n_grams_are_known_unless_rules_leave_them_out(
    rules, kept, gone, tmp_path
):
    given = KnownNgrams.of([*kept, *gone], tokenizer=rules)
    table = tmp_path / "known.parquet"
    texts = [join_tokens(each) for each in (*kept, *gone)]
    pa.parquet.write_table(pa.table({"ngram": texts}), table)
    for known in (given, KnownNgrams.from_table(str(table), tokenizer=rules)):
        assert texts_of(known) == {*kept}
        told = known.lists[0]
        assert (told["ngrams"], told["left_out"]) == (len(kept), len(gone))
    plain = KnownNgrams.of([*kept, *gone])
    PrivateNgrams(plan=ADAPTIVE, known=given, tokenizer=rules)
    with pytest.raises(
        ValueError, match="`known` must have no n-gram that the tokenizer leaves out"
    ):
        PrivateNgrams(plan=ADAPTIVE, known=plain, tokenizer=rules)
    union = SetUnionPlan(epsilon=1, delta=1e-6)
    PrivateSetUnion(plan=union, known=given.items, tokenizer=rules)
    if any(len(each) == 1 for each in gone):
        with pytest.raises(ValueError, match="`known` must have no n-gram"):
            PrivateSetUnion(plan=union, known=plain.items, tokenizer=rules)


def test_public_counts_lose_what_folding_changes(tmp_path):
    path = write(tmp_path / "counts.tsv", "strasse\t5\nstraße\t7\n")
    rules = TextRules(fold=("case",))
    assert read_public_counts(str(path), length=1, tokenizer=rules).texts().to_pylist() == [
        "strasse"
    ]


def test_a_language_model_is_made_of_a_vocabulary_without_the_stop_list(cli, tmp_path):
    counts, stop, notes = (tmp_path / name for name in ("counts.tsv", "stop.txt", "notes.jsonl"))
    counts.write_text("good day\t9\nnew york\t8\nthe day\t7\nnew day\t6\n")
    stop.write_text("the\nnew york\n")
    notes.write_text(json.dumps({"user": "ann", "text": "new day"}))
    public, out = ("--public", counts), tmp_path / "out"
    given = ("--epsilon", "4", "--delta", "1e-6", "--length", "2", "--stop_list", stop)
    assert cli("bayesian", "--input", notes, *given, *public, "--output", out).status == 0
    assert {*read_release(str(out)).table()["ngram"].to_pylist()} == {"good day", "new day"}
    made = cli("export", out, "--to", "arpa", *public, "--output", tmp_path / "model.arpa")
    assert made.status == 0, made.err


def test_what_rules_leave_out_has_no_probability(tmp_path):
    grams = [("good", "day"), ("new", "york"), ("the", "day"), ("new", "day")]
    public = PublicCounts.of(grams, [9, 8, 7, 6])
    rules = TextRules(stop_list=("the", "new york"))
    plan = ProbabilitiesPlan(epsilon=4, delta=1e-6, length=2, vocabulary_size=2)
    transform = BayesianCounts(plan=plan, public=public, tokenizer=rules)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        rows = keep((pipeline | beam.Create([("ann", "new day")]) | transform).rows)
    assert {row.ngram for row in rows} == {"good day", "new day"}
    path = tmp_path / "counts.tsv"
    path.write_text("".join(f"{' '.join(gram)}\t{9 - n}\n" for n, gram in enumerate(grams)))
    read = read_public_counts(str(path), length=2, tokenizer=rules, vocabulary_size=2)
    assert read.texts().to_pylist() == ["good day", "new day"]
