"""Known n-grams: lists as they are read, and what a run makes of them."""

import dataclasses
import gzip
import hashlib
import itertools
import json
import random

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_dpne import KnownNgrams, NgramsPlan, PrivateNgrams, RunKey
from beam_dpne.documents.run_keys import key_context
from beam_dpne.elements.coders import BatchCoder
from beam_dpne.elements.rows import GROUP_FIELD, ITEM_SCHEMA, ROW_SCHEMA, join_tokens
from beam_dpne.errors import UsageError
from beam_dpne.evaluation.corpus import corpus_of
from beam_dpne.exports.writing import csv_text
from beam_dpne.lists.known import read_known
from beam_dpne.lists.parameters import KnownLists
from beam_dpne.mechanism.rules import KNOWN_CLASS
from beam_dpne.ngrams.elements import Past
from beam_dpne.ngrams.in_memory import InMemory
from beam_dpne.ngrams.known import root_of
from beam_dpne.ngrams.length_rules import cell_units, counted_classes, rule_of_sizes
from beam_dpne.ngrams.spending import RoundOfLength, contribute
from beam_dpne.ngrams.tolerances import KNOWN_LEAD, groups_of, known_lead, prediction
from beam_dpne.ngrams.valid import class_numbers, class_sizes, members
from beam_dpne.reading.columns import GROUP
from beam_dpne.reading.files import InputFile
from beam_dpne.release.parts import PROGRAMS, render_parts
from beam_dpne.release.reading import read_ledger
from beam_dpne.steps import GramSet
from tests.ngrams.test_oracle import shared_phrases, words_of
from tests.support.pipelines import keep

PLAN = NgramsPlan(epsilon=8, delta=1e-4, max_length=3, count_share=0.0)
KEY = RunKey(bytes(range(32)))
NGRAMS = [
    ("to",),
    ("be",),
    ("to", "be"),
    ("not", "to", "be"),
    ("nobody", "says"),
    ("to", "be", "or"),
]


def texts_of(known: KnownNgrams) -> set[tuple[str, ...]]:
    words = known.words.to_pylist()
    return {tuple(words[code] for code in row) for rows in known.grams for row in rows.tolist()}


def release(documents, plan=PLAN, known=None, key=KEY) -> tuple[GramSet, ...]:
    corpus = corpus_of([(user, text) for user, texts in documents.items() for text in texts])
    root = None if known is None else root_of(known, plan.max_length)
    return InMemory(plan=plan, run_key=key, root=root).release([corpus.batch(key)])


def run_transform(documents, transform: PrivateNgrams) -> str:
    """The rows that a transform releases."""
    rows = [(user, text) for user, texts in documents.items() for text in texts]
    transform = dataclasses.replace(transform, tokenizer="tokens")
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        kept = keep((pipeline | beam.Create(rows) | transform).rows)
    return repr(sorted(map(tuple, kept)))


def test_a_public_text_is_split_by_the_tokenizer_of_the_run(tmp_path):
    path = tmp_path / "public.txt"
    path.write_text("To be, or NOT to be\nto be\n" * 2 + "or not\n")
    counted = KnownNgrams.from_text(str(path), max_length=2, min_count=3)
    assert texts_of(counted) == {("to",), ("be",), ("or",), ("not",), ("to", "be"), ("or", "not")}
    as_is = KnownNgrams.from_text(str(path), max_length=1, min_count=2, tokenizer="whitespace")
    assert ("NOT",) in texts_of(as_is)
    assert ("not",) not in texts_of(as_is)


def test_n_grams_of_a_text_do_not_cross_lines(tmp_path):
    path = tmp_path / "public.txt.gz"
    path.write_bytes(gzip.compress(b"a b\nc d\n" * 3))
    assert texts_of(KnownNgrams.from_text(str(path), max_length=4, min_count=3)) == {
        *((word,) for word in "abcd"),
        ("a", "b"),
        ("c", "d"),
    }


# Signs that some format writes or reads otherwise, and words that some reader takes for nothing.
SIGNS = [
    "\\",
    '"',
    "=",
    "+",
    "-",
    "@",
    "'",
    "\t",
    "\n",
    "\r",
    "\u2028",
    "\x85",
    "\x00",
    "\uff1d",
    " ",
]
SPECIAL = ["", "null", "NA", "nan", "true", "7", "2024-01-01", "\\e", "\\t", "''", "'=", '"', "#a"]
TEXT = st.one_of(
    st.sampled_from(SPECIAL),
    st.lists(st.sampled_from([*SIGNS, ",", "a", "é"]), max_size=4).map("".join),
)
GROUPS = [st.sampled_from(["7", "NA", "'=", "=1", '"']), TEXT.filter(GROUP.match)]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "tsv", "parquet", "export"])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_text_of_a_release_is_the_same_one_as_a_list(kind, data, tmp_path_factory):
    """Files of a release in each format, and exports, which stand alone: n-grams, groups and items."""
    texts = data.draw(st.lists(TEXT, min_size=1, max_size=4, unique=True))
    groups = [data.draw(st.one_of(*GROUPS)) for _ in texts]
    grams = [(text, texts[0]) for text in texts]
    lines = pa.array(map(join_tokens, grams))
    count, score = pa.array([2] * len(texts), pa.int32()), pa.array([1.5] * len(texts))
    path = tmp_path_factory.mktemp("lists") / f"list.{'csv' if kind == 'export' else kind}"
    for program, rows, expected in (
        ("set-union", pa.table([texts, score], schema=ITEM_SCHEMA), [(each,) for each in texts]),
        ("ngrams", pa.table([count, lines, score], schema=ROW_SCHEMA), grams),
        (
            "ngrams",
            pa.table([count, groups, lines, score], schema=ROW_SCHEMA.insert(1, GROUP_FIELD)),
            [
                (f"{own}\x1f{one}", f"{own}\x1f{two}")
                for own, (one, two) in zip(groups, grams, strict=True)
            ],
        ),
    ):
        if kind == "export":
            path.write_bytes(csv_text(rows).encode())
        else:
            ((_, written),) = render_parts(PROGRAMS[program], rows, kind, 10)
            path.write_bytes(written)
        assert texts_of(KnownNgrams.from_table(str(path), tokenizer="tokens")) == {*expected}


def test_groups_of_json_lines_are_read_as_in_inputs(tmp_path):
    path = tmp_path / "known.jsonl"
    groups = [7, "US", None, True, 1.5, "", "x" * 300]
    path.write_text("".join(json.dumps({"group": own, "ngram": "a b"}) + "\n" for own in groups))
    known = KnownNgrams.from_table(str(path))
    assert texts_of(known) == {(f"{own}\x1fa", f"{own}\x1fb") for own in ("7", "US")}


def test_tables_of_others_are_taken_as_they_are(tmp_path):
    """Only the columns of a release say that a file has its escapes and its apostrophes."""
    items = ["C:\\temp", "'=1", "\\q"]
    for kind in ("csv", "tsv"):
        path = tmp_path / f"items.{kind}"
        path.write_text("\n".join(["item", *items]))
        known = KnownNgrams.from_table(str(path), tokenizer="tokens")
        assert known.items.words.to_pylist() == sorted(items)


def test_the_same_n_gram_twice_in_lists_counts_once():
    one, two = KnownNgrams.of([*NGRAMS, *NGRAMS[::-1]]), KnownNgrams.of(NGRAMS[3:])
    joined = KnownNgrams.joined([two, one, two])
    assert len(one) == len(joined) == len(NGRAMS)
    assert joined.sha256 == KnownNgrams.of(NGRAMS).sha256 != two.sha256
    assert [each["ngrams"] for each in joined.lists] == [3, 6, 3]


def test_members_that_the_tokenizer_cannot_make_are_left_out_and_counted(tmp_path):
    path = tmp_path / "known.tsv"
    path.write_text("ngram\nnew york\nNew York\nyork\nself-made man\n")
    known = KnownNgrams.from_table(str(path))
    assert texts_of(known) == {("new", "york"), ("york",)}
    assert (known.lists[0]["ngrams"], known.lists[0]["left_out"]) == (2, 2)


def test_a_release_is_verified_and_its_ledger_named(cli, tmp_path):
    notes = tmp_path / "notes.jsonl"
    rows = [(user, text) for user, texts in shared_phrases(60).items() for text in texts]
    lines = [json.dumps({"user": user, "text": " ".join(text)}) for user, text in rows]
    notes.write_text("\n".join(lines))
    plan = ("--epsilon", "20", "--delta", "1e-3", "--max_length", "2")
    given = ("ngrams", "--input", str(notes), *plan)
    first, second = tmp_path / "first", tmp_path / "second"
    assert cli(*given, "--output", str(first)).status == 0
    more = ("--known", str(first), "--known_same_people", "--output", str(second))
    assert cli(*given, *more).status == 0
    (found,) = read_ledger(str(second))["known"]["lists"]
    digest = hashlib.sha256((first / "ledger.json").read_bytes()).hexdigest()
    assert found["sha256"] == digest
    assert (found["kind"], found["same_people"], found["left_out"]) == ("release", True, 0)
    assert cli("report", str(second), "--public", "--output", str(tmp_path / "page.md")).status == 0
    page = (tmp_path / "page.md").read_text()
    assert f"| release | {found['ngrams']} | yes | {digest} |" in page
    assert "whose budget adds to this one" in page
    assert found["ngrams"] == sum(each["released"] for each in read_ledger(str(first))["lengths"])
    account = cli("account", str(second))
    assert account.status == 2
    assert "same people" in account.err
    assert cli("account", str(first), str(second)).status == 0
    part = next(first.glob("ngrams-*"))
    # Beside the release, a file of another one would not be counted.
    hidden = cli(*given, *more[:3], "--known", str(part), "--output", str(tmp_path / "hidden"))
    assert (hidden.status, "--known must name the directory" in hidden.err) == (2, True)
    part.write_bytes(part.read_bytes() + b"\n")
    damaged = cli(*given, "--known", str(first), "--output", str(tmp_path / "third"))
    assert damaged.status != 0
    assert "damaged" in damaged.err


def test_a_file_of_the_input_is_refused_by_path_and_by_content(tmp_path):
    names = ("notes.txt", "public.txt", "other.txt", "table.csv")
    notes, copied, other, table = (tmp_path / name for name in names)
    notes.write_text("to be\n")
    copied.write_text("to be\n")
    other.write_text("or no\n")
    table.write_text("ngram,user,text\nto be,ann,to be\n")
    inputs = [InputFile(n, str(path), path.stat().st_size) for n, path in enumerate((notes, table))]
    for path in (notes, copied, table):
        with pytest.raises(UsageError, match="must not be private data"):
            read_known(KnownLists(known=str(path)), 3, "words", inputs)
    read_known(KnownLists(known=str(other)), 3, "words", inputs)


@pytest.mark.parametrize("known", [KnownNgrams.of([]), KnownNgrams.of([("a", "b", "c", "d")])])
def test_a_list_without_members_of_these_lengths_changes_no_byte(known):
    """Nor does it change the noise, since nothing follows from it."""
    assert root_of(known, PLAN.max_length) is None
    documents = shared_phrases(60)
    assert words_of(list(release(documents, known=known))) == words_of(list(release(documents)))
    plain, empty = (PrivateNgrams(plan=PLAN, run_key=KEY, known=each) for each in (None, known))
    assert len({run_transform(documents, each) for each in (plain, empty)}) == 1


def test_a_list_binds_the_run_key():
    contexts = {key_context(PLAN, "tokens", public=each) for each in ("", *"ab")}
    assert len(contexts) == 3


def test_only_adaptive_takes_lists():
    one_round = NgramsPlan(epsilon=1, delta=1e-6, strategy="one_round")
    with pytest.raises(ValueError, match="`known` must be left out"):
        PrivateNgrams(known=KnownNgrams.of(NGRAMS), plan=one_round)


def test_known_n_grams_need_less_evidence_and_new_ones_are_found_beside_them():
    documents = {
        f"user {i}": [["known", "word"]] * (i % 3 == 0) + [["new", "thing"]] * (i % 3 == 0)
        for i in range(90)
    }
    documents |= {f"more {i}": [[f"rare{i}"]] for i in range(40)}
    known = KnownNgrams.of([("known",), ("word",), ("known", "word")])
    plan = dataclasses.replace(PLAN, epsilon=1.2, max_length=2)
    with_list, without = 0, 0
    for number in range(30):
        key = RunKey(bytes([number]) * 32)
        with_list += len(release(documents, plan, known, key)[0])
        without += len(release(documents, plan, None, key)[0])
    assert with_list > without


def test_the_root_survives_the_coder_and_gives_the_same_sets():
    root = root_of(KnownNgrams.of(NGRAMS), 3)
    coder = BatchCoder(GramSet)
    again = coder.decode(coder.encode(root))
    assert again.words == root.words
    for name in ("known", "known_longer", "known_counts"):
        assert getattr(again.candidates, name).tolist() == getattr(root.candidates, name).tolist()


def walked(known: KnownNgrams, sets: list[dict], length: int) -> set[tuple[str, ...]]:
    """Members of the list of one length, both of whose parts were released."""
    return {
        gram
        for gram in texts_of(known)
        if len(gram) == length and {gram[:-1], gram[1:]} <= {*sets[length - 2]}
    }


@pytest.mark.parametrize("seed", range(6))
def test_known_candidates_and_class_sizes_are_those_of_a_walk_over_the_list(seed):
    """Also of members without parts in the list, and of classes whose candidates are all known."""
    rng = random.Random(seed)
    documents = shared_phrases(60)
    words = sorted({word for texts in documents.values() for text in texts for word in text})
    known = KnownNgrams.of(
        [tuple(rng.choices(words[-8:], k=rng.choice([1, 2, 3, 4]))) for _ in range(300)]
    )
    plan = dataclasses.replace(PLAN, max_length=4, spurious_fraction=0.5, epsilon=20)
    sets = release(documents, plan, known, RunKey(bytes([seed]) * 32))
    released = [*words_of(list(sets)).values()]
    seen = 0
    for previous, length in zip(sets, (2, 3, 4), strict=False):
        expected = walked(known, released, length)
        known_keys = previous.candidates.known
        own = [] if known_keys is None else known_keys.tolist()
        texts = sorted(released[length - 2])
        found = {(*texts[key >> 32], texts[key & 0xFFFFFFFF][-1]) for key in own}
        assert found == expected
        assert len(own) == len(found)
        sizes = class_sizes(previous)
        # Every candidate is in one family, and no class is empty.
        unknown = dataclasses.replace(previous.candidates, known=None)
        bare = class_sizes(dataclasses.replace(previous, candidates=unknown))
        assert all(sizes.values())
        for number, size in bare.items():
            assert sizes.get(number, 0) + sizes.get(number + KNOWN_CLASS, 0) == size
        whole = members(previous, {number: np.arange(size) for number, size in bare.items()})
        for number, keys in whole.items():
            is_known = np.isin(keys, own)
            assert set(class_numbers(previous, keys[is_known])) <= {number + KNOWN_CLASS}
            assert set(class_numbers(previous, keys[~is_known])) <= {number}
        seen += len(own)
    assert seen > 5


def test_known_groups_come_first_and_both_families_share_one_limit():
    sizes = {KNOWN_CLASS + 4: 30, KNOWN_CLASS - 3: 500, 9: 10, 3: 100, -2: 900}
    groups = groups_of(sizes, 100, 1.0)
    families = [all(c > KNOWN_CLASS // 2 for c in group.factors) for group in groups]
    assert families == sorted(families, reverse=True)
    assert [sorted(group.factors) for group in groups] == [
        [KNOWN_CLASS - 3, KNOWN_CLASS + 4],
        [3, 9],
        [-2],
    ]
    # 25 candidates share the limit at most: class 9, alone above known ones of class 4 (12).
    assert prediction(KNOWN_CLASS + 4) == 12
    assert groups[0].factors[KNOWN_CLASS + 4] == 2**16
    assert groups[1].factors == {9: 2**16, 3: 2**16 // 8}
    # With a smaller lead known candidates have a smaller share of what is tolerated.
    alike = groups_of(sizes, 100, 1.0, 2)
    assert prediction(KNOWN_CLASS + 4, 2) == 6
    shares = [own[0].share / own[1].share for own in (groups, alike)]
    assert shares[0] == pytest.approx(8 * shares[1])


# Sizes and released n-grams of a class with new candidates and one with known ones, and the lead.
LEADS = [
    (1_000_000, 10_000, 0, 0, 8),
    (1_000_000, 10_000, 10_000, 100, 0),
    (1_000_000, 10_000, 10_000, 400, 4),
    (1_000_000, 10_000, 10_000, 6_400, 12),
    (1_000_000, 10_000, 1_000, 6_400, 12),
    (1_000_000, 10_000, 40_000, 100, 0),
    # One n-gram tells little.
    (1_000_000, 10, 100, 1, 8),
    (2**61, 2**20, 2**20, 2**10, 12),
]


@pytest.mark.parametrize(("new", "known", "released_new", "released_known", "lead"), LEADS)
def test_the_lead_is_the_ratio_of_released_parts(new, known, released_new, released_known, lead):
    sizes = {-4: new, KNOWN_CLASS - 4: known}
    assert known_lead(sizes, {-4: released_new, KNOWN_CLASS - 4: released_known}) == lead


def test_the_lead_compares_candidates_of_one_class():
    """Known ones that are more frequent because their parts are have none."""
    sizes = {9: 1_000, KNOWN_CLASS + 9: 1_000, -9: 10**6, KNOWN_CLASS - 9: 10}
    released = {9: 700, KNOWN_CLASS + 9: 700, -9: 100}
    assert known_lead(sizes, released) == 0
    # Classes of one family say nothing.
    assert known_lead(sizes | {2: 100, KNOWN_CLASS + 5: 50}, released | {2: 100}) == 0
    assert known_lead({2: 100, KNOWN_CLASS + 5: 50}, {2: 100}) == KNOWN_LEAD


def test_the_lead_of_a_length_follows_from_the_one_before():
    """Half of the pairs are known, whatever pairs the users have."""
    rng = random.Random(5)
    words = [f"w{number}" for number in range(12)]
    documents = {f"user {i}": [rng.choices(words, k=20)] for i in range(300)}
    pairs = [pair for pair in itertools.product(words, repeat=2) if rng.random() < 0.5]
    triples = [(*pair, rng.choice(words)) for pair in pairs for _ in range(3)]
    unlike = KnownNgrams.of([*((word,) for word in words), *pairs, *triples])
    first, second, _ = release(documents, known=unlike)
    assert len(second) > 100
    assert first.candidates.known_lead == KNOWN_LEAD
    assert second.candidates.known_lead <= 1
    assert second.candidates.known is not None
    coder = BatchCoder(GramSet)
    assert coder.decode(coder.encode(second)).candidates.known_lead < KNOWN_LEAD
    stddev = PLAN.held_stddev
    expected = groups_of(class_sizes(second), len(second), stddev, second.candidates.known_lead)
    assert list(counted_classes(second, stddev).groups) == expected
    assert expected != groups_of(class_sizes(second), len(second), stddev)


def test_the_lead_follows_from_what_was_released_and_not_from_what_is_held():
    """One or two users hold each of 600 known pairs, of which none is released, and many each new one.

    The rule of triples is that of the released pairs and of the noisy counts that its groups state.
    """
    rng = random.Random(7)
    words = [f"w{number:02}" for number in range(30)]
    pairs = rng.sample([*itertools.product(words, repeat=2)], 700)
    new, rare = pairs[:100], pairs[100:]
    triples = [(*one, two[1]) for one in new for two in new if one[1] == two[0]]
    documents = {
        f"user {i}": [*rng.sample(new, 30), *rare[2 * i : 2 * i + 2], *rng.sample(triples, 20)]
        for i in range(300)
    }
    known = KnownNgrams.of([*((word,) for word in words), *rare, *triples[::2]])
    first, second, third = release(documents, known=known)
    assert second.rule is not None
    assert third.rule is not None
    sizes = {own.number: own.valid for own in second.rule.classes}

    def lead(grams):
        numbers = class_numbers(first, grams).tolist()
        return known_lead(sizes, {number: numbers.count(number) for number in sizes})

    held = np.array([words.index(a) << 32 | words.index(b) for a, b in pairs])
    assert lead(np.sort(held)) == 3
    assert second.candidates.known_lead == lead(second.keys) == 0
    units = cell_units(PLAN.held_stddev)
    # A group that is not counted states how many candidates it has, without noise.
    cells = [
        round(group.noisy_unheld * 2**40 / units) - 1 if group.noise_stddev else None
        for group in third.rule.groups
    ]
    assert third.rule == rule_of_sizes(
        PLAN,
        3,
        released=len(second),
        sizes=class_sizes(second),
        known_lead=lead(second.keys),
        cells=cells,
    )


@pytest.mark.parametrize("unheld", [1, 300])
@pytest.mark.parametrize(("known", "omega"), [(0, 0.4), (1, 0.5), (2, 0.6), (4, 0.8)])
def test_a_user_keeps_and_pays_by_the_own_words_that_are_known(known, omega, unheld):
    words = ["to", "be", "or", "not"]
    key = RunKey(bytes(32))
    batch = corpus_of([("ann", words)]).batch(key)
    nobodys = [(f"nobody {number}",) for number in range(unheld)]
    listed = KnownNgrams.of([*((word,) for word in words[:known]), *nobodys])
    this = RoundOfLength(plan=PLAN, length=1, number=1, run_key=key)
    sent = contribute(batch, this, Past(released=root_of(listed, PLAN.max_length)))
    (left,) = sent.users.left.tolist()
    # Known words of a short list are not counted.
    paid = 0.03 * known / 4 if unheld > 1 else 0.0
    # Five longer n-grams stand in the text, and a tenth of what is left is the quota.
    spent = (1 - paid) * 0.1 * 4 / (4 + omega * 5)
    assert 1 - left / PLAN.allotment == pytest.approx(paid + spent, rel=1e-5)


def test_lists_that_differ_have_digests_that_differ():
    """Noise would be the same otherwise, and known lists decide what is compared with it."""
    lists = [
        KnownNgrams.of([("a",), ("b",), ("c",), ("d",)]),
        KnownNgrams.of([("a",), ("b",), ("c", "d")]),
        KnownNgrams.of([("a",), ("bc",), ("d",)]),
        KnownNgrams.of([("ab",), ("c",), ("d",)]),
        KnownNgrams.of([("a",), ("b",)]),
        KnownNgrams.of([("a", "b")]),
        # Of the same words and sizes.
        KnownNgrams.of([("a", "b"), ("c", "d")]),
        KnownNgrams.of([("a", "c"), ("b", "d")]),
    ]
    assert len({each.sha256 for each in lists}) == len(lists)
