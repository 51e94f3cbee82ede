"""Exports, each loaded by its own reader or read by its published grammar."""

import csv
import hashlib
import io
import itertools
import json
import math
import random
import re

import arpa
import duckdb
import pandas
import pyarrow as pa
import pyarrow.csv
import pytest
import yaml
from huggingface_hub import DatasetCard
from tokenizers import Tokenizer

from beam_dpne import PublicCounts, join_tokens, read_release, split_ngram
from beam_dpne.bayesian.arpa import MARKS
from beam_dpne.documents.tokenizers import words as split_words
from beam_dpne.elements.rows import from_cell
from beam_dpne.exports.language import KEPT_BACK, is_unbroken
from beam_dpne.exports.writing import KINDS, export
from beam_dpne.lists.public_counts import read_public_counts
from pipelines import more_exports
from tests.support import releases as making
from tests.support.releases import HOSTILE, NOTES

JOINT = {("a", "b"): 0.5, ("a", "a"): 0.2, ("b", "a"): 0.3}
JOINT_COUNTS = [4, 3, 1]
SMALL = {
    **{("see",): 60.0, ("you",): 50.0, ("soon",): 20.0, ("best",): 12.0, ("see", "you"): 40.0},
    **{("you", "soon"): 15.0, ("you", "see"): 10.0, ("see", "you", "soon"): 12.5},
}


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    """Directories of releases by name."""
    folder = tmp_path_factory.mktemp("releases")
    items = {word: 80.0 - number for number, word in enumerate(HOSTILE)}
    public = PublicCounts.of(list(JOINT), JOINT_COUNTS)
    return {
        "counted": making.counted_ngrams(folder / "counted"),
        "small": making.ngrams(folder / "small", SMALL),
        "hostile": making.words(folder / "hostile", tokenizer="tokens", rows_per_part=40),
        "items": making.items(folder / "items", items, tokenizer="item"),
        "joint": making.probabilities(folder / "joint", JOINT, public=public),
        "single": making.ngrams(folder / "single", {("tea",): 9, ("rye",): 7}),
        "empty": making.ngrams(folder / "empty", {}),
    }


@pytest.fixture
def made(releases, tmp_path):
    """Exports a release, and returns the path of the file."""
    counts = zip(map(" ".join, JOINT), JOINT_COUNTS, strict=True)
    public = tmp_path / "public.tsv"
    public.write_text("".join(f"{pair}\t{count}\n" for pair, count in counts))

    def make(name, to, **settings):
        if (name, to) == ("joint", "arpa"):
            settings = {"public": str(public), **settings}
        export(read_release(str(releases[name])), to, str(tmp_path / "file"), **settings)
        return tmp_path / "file"

    return make


def texts_of(releases, name):
    table = read_release(str(releases[name])).table()
    return table.column("item" if "item" in table.column_names else "ngram").to_pylist()


def hash_of(releases, name):
    return hashlib.sha256((releases[name] / "ledger.json").read_bytes()).hexdigest()


# Hugging Face


def test_phrases_become_one_token_and_other_words_stay_alone(made):
    tokenizer = Tokenizer.from_file(str(made("small", "tokenizers")))
    encoded = tokenizer.encode("See you soon,  you  See; the best (see you)")
    expected = ["see you soon", "you see", "[UNK]", "best", "see you"]
    assert encoded.tokens == expected
    assert tokenizer.token_to_id("[UNK]") == 0
    assert tokenizer.token_to_id("[PAD]") == 1


@pytest.mark.parametrize("name", ["small", "hostile"])
def test_every_ngram_is_a_token_whose_text_gives_its_words(made, releases, name):
    tokenizer = Tokenizer.from_file(str(made(name, "tokenizers")))
    # A word that has the name of a special token is this token.
    texts = [text for text in texts_of(releases, name) if text not in ("[UNK]", "[PAD]")]
    tokens = [tokenizer.id_to_token(number) for number in range(2, tokenizer.get_vocab_size())]
    assert tokens == texts
    assert [join_tokens(split_ngram(token)) for token in tokens] == texts


def test_runs_of_blanks_are_one_blank_where_no_word_has_any(tmp_path):
    scores = {("a",): 9, ("B",): 8, ("a", "B"): 7}
    release = making.ngrams(tmp_path / "release", scores, tokenizer="whitespace")
    export(read_release(str(release)), "tokenizers", str(tmp_path / "file"))
    tokenizer = Tokenizer.from_file(str(tmp_path / "file"))
    assert tokenizer.encode("a \t B  b").tokens == ["a B", "[UNK]"]


@pytest.mark.parametrize(
    "text",
    [
        "Don't panic! 'quoted' x2",
        "NAÏVE e\u0301tude ___ _a_ a__b a_'b a''b rock’n’roll",
        "I ❤\ufe0f you, 日本語 3.14 \u0939\u093f\u0928\u094d\u0926\u0940",
        "co\u00adop a\u200c\u200cb a\u200c\u200d. \u0d28\u0d4d\u200d \u200db",
        "don\u200c't I\u0307\u0327 \u202eC’est",
    ],
)
def test_texts_are_split_as_the_tokenizer_of_the_release_does(made, text):
    tokenizer = Tokenizer.from_file(str(made("small", "tokenizers")))
    normal = tokenizer.normalizer.normalize_str(text)
    pieces = [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal)]
    assert pieces == split_words(pa.array([text])).to_pylist()[0]


# ARPA


def loaded_arpa(path):
    (model,) = arpa.loads(path.read_text())
    return model


def test_an_arpa_model_has_the_shares_of_the_weights(made):
    model = loaded_arpa(made("small", "arpa"))
    assert model.p(("see",)) == pytest.approx(60 / 142, rel=1e-5)
    shares = (1 - KEPT_BACK) * 15 / 25 + KEPT_BACK * 20 / 142
    assert model.p(("you", "soon")) == pytest.approx(shares, rel=1e-5)
    for context in [
        (),
        *itertools.product(["see", "you", "soon", "best"], repeat=1),
        ("see", "you"),
    ]:
        total = sum(model.p((*context, word)) for word in ("see", "you", "soon", "best"))
        assert total == pytest.approx(1, rel=1e-5), context


def test_a_gram_whose_end_was_not_released_changes_no_probability(tmp_path):
    scores = {("a",): 3, ("b",): 2, ("c",): 1, ("a", "b"): 5, ("a", "b", "c"): 4}
    release = making.ngrams(tmp_path / "release", scores)
    export(read_release(str(release)), "arpa", str(tmp_path / "model"))
    model = loaded_arpa(tmp_path / "model")
    assert model.p(("b", "c")) == pytest.approx(1 / 6, rel=1e-5)
    assert model.p(("a", "b", "c")) == pytest.approx(1 - KEPT_BACK + KEPT_BACK / 6, rel=1e-5)
    for context in (("a",), ("b",), ("a", "b")):
        total = sum(model.p((*context, word)) for word in "abc")
        assert total == pytest.approx(1, rel=1e-5), context


def share(weights, gram):
    """The probability of the last word of an n-gram after the others, by the formula of the page."""
    context, single = gram[:-1], [weight for each, weight in weights.items() if len(each) == 1]
    if not context:
        return weights[gram] / sum(single)
    following = {each: weight for each, weight in weights.items() if each[:-1] == context}
    if not following:
        return share(weights, gram[1:])
    own = following.get(gram, 0) / sum(following.values())
    return (1 - KEPT_BACK) * own + KEPT_BACK * share(weights, gram[1:])


def queries(path):
    """N-grams of the words of a model, of its lengths and one more, many of which it does not list."""
    listed = [line.split("\t")[1] for line in path.read_text().split("\n") if "\t" in line]
    words = [text for text in listed if " " not in text and text not in MARKS][:12]
    rng = random.Random(1)
    drawn = [tuple(rng.choices(words, k=1 + turn % 4)) for turn in range(200) if words]
    return drawn + [tuple(text.split(" ")) for text in listed if text not in MARKS]


def test_queries_of_a_model_give_the_shares_of_its_weights(made):
    path = made("small", "arpa")
    model = loaded_arpa(path)
    for gram in queries(path):
        assert model.p(gram[-3:]) == pytest.approx(share(SMALL, gram[-3:]), rel=1e-5), gram


@pytest.mark.readers
@pytest.mark.parametrize("name", ["small", "counted", "hostile", "joint", "single", "empty"])
def test_kenlm_reads_every_model_and_answers_as_the_package_arpa(made, name):
    import kenlm

    path = made(name, "arpa")
    own = loaded_arpa(path)
    model = kenlm.Model(str(path))
    assert name == "empty" or queries(path)
    for gram in queries(path):
        *_, (log, _, is_unknown) = model.full_scores(" ".join(gram), bos=False, eos=False)
        assert not is_unknown, gram
        assert log == pytest.approx(own.log_p(gram[-model.order :]), abs=1e-4), gram


@pytest.mark.parametrize("name", ["small", "single", "empty"])
def test_a_model_has_two_lengths_at_least(made, name):
    assert "\nngram 2=" in made(name, "arpa").read_text()


def test_no_word_becomes_a_mark_and_no_white_space_is_inside_a_word(tmp_path):
    words = [
        "tea",
        "<s>",
        "</s>",
        "<unk>",
        "<UNK>",
        "a\x85b",
        "a\u3000b",
        "a\u200bb",
        "\ufeffa",
        "a b",
    ]
    release = making.ngrams(
        tmp_path / "release", {(word,): 9 for word in words}, tokenizer="tokens"
    )
    written = export(read_release(str(release)), "arpa", str(tmp_path / "model"))
    assert sorted(written.left_out.values()) == [4, 4]
    lines = (tmp_path / "model").read_text().split("\n")
    logs = {line.split("\t")[1]: float(line.split("\t")[0]) for line in lines if "\t" in line}
    assert {word for word, log in logs.items() if log > -9} == {"tea", "a\\sb"}
    assert {word for word, log in logs.items() if log == -99} == {"<s>", "</s>", "<unk>"}


def test_hostile_words_round_trip_through_arpa(made, releases):
    path = made("hostile", "arpa")
    model = loaded_arpa(path)
    readable = [
        text
        for text in texts_of(releases, "hostile")
        if is_unbroken(text.replace(" ", "")) and MARKS.isdisjoint(split_ngram(text))
        if "\ufeff" not in text
    ]
    assert "ok =1+1" in readable
    assert "New\\sYork ok" in readable
    assert all(model.p(tuple(text.split(" "))) > 1e-6 for text in readable)
    grams = {line.split("\t")[1] for line in path.read_text().split("\n") if "\t" in line}
    assert grams - {"<s>", "</s>", "<unk>"} == set(readable) - {"<s>", "</s>", "<unk>"}


def test_rows_that_a_line_cannot_hold_are_counted(releases, tmp_path):
    rendered = export(read_release(str(releases["hostile"])), "arpa", str(tmp_path / "model"))
    broken = [word for word in HOSTILE if re.search("[\x00\x1e\x07\u2028\xa0\ufeff]", word)]
    marks = [word for word in HOSTILE if word in MARKS]
    assert sorted(rendered.left_out.values()) == [3 * len(marks), 3 * len(broken)]


def test_the_model_of_probabilities_sums_to_1_with_unknown_words(made):
    path = made("joint", "arpa")
    model = loaded_arpa(path)
    lines = [line.split("\t") for line in path.read_text().splitlines() if "\t" in line]
    listed = {line[1]: line for line in lines}
    unknown = 10 ** float(listed["<unk>"][0])
    assert 0.01 < unknown < 0.5
    assert model.p(("a",)) + model.p(("b",)) + unknown == pytest.approx(1, rel=1e-5)
    left = 10 ** float(listed["a"][2]) * unknown
    assert model.p(("a", "a")) + model.p(("a", "b")) + left == pytest.approx(1, rel=1e-5)
    assert model.p(("a", "b")) > model.p(("a", "a")) > model.p(("b", "b"))
    assert not {pair for pair in listed if " " in pair} - set(map(" ".join, JOINT))


def test_a_model_of_probabilities_has_a_whole_public_text(tmp_path):
    text = tmp_path / "public.txt"
    text.write_text("see you soon\nsee you there\nsee you soon then\n")
    public = read_public_counts(str(text), length=2, vocabulary_size=2)
    pairs = {("see", "you"): 0.6, ("you", "soon"): 0.4}
    release = making.probabilities(tmp_path / "release", pairs, public=public, vocabulary_size=2)
    export(read_release(str(release)), "arpa", str(tmp_path / "model"), public=str(text))
    model = loaded_arpa(tmp_path / "model")
    assert {"then", "there"} <= set(model.vocabulary())
    written = (tmp_path / "model").read_text()
    assert "you there" in written
    # A phrase is more likely than what the words of its end are without their context.
    assert model.p(("you", "soon")) > 2 * model.p(("soon",))


# Android


def read_combined(text):
    """A reader of the combined format by its rules: header, words, and bigrams below words."""
    header, *lines = re.split("\r\n|\r|\n", text.removesuffix("\n"))
    # The test by which LatinIME's tools know such a file.
    assert re.fullmatch("dictionary=[^:]+(:[^=]+=[^:]+)*", header)
    attributes = [item.split("=") for item in header.split(",")]
    assert all(len(item) == 2 for item in attributes)
    words = {}
    current = ""
    for line in lines:
        fields = [field.split("=", 1) for field in line.strip().split(",")]
        assert all(len(field) == 2 for field in fields)
        (kind, word), (key, value) = fields
        assert key == "f"
        assert 1 <= int(value) <= 255
        if line.startswith("  bigram="):
            words[current][1][word] = int(value)
        else:
            assert line.startswith(" word=")
            assert kind == "word"
            assert word not in words
            current = word
            words[current] = (int(value), {})
    return dict(attributes), words


def listed(release, tmp_path, locale="en"):
    """The word list of a release, written by the program."""
    assert not more_exports.main([str(release), str(tmp_path / "words"), "--locale", locale])
    return (tmp_path / "words").read_text()


def suggested(release, tmp_path):
    """The documents for Elasticsearch of a release, written by the program."""
    assert not more_exports.main([str(release), str(tmp_path / "suggestions")])
    return bulk(tmp_path / "suggestions")


def test_a_keyboard_gets_words_with_logarithmic_frequencies_and_pairs(releases, tmp_path, capsys):
    attributes, words = read_combined(listed(releases["small"], tmp_path, "en_GB"))
    assert attributes["dictionary"] == "main:en_gb"
    assert attributes["locale"] == "en_GB"
    assert attributes["ledger_sha256"] == hash_of(releases, "small")
    assert words["see"][0] == round(255 + math.log(60 / 142, 1.15))
    assert words["you"][1] == {
        "soon": round(255 + math.log(15 / 25, 1.15)),
        "see": words["see"][0],  # More than 255 + log(10 / 25) to base 1.15, which is 248.
    }
    assert list(words) == ["see", "you", "soon", "best"]
    assert capsys.readouterr().err == "left out: 1 n-grams of more than two words\n"
    assert read_combined(listed(releases["empty"], tmp_path / "none"))[1] == {}
    assert suggested(releases["empty"], tmp_path / "none") == []


@pytest.mark.parametrize("locale", ["", "en,version=9"])
def test_a_keyboard_needs_a_locale(releases, tmp_path, capsys, locale):
    with pytest.raises(SystemExit):
        listed(releases["small"], tmp_path, locale)
    assert "locale must be a locale like en or pt_BR" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["hostile", "items"])
def test_a_keyboard_gets_the_hostile_words_that_the_format_holds(releases, tmp_path, name):
    _, words = read_combined(listed(releases[name], tmp_path))
    held = {word for word in HOSTILE if word and "," not in word and is_unbroken(word)}
    held -= {"x" * 40_000}
    assert set(words) - {"ok"} == held
    if name == "hostile":
        assert set(words["ok"][1]) == held
        # A reader of pairs needs both words.
        assert all(set(pairs) <= set(words) for _, pairs in words.values())


# Elasticsearch


def bulk(path):
    """The documents of a file for _bulk, by id, under the rules of its interface."""
    text = path.read_bytes().decode()
    assert not text or text.endswith("\n")
    lines = [json.loads(line) for line in text.split("\n")[:-1]]
    documents = {}
    for action, document in zip(lines[::2], lines[1::2], strict=True):
        (index,) = action.values()
        assert set(action) == {"index"}
        assert set(index) == {"_id"}
        assert len(index["_id"].encode()) <= 512
        weight, typed = document["suggest"]["weight"], document["suggest"]["input"]
        assert type(weight) is int
        assert 0 <= weight < 2**31
        assert typed.strip()
        assert not re.search("[\x00\x1e\x1f]", typed)
        documents[index["_id"]] = document
    assert len(documents) == len(lines) // 2
    return list(documents.values())


@pytest.mark.parametrize("name", ["small", "hostile", "items", "joint"])
def test_suggestions_hold_all_rows_that_a_completion_field_takes(releases, tmp_path, name):
    documents = suggested(releases[name], tmp_path)
    key = "item" if name == "items" else "ngram"
    texts = texts_of(releases, name)
    refused = [text for text in texts if re.search("[\x00\x1e\x1f]", text) or not text.strip()]
    if key == "ngram":
        refused += [text for text in ("\\e", "\\s", "\u2028", "\xa0") if text in texts]
    assert [each[key] for each in documents] == [text for text in texts if text not in refused]
    for each in documents:
        typed = each["suggest"]["input"]
        assert typed == (each[key] if key == "item" else " ".join(split_ngram(each[key])))
        assert each["ledger_sha256"] == hash_of(releases, name)


def test_the_heaviest_suggestion_of_each_length_weighs_a_million(releases, tmp_path):
    documents = suggested(releases["small"], tmp_path)
    weights = {each["ngram"]: each["suggest"]["weight"] for each in documents}
    assert weights["see"] == weights["see you"] == weights["see you soon"] == 1_000_000
    assert weights["you soon"] == 375_000


# Tables


@pytest.mark.parametrize("name", ["small", "hostile", "items", "joint"])
def test_a_csv_has_the_rows_and_no_formula(made, releases, name):
    text = made(name, "csv").read_bytes().decode()
    headings, *rows = csv.reader(io.StringIO(text, newline=""))
    table = read_release(str(releases[name])).table()
    assert headings == table.column_names
    place = headings.index("item" if name == "items" else "ngram")
    cells = [row[place] for row in rows]
    assert not any(cell[:1] in tuple("=+-@\t\r＝＋－＠") and cell for cell in cells)
    read = [cell.removeprefix("'") for cell in cells]
    assert [from_cell(headings[place], cell) for cell in read] == texts_of(releases, name)
    assert len(text.splitlines()) == len(table) + 1
    number = "probability" if name == "joint" else "score"
    values = [float(row[headings.index(number)]) for row in rows]
    assert values == table.column(number).to_pylist()


@pytest.mark.parametrize("name", ["small", "counted", "hostile", "items", "joint"])
def test_other_readers_find_the_same_rows_in_a_csv(made, releases, name):
    path, rows = made(name, "csv"), read_release(str(releases[name])).table()
    options = pa.csv.ParseOptions(newlines_in_values=True)
    duck = duckdb.read_csv(str(path), header=True, all_varchar=True, quotechar='"', escapechar='"')
    for found in (pa.csv.read_csv(path, parse_options=options), duck.to_arrow_table()):
        assert (found.column_names, len(found)) == (rows.column_names, len(rows))
        column = "item" if name == "items" else "ngram"
        read = [str(text).removeprefix("'") for text in found.column(column).to_pylist()]
        assert [from_cell(column, cell) for cell in read] == texts_of(releases, name)


# Data card


@pytest.mark.parametrize("name", ["small", "hostile", "items", "joint", "empty"])
def test_the_hub_reads_a_card(made, releases, name):
    text = made(name, "card", license="cc-by-4.0").read_text()
    read = DatasetCard(text)
    data = read.data.to_dict()
    release = read_release(str(releases[name]))
    assert data["license"] == "cc-by-4.0"
    assert data["pretty_name"] == NOTES.title
    (config,) = data["configs"]
    assert config["data_files"] == [
        {"split": "train", "path": [part.name for part in release.parts]}
    ]
    assert data["differential_privacy"]["ledger_sha256"] == hash_of(releases, name)
    assert data["differential_privacy"]["delta"] == release.ledger["plan"]["delta"]
    assert yaml.safe_load(text.split("---\n")[1]) == data
    assert all(part.sha256 in read.text for part in release.parts)
    assert len(release.ledger["not_protected"]) == read.text.split("## Rows")[0].split(
        "protected\n"
    )[1].count("\n- ")


def test_a_card_escapes_the_notes_and_holds_no_row(made):
    text = made("hostile", "card").read_text()
    body = text.split("---\n", 2)[2]
    assert "# Phrases \\<b\\>, a = 1\n" in body
    assert not any(word in body for word in HOSTILE if len(word) > 8)
    assert "license" not in text


def test_a_card_of_tabs_says_how_to_read_them(tmp_path):
    release = making.ngrams(tmp_path / "release", SMALL, output_format="tsv")
    export(read_release(str(release)), "card", str(tmp_path / "README.md"))
    text = (tmp_path / "README.md").read_text()
    config = yaml.safe_load(text.split("---\n")[1])["configs"][0]
    path = release / config["data_files"][0]["path"][0]
    frame = pandas.read_csv(path, sep=config["sep"], quoting=config["quoting"])
    assert frame["ngram"].tolist() == texts_of({"x": release}, "x")


# All kinds


@pytest.mark.parametrize("to", list(KINDS))
def test_an_empty_release_is_exported(made, releases, to):
    path = made("empty", to)
    if to == "tokenizers":
        assert Tokenizer.from_file(str(path)).get_vocab_size() == 2
    elif to == "arpa":
        assert len(loaded_arpa(path).vocabulary()) == 3
    elif to == "csv":
        assert path.read_text() == "length,ngram,score\n"
    else:
        assert hash_of(releases, "empty") in path.read_text()


@pytest.fixture(scope="module")
def counted(releases):
    """The rows of a release with numbers of users, in its order."""
    rows = read_release(str(releases["counted"])).table().to_pylist()
    # The order by users is not that by scores.
    assert sorted(rows, key=lambda row: (row["length"], -row["score"])) != rows
    return rows


def weights_of(counted, length):
    """The users of each n-gram of a length; 0 counts as the least number above it."""
    least = min(row["users"] for row in counted if row["users"])
    return {row["ngram"]: row["users"] or least for row in counted if row["length"] == length}


def test_an_arpa_model_has_probabilities_from_numbers_of_users(made, counted):
    model = loaded_arpa(made("counted", "arpa"))
    users = weights_of(counted, 1)
    for word, number in users.items():
        assert model.p((word,)) == pytest.approx(number / sum(users.values()), rel=1e-4)
    pairs = weights_of(counted, 2)
    rarest = list(pairs)[-1]
    history, word = rarest.split(" ")
    following = [number for pair, number in pairs.items() if pair.startswith(f"{history} ")]
    # A context after which some word is missing keeps a part for it.
    assert len(following) < len(users)
    share = (1 - KEPT_BACK) * pairs[rarest] / sum(following) + KEPT_BACK * model.p((word,))
    assert model.p((history, word)) == pytest.approx(share, rel=1e-4)


def test_suggestions_weigh_as_much_as_they_have_users(releases, tmp_path, counted):
    documents = suggested(releases["counted"], tmp_path)
    weights = [number for length in (1, 2, 3) for number in weights_of(counted, length).values()]
    assert [each["suggest"]["weight"] for each in documents] == weights
    for row, document in zip(counted, documents, strict=True):
        assert {name: document[name] for name in row} == row
