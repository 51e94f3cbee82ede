"""Masks, lists of words and separators: each text alone, in linear time, and bound to the key."""

import csv
import functools
import gzip
import hashlib
import json
import pickle
import time
import unicodedata

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_dpne.documents.folding import FOLDS
from beam_dpne.documents.masks import KEPT, MASK_NAMES, MASKS, TextRules, advice
from beam_dpne.documents.run_keys import key_context, require_identified, tokenizer_identity
from beam_dpne.documents.tokenizers import cut_at_borders, tokenize, whitespace
from beam_dpne.errors import InputError, TokenizerError, UsageError
from beam_dpne.jobs import parameters
from beam_dpne.lists.left_out import read_stop_list
from beam_dpne.lists.public_counts import count_text
from beam_dpne.ngrams.plan import NgramsPlan
from beam_dpne.release.reading import read_ledger, read_release

PLAN = NgramsPlan(epsilon=8, delta=1e-5, max_length=3)
ALL = tuple(MASKS)
PRONE = "a@.1-_:/w é東@。'%+ \n"


def pieces_of(rules: TextRules, text: str) -> list[list[str]]:
    users, tokens = cut_at_borders(pa.array(["ann"]), tokenize(rules, pa.array([text])))
    assert users.to_pylist() == ["ann"] * len(tokens)
    return [piece for piece in tokens.to_pylist() if piece]


@pytest.mark.parametrize(
    ("mask", "text", "expected"),
    [
        ("emails", "mail ann.b+c@example.org, or bob", [["mail"], ["or", "bob"]]),
        ("emails", "jose\u0301@exämple.org root@localhost now", [["now"]]),
        ("emails", "HEAD@{1} a@ @b foo", [["head", "1", "a", "b", "foo"]]),
        ("urls", "see http://x.org/a?b=1, and www.foo.com", [["see"], ["and"]]),
        ("urls", "on github.com/ann/x or example.org or v1.2/x", None),
        ("urls", "请看https://example.com/a，谢谢", [["请看"], ["谢谢"]]),
        ("mentions", "@ann and bob@x.org, hi @a.b@c.social!", [["and", "bob", "x", "org", "hi"]]),
        ("numbers", "call +1 (555) 123-4567 now", [["call"], ["now"]]),
        ("numbers", "covid19 x2 3fa9c1d Größe2 ½ １２３ ok", [["ok"]]),
        ("numbers", "在2024年 twenty", [["在"], ["年", "twenty"]]),
        ("emails", "至 ａｎｎ＠ｅｘａｍｐｌｅ．ｏｒｇ，bob@ｘ.org now", [["至"], ["now"]]),
        ("mentions", "谢谢＠ann 和 ＠小明", [["谢谢"], ["和"]]),
        ("emails", "to a\u00adnn\u2060@ex\u200cample\u200d.o\ufeffrg now", [["to"], ["now"]]),
        ("urls", "see ht\u00adtps:/\u2060/x.o\u200erg/a now", [["see"], ["now"]]),
        ("mentions", "hi @\u200eann\u200d\u00adb now", [["hi"], ["now"]]),
        ("numbers", "a x\u00ad2\u2060y x\u200d2\u200cy b", [["a"], ["b"]]),
        (
            "urls",
            "见ｈｔｔｐｓ：／／ｅｘ．ｏｒｇ／ａ，谢谢 ｗｗｗ．ｘ．ｏｒｇ end",
            [["见"], ["谢谢"], ["end"]],
        ),
        ("html", "a <b>fi</b>ne<br/>day<p class='x > y'>AT&amp;T &#x1F600; don&rsquo;t", None),
        ("html", "x <3 y, a < b <!-- c --> d <script>e()</script>f<!doctype html>g <i", None),
        ("html", "&lt;br&gt; mail &#97;nn@x.org", [["br", "mail", "ann", "x", "org"]]),
    ],
)
def test_each_mask_leaves_out_what_the_page_says(mask, text, expected):
    if expected is None:
        expected = {
            "on": [["on"], ["or", "example", "org", "or", "v1", "2", "x"]],
            "a": [["a", "fine"], ["day"], ["at", "t", "don't"]],
            "x": [["x", "3", "y", "a", "b"], ["d"], ["f"], ["g", "i"]],
        }[text.split()[0]]
    assert pieces_of(TextRules(mask=(mask,)), text) == expected


EMOJI = [
    "❤\ufe0f",
    "👩\u200d👩\u200d👧",
    "👍🏽",
    "🇩🇰",
    "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "❤",
]


@pytest.mark.parametrize("name", ["words", "unicode_words", "icu_words", "whitespace"])
def test_emoji_stay_one_word_and_no_mask_breaks_them(name):
    rules = TextRules(tokenizer=name, keep=("emoji",), mask=ALL)
    text = "so".join(EMOJI)
    expected = [each for emoji in EMOJI for each in (emoji, "so")][:-1]
    assert pieces_of(rules, text) == [expected]
    # Numbers, addresses and mentions stand right beside them.
    for beside in ("2nd", "ann@x.org", "@ann", "www.x.org/a"):
        masked = [pieces_of(rules, f"{emoji}{beside} {emoji}") for emoji in EMOJI]
        assert masked == [[[emoji], [emoji]] for emoji in EMOJI]
    assert pieces_of(TextRules(tokenizer=name, keep=("emoji",)), "1\ufe0f\u20e3\0a") == [
        ["1\ufe0f\u20e3", "a"]
    ]


@pytest.mark.parametrize(
    ("rules", "text", "expected"),
    [
        ({}, "#Tea @Ann", [["tea", "ann"]]),
        (
            {"keep": ("hashtags",)},
            "#Cafe\u0301Zu! C#x #1 ＃茶 @Ann",
            [["#cafézu", "c", "x", "1", "#茶", "ann"]],
        ),
        ({"keep": ("mentions",)}, "ask @Ann.B, ＠bob; a@b", [["ask", "@ann.b", "@bob", "a", "b"]]),
        ({"keep": ("hashtags",), "tokenizer": "whitespace"}, "(#Tea) b", [["(", "#Tea", ")", "b"]]),
        ({"keep": ("hashtags",), "mask": ("mentions",)}, "#a @b #c", [["#a"], ["#c"]]),
        ({"keep": ("hashtags",), "stop_list": ("#a", "b c")}, "#A d b #a b c", [["d", "b"]]),
        (
            {"keep": ("hashtags",), "stop_list": ("#co\u00adld",)},
            "#te\u00ada @\u200ea #cold",
            [["#tea", "a"]],
        ),
        ({"fold": ("apostrophes",)}, "don´t don`t don‘t donʼt don＇t don’t", [["don't"] * 6]),
        ({"fold": ("width",)}, "ＡＢ　１ ｶﾞ ²ﬁ", [["ab", "1", "ガ", "²ﬁ"]]),
        ({"fold": ("compatibility",)}, "ＡＢ１ ﬁsh x² ㎏", [["ab1", "fish", "x2", "kg"]]),
        ({"fold": ("case",)}, "Straße STRASSE ΌΔΟΣ", [["strasse", "strasse", "όδοσ"]]),
        ({"fold": ("width",), "mask": ("emails",), "tokenizer": "item"}, "ａ＠ｂ．ｃ", []),
        (
            {"fold": ("case",), "tokenizer": "item", "item_separator": ";"},
            "Tea; TEA",
            [["tea", "tea"]],
        ),
        ({"fold": ("case",), "stop_list": ("STRASSE",)}, "eine Straße", [["eine"]]),
    ],
)
def test_the_operator_chooses_what_is_folded_and_what_stays_one_word(rules, text, expected):
    assert pieces_of(TextRules(**rules), text) == expected


def test_lists_of_tokens_are_folded_too():
    lists = pa.array([["ＡＢ", "Don´t"], []])
    rules = TextRules(tokenizer="tokens", fold=FOLDS)
    assert tokenize(rules, lists.slice(0)).to_pylist() == [["ab", "don't"], []]


@given(st.text(st.characters(categories=["L", "M", "N", "P", "S", "Zs", "Cf"])))
def test_a_text_and_its_compatibility_forms_have_the_same_folded_words(text):
    rules = TextRules(fold=("compatibility",))
    forms = [unicodedata.normalize(form, text) for form in ("NFC", "NFD", "NFKC", "NFKD")]
    first, *others = tokenize(rules, pa.array(forms)).to_pylist()
    assert others == [first] * 3


def test_check_names_tags_and_entities_and_quotes_none():
    plain = ["a < b > c", "x <3 y", "AT&T", "R&D; x", "no &such thing"] * 20
    assert advice(pa.array(plain), "words") == []
    for markup in (
        "canary<br>",
        "canary &amp; b",
        "<p class='x'>canary",
        "caf&eacute;",
        "it&#39;s",
    ):
        (note,) = advice(pa.array([*plain[:99], markup]), "words")
        assert "--mask html" in note
        assert "canary" not in note


def test_check_names_escapes_and_lists_that_are_texts():
    plain = ["see [1] and [2]", r"C:\notes", "[sic] it's", "[]", "['a"] * 20
    assert advice(pa.array(plain), "words") == []
    (note,) = advice(pa.array([*plain[:99], r"the end\nof it"]), "words")
    assert "export the texts as JSON or Parquet" in note
    lists = [str(["to", "be"]), str(["it's", "all"]), str(["a"])]
    (note,) = advice(pa.array(lists), "words")
    assert "take --tokenizer tokens" in note


def test_the_first_of_the_masks_that_begin_at_one_place_counts():
    text = "12.ann@x.org ftp://ann@x.org/1 a@b@c end"
    assert pieces_of(TextRules(mask=ALL), text) == [["end"]]


@given(st.lists(st.text(PRONE, max_size=30), max_size=6), st.sampled_from(["words", "whitespace"]))
def test_texts_are_masked_alone_and_nothing_that_is_left_has_a_match(texts, name):
    rules = TextRules(tokenizer=name, mask=ALL, stop_list=("a", "a w"))
    whole = tokenize(rules, pa.array(texts, pa.string())).to_pylist()
    assert whole == [tokenize(rules, pa.array([text])).to_pylist()[0] for text in texts]
    left = {token for tokens in whole for token in tokens if token is not None}
    assert not any(token == "a" or any(sign.isnumeric() for sign in token) for token in left)
    both = zip(whole, texts, strict=True)
    assert all(token in text for tokens, text in both for token in filter(None, tokens))


@pytest.mark.parametrize(
    "unit",
    [
        *("a", "a@", "@a", "www.", "a://", "1a", "a.", "@a@b", "x.y/", "a1 "),
        *("<a ", "<a x='", "<!--", "<i><!--", "</a", "<script>", "&", "&#x", "❤\u200d", "#1", "＠"),
    ],
)
def test_masks_take_time_in_proportion_to_a_hostile_text(unit):
    def seconds(size: int) -> float:
        text = pa.array([(unit * size)[:size]])
        start = time.process_time()
        TextRules(mask=MASK_NAMES, keep=("emoji", "hashtags"), fold=FOLDS)(text)
        return time.process_time() - start

    seconds(2**12)
    # Sixteen times as much text: a quadratic pattern would take 256 times as long.
    small, large = min(seconds(2**14) for _ in range(3)), seconds(2**18)
    assert large < 60 * small + 0.2


def test_phrases_of_the_list_are_split_like_texts_and_stay_within_a_text():
    rules = TextRules(stop_list=("John SMITH", "the", "new york city"))
    assert pieces_of(rules, "ask john smith of the new york city") == [["ask"], ["of"]]
    assert pieces_of(rules, "john new york smith") == [["john", "new", "york", "smith"]]
    two = tokenize(rules, pa.array(["call john", "smith"])).to_pylist()
    assert two == [["call", "john"], ["smith"]]
    chinese = TextRules(tokenizer="unicode_words", stop_list=("北京",))
    assert pieces_of(chinese, "在北京好") == [["在"], ["好"]]


def test_items_are_left_out_as_a_whole():
    rules = TextRules(tokenizer="item", item_separator=";", mask=("emails",), stop_list=("Milk",))
    assert pieces_of(rules, " green tea;;Milk; x ann@a.b ;milk") == [["green tea"], ["milk"]]
    lists = pa.array([["to ann@a.b", "to be"], []])
    masked = TextRules(tokenizer="tokens", mask=("emails",))
    assert tokenize(masked, lists).to_pylist() == [[None, "to be"], []]


def test_a_null_of_an_own_tokenizer_is_a_border_and_a_null_in_a_list_of_tokens_an_error():
    def sentences(texts: pa.Array) -> pa.ListArray:
        return pa.array([["a", None, "b"] for _ in texts], pa.list_(pa.string()))

    assert tokenize(sentences, pa.array(["x"])).to_pylist() == [["a", None, "b"]]
    public = count_text([pa.array(["to be 1 to be"])], length=2, tokenizer=TextRules(mask=ALL))
    assert public.texts().to_pylist() == ["to be"]
    with pytest.raises(TokenizerError, match="null tokens"):
        tokenize(TextRules(tokenizer="tokens", mask=ALL), pa.array([["a", None]]))


def test_errors_of_an_own_tokenizer_quote_nothing():
    def explode(texts: pa.Array) -> pa.ListArray:
        raise TokenizerError(texts.to_pylist())

    with pytest.raises(TokenizerError, match="raised TokenizerError") as caught:
        tokenize(TextRules(tokenizer=explode, mask=ALL), pa.array(["canary"]))
    assert "canary" not in str(caught.value)


def test_keys_are_bound_to_all_rules_and_to_the_tokenizer():
    folding = TextRules(tokenizer="item", fold=("case",))
    assert unicodedata.unidata_version in tokenizer_identity(folding)["version"]
    each = [
        TextRules(mask=("emails",)),
        TextRules(mask=ALL),
        TextRules(tokenizer="whitespace", mask=ALL),
        TextRules(mask=ALL, stop_list=("a",)),
        TextRules(mask=ALL, stop_list=("b",)),
        TextRules(tokenizer="item", item_separator=";"),
        TextRules(tokenizer="item", item_separator=","),
        TextRules(mask=MASK_NAMES),
        TextRules(fold=("width",)),
        TextRules(fold=("case",)),
        TextRules(keep=("emoji",)),
        TextRules(keep=("emoji", "hashtags")),
    ]
    contexts = {key_context(PLAN, rules) for rules in ["words", *each]}
    assert len(contexts) == 1 + len(each)
    same = TextRules(mask=("emails",)), pickle.loads(pickle.dumps(each[0]))
    assert {key_context(PLAN, rules) for rules in same} == {key_context(PLAN, each[0])}
    assert tokenizer_identity(each[0])["name"] == "words"
    require_identified(each[0])
    assert pa.__version__ in tokenizer_identity(each[0])["version"]
    own = functools.partial(whitespace)
    with pytest.raises(ValueError, match="attribute `version`"):
        require_identified(TextRules(tokenizer=own, mask=ALL))
    # Of one name, and with other tokens: their noise must differ.
    contexts = set()
    for version in "12":
        vars(own).update(tokenizer_name="own", version=version)
        contexts.add(key_context(PLAN, TextRules(tokenizer=own, mask=ALL)))
    assert len(contexts) == 2


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"mask": ("names",)}, "`mask` must be one of"),
        ({"fold": ("accents",)}, "`fold` must be one of"),
        ({"keep": ("names",)}, "`keep` must be one of"),
        (
            {"mask": ("html",), "tokenizer": "item"},
            "mask html and `keep` must be given with a tokenizer of",
        ),
        (
            {"keep": ("emoji",), "tokenizer": "tokens"},
            "mask html and `keep` must be given with a tokenizer of",
        ),
        ({"keep": ("mentions",), "mask": ("mentions",)}, "must not both have mentions"),
        ({"item_separator": ";"}, "`item_separator` must be given with the tokenizer item"),
        (
            {"stop_list": ("a", "...")},
            "`stop_list` must have a word and no line's end in each entry",
        ),
        # Else it would have the digest of two entries, and one key the noise of both.
        ({"stop_list": ("a\nb",)}, "`stop_list` must have a word and no line's end in each entry"),
    ],
)
def test_rules_that_cannot_hold_are_refused(rules, said):
    with pytest.raises(ValueError, match=said):
        TextRules(**rules)


def test_a_list_is_read_line_by_line_and_must_be_text(tmp_path):
    path = tmp_path / "stop.txt"
    path.write_bytes("\ufeffJohn Smith \r\n\r\nÉ\nJohn Smith\n".encode())
    assert read_stop_list(str(path)) == ("John Smith", "É")
    for content, kind, said in (
        (b"\n", UsageError, "`stop_list` must be"),
        (b"a" * (2**20 + 1), UsageError, "`stop_list` must be"),
        (b"\xff\n", InputError, "is not UTF-8"),
    ):
        path.write_bytes(content)
        with pytest.raises(kind, match=said):
            read_stop_list(str(path))


def test_a_run_and_its_evaluation_leave_out_the_same(cli, tmp_path):
    assert parameters.MASKS == MASK_NAMES
    assert parameters.FOLDS == FOLDS
    assert tuple(KEPT) == parameters.KEPT
    text = "please write to Max@mustermann.de or ask John Smith about invoice 17"
    lines = [json.dumps({"user": f"u{i}", "text": text}) for i in range(300)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    (tmp_path / "stop.txt").write_text("john smith\n")
    (tmp_path / "other.txt").write_text("john\n")
    budget = (
        "--epsilon",
        10,
        "--delta",
        1e-4,
        "--max_length",
        3,
        "--quiet",
        "--spurious_fraction",
        1e-9,
    )
    given = ("--input", tmp_path / "a.jsonl")
    rules = ("--mask", "numbers,emails", "--stop_list", tmp_path / "stop.txt")
    rules += ("--fold", "apostrophes", "--keep", "emoji")
    own = ("--stop_list", tmp_path / "a.jsonl")
    ended = cli("ngrams", *given, *budget, *own, "--output", tmp_path / "out")
    assert ended.status == 2
    assert "--stop_list must not be private data" in ended.err
    ended = cli("ngrams", *given, *budget, *rules, "--output", tmp_path / "out")
    assert ended.status == 0, ended.err
    released = {row["ngram"] for row in read_release(str(tmp_path / "out")).table().to_pylist()}
    assert {"please write to", "or ask", "about invoice"} <= released
    assert not released & {"max", "mustermann", "john", "17", "to or", "ask about"}
    ledger = read_ledger(str(tmp_path / "out"))
    assert ledger["tokenizer"] == "words"
    assert ledger["text_rules"] == {
        "mask": ["emails", "numbers"],
        "mask_version": 3,
        "fold": ["apostrophes"],
        "fold_version": 1,
        "keep": ["emoji"],
        "keep_version": 2,
        "stop_list_sha256": hashlib.sha256(b"john smith").hexdigest(),
    }
    judge = ("evaluate", *given, "--release", tmp_path / "out", "--quiet")
    ended = cli(*judge, "--stop_list", tmp_path / "stop.txt", "--output", tmp_path / "judged")
    assert ended.status == 0, ended.err
    with open(tmp_path / "judged" / "not_private_coverage.csv", encoding="utf-8") as file:
        assert {row["spurious"] for row in csv.DictReader(file)} == {"0"}
    for others, option in (
        ((), "stop_list"),
        (("--stop_list", tmp_path / "other.txt"), "stop_list"),
        (("--stop_list", tmp_path / "stop.txt", "--mask", "urls"), "mask"),
    ):
        ended = cli(*judge, *others)
        assert ended.status == 2
        assert f"{option} must be that of the release" in ended.err


@pytest.mark.parametrize(
    ("text", "tokenizer", "said"),
    [
        ("今日は東京へ行きました、plus a few words", "words", "--tokenizer icu_words"),
        ("https://example.org/a?b", "words", "--tokenizer item"),
        ("see https://example.org/a?b", "words", ""),
        ("今日は東京へ", "icu_words", ""),
        ("naïve Привет 한국어 단어", "words", ""),
        (["a list"], "words", "Lists of words or items need the tokenizer tokens"),
        ("a text", "tokens", "Take another tokenizer than tokens"),
    ],
)
def test_what_fits_no_tokenizer_is_told_before_anything_is_spent(
    cli, tmp_path, text, tokenizer, said
):
    lines = [json.dumps({"user": f"u{i}", "text": text}) for i in range(30)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    given = (
        "--input",
        tmp_path / "a.jsonl",
        "--output",
        tmp_path / "out",
        "--tokenizer",
        tokenizer,
    )
    ended = cli("ngrams", *given, "--epsilon", 1, "--delta", 1e-5)
    wrong = isinstance(text, list) or tokenizer == "tokens"
    assert ended.status == (2 if wrong else 0), ended.err
    assert said in ended.err
    assert bool(said) == ("Take " in ended.err or wrong)
    # What is told of texts is marked as the operator's.
    assert ("as secret as the data" in ended.err) == (bool(said) and not wrong)
    assert "東京" not in ended.err


def test_a_stop_list_that_is_compressed_must_be_named_so(tmp_path):
    path = tmp_path / "stop.txt"
    path.write_bytes(gzip.compress(b"the\nof\n"))
    with pytest.raises(InputError, match=r"name that ends in \.gz"):
        read_stop_list(str(path))
