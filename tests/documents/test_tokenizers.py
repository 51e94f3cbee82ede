import functools
import random
import re
import subprocess
import sys
import time
import types
import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_dpne.cli.main import main
from beam_dpne.documents.run_keys import tokenizer_identity
from beam_dpne.documents.tokenizers import (
    TOKENIZERS,
    check_alone,
    resolve_tokenizer,
    tokenize,
    tokenizer_name,
    tokens,
    whitespace,
    words,
)
from beam_dpne.errors import TokenizerError

CANARY = "canary7f3a"
UNICODE_WORDS = resolve_tokenizer("unicode_words")
HOSTILE = "aZ09_'’‘\" \n\t\x1c\x85\u00a0\u2028éÉe\u0301İıΣςßﬁK中あ\u0300\u200d😀𝒳٣Ⅷ-"
HOSTILE += "\u200c\u200b\u00ad\u2060\u200e\u202e\ufeff\u180eന\u0d4dẹ\u0323\u0327ﬃＡ"
FORMS = ("NFC", "NFD")
texts_of_rows = st.lists(st.one_of(st.text(), st.text(alphabet=HOSTILE, max_size=12)), max_size=8)


def plain(text: str) -> str:
    """The form of a text of which words are made, character by character."""
    text = unicodedata.normalize("NFC", "".join(c for c in text if c not in VANISHING))
    kept = ""
    for i, c in enumerate(text):
        follows = text[i + 1 : i + 2]
        if c in JOINERS:
            # The last one of several is judged by what stands before and after all of them.
            before = text[:i].rstrip(JOINERS)[-1:]
            is_inside = all(d and unicodedata.category(d)[0] in "LNM" for d in (before, follows))
            is_shape = c == "\u200d" and unicodedata.name(before or " ", "") in VIRAMAS
            if (follows and follows in JOINERS) or not (is_inside or is_shape):
                continue
        kept += c
    return unicodedata.normalize("NFC", kept.lower()).replace("’", "'")


JOINERS = "\u180e\u200c\u200d"
VANISHING = (
    "\u00ad\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"
)
SCRIPTS = "DEVANAGARI BENGALI GURMUKHI GUJARATI ORIYA TAMIL TELUGU KANNADA MALAYALAM"
VIRAMAS = {f"{script} SIGN VIRAMA" for script in SCRIPTS.split()} | {"SINHALA SIGN AL-LAKUNA"}


def words_of(text: str) -> list[str]:
    """The definition, character by character."""
    text = plain(text)
    kinds = ["M" if c in "\u180e\u200c\u200d" else unicodedata.category(c)[0] for c in text]
    solid = [kind in "LN" for kind in kinds]
    for i, kind in enumerate(kinds):
        solid[i] = solid[i] or (kind == "M" and i > 0 and solid[i - 1])
    inside = [c == "_" or solid[i] for i, c in enumerate(text)]
    found, word, has_letter = [], "", False
    for i, c in enumerate([*text, " "]):
        inner = c == "'" and 0 < i < len(text) - 1 and inside[i - 1] and inside[i + 1]
        if i < len(text) and (inside[i] or inner):
            word, has_letter = word + c, has_letter or solid[i]
            continue
        found += [word] * has_letter
        word, has_letter = "", False
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("naïve", ["naïve"]),
        ("nai\u0308ve", ["naïve"]),
        ("Don't 'quote' rock'n'roll y''all 'tis dogs'", None),
        ("l’été C’EST l'e\u0301té", ["l'été", "c'est", "l'été"]),
        ("don't don’t don‘t", ["don't", "don't", "don", "t"]),
        # Persian, Sinhala, Bengali and Mongolian words with joiners; two of them where one was meant.
        ("می‌روم، می‌‌روم‌", ["می‌روم", "می‌روم"]),
        ("ශ්\u200dරී র\u200d্যাব ᠬᠠᠨ\u180eᠠ", ["ශ්\u200dරී", "র\u200d্যাব", "ᠬᠠᠨ\u180eᠠ"]),
        # U+200D shapes the last letter after an Indic virama, and no other one.
        ("അവന്\u200d അവന്\u200c ab\u200d", ["അവന്\u200d", "അവന്", "ab"]),
        ("a\u200d-\u200cb don\u200c't \u200d❤\ufe0f\u200d🔥", ["a", "b", "don't"]),
        (
            "co\u00adop w\u2060j \ufeffx \u200eאב\u200f \u202ea\u2069",
            ["coop", "wj", "x", "אב", "a"],
        ),
        ("ภาษา\u200bไทย", ["ภาษา", "ไทย"]),
        ("İ I\u0307 i\u0307 I ı", ["i\u0307", "i\u0307", "i\u0307", "i", "ı"]),
        ("I\u0307\u0327 i\u0327\u0307", ["i\u0327\u0307"] * 2),
        ("", []),
        ("'", []),
        ("’", []),
        ("_ a_b 3.14 e-mail", ["a_b", "3", "14", "e", "mail"]),
        ("I ❤\ufe0f you \ufe0f", ["i", "you"]),
        ("\u0301abc e\u0301 1\ufe0f\u20e3", ["abc", "é", "1\ufe0f\u20e3"]),
        ("___ _'_ _\u0302 _x_ a_\u0302b", ["_x_", "a_", "b"]),
        ("中文 テスト हिन्दी ΌΔΟΣ", ["中文", "テスト", "हिन्दी", "όδος"]),
    ],
)
def test_words_of_examples(text: str, expected: list[str] | None) -> None:
    expected = words_of(text) if expected is None else expected
    assert words(pa.array([text])).to_pylist() == [expected] == [words_of(text)]


@settings(max_examples=300, deadline=None)
@given(texts_of_rows, st.sampled_from([pa.string(), pa.large_string()]))
def test_words_agree_with_the_definition(rows: list[str], kind: pa.DataType) -> None:
    expected = [words_of(text) for text in rows]
    assert tokenize(words, pa.array(rows, kind)).to_pylist() == expected


@settings(max_examples=300, deadline=None)
@given(
    st.text(
        st.one_of(st.characters(categories=["L", "M", "N", "Cf", "Zs"]), st.sampled_from(HOSTILE))
    )
)
def test_composed_and_decomposed_texts_have_the_same_words(text: str) -> None:
    forms = pa.array([unicodedata.normalize(form, text) for form in FORMS])
    for tokenizer in (words, UNICODE_WORDS):
        composed, decomposed = tokenize(tokenizer, forms).to_pylist()
        assert composed == decomposed
        assert all(unicodedata.is_normalized("NFC", word) for word in composed)


@pytest.mark.parametrize("name", ["words", "unicode_words", "icu_words"])
def test_all_tokenizers_of_words_take_the_same_form_of_a_text(name: str) -> None:
    rows = ["don’t l’été", "می‌‌روم‌ co\u00adop", "I\u0307\u0327 ab\u200d"]
    assert tokenize(resolve_tokenizer(name), pa.array(rows)).to_pylist() == list(
        map(words_of, rows)
    )


def test_joiners_take_time_in_proportion_to_a_hostile_text() -> None:
    def seconds(size: int) -> float:
        text = pa.array(["a\u200c" * size + "\u200d" * size])
        start = time.process_time()
        words(text)
        return time.process_time() - start

    small, large = min(seconds(2**13) for _ in range(3)), seconds(2**17)
    assert large < 60 * small + 0.2


@settings(max_examples=200, deadline=None)
@given(texts_of_rows)
def test_whitespace_agrees_with_str_split(rows: list[str]) -> None:
    result = tokenize(whitespace, pa.array(rows, pa.string())).to_pylist()
    assert result == [text.split() for text in rows]


@settings(max_examples=100, deadline=None)
@given(texts_of_rows, st.data())
def test_slices_give_the_tokens_of_their_rows(rows: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows)))
    for tokenizer in (words, whitespace):
        whole = tokenize(tokenizer, pa.array(rows, pa.string()))
        part = tokenize(tokenizer, pa.array(rows, pa.string()).slice(start))
        assert part.to_pylist() == whole.to_pylist()[start:]
        assert part.type == pa.list_(pa.string())
        part.validate(full=True)


def test_words_of_every_code_point_agree_with_the_definition() -> None:
    points = [chr(i) for i in range(0x110000) if not 0xD800 <= i < 0xE000]
    random.Random(1).shuffle(points)
    rows = ["a" + "".join(points[i : i + 50]) + "'b" for i in range(0, len(points), 500)]
    assert words(pa.array(rows)).to_pylist() == [words_of(text) for text in rows]
    assert whitespace(pa.array(rows)).to_pylist() == [text.split() for text in rows]


@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.large_list(pa.large_string())])
def test_tokens_pass_through_unchanged(kind: pa.DataType) -> None:
    rows = [["a b", "", "\n"], [], ["É"]]
    result = tokenize(tokens, pa.array([["x"], *rows], kind).slice(1))
    assert result.to_pylist() == rows
    assert result.type == pa.list_(pa.string())
    assert result.offsets[0].as_py() == 0


@pytest.mark.parametrize("name", ["words", "whitespace", "tokens"])
def test_empty_arrays_give_empty_lists(name: str) -> None:
    kind = pa.list_(pa.string()) if name == "tokens" else pa.string()
    assert tokenize(TOKENIZERS[name], pa.array([], kind)).to_pylist() == []


def test_tokenizers_are_found_by_name() -> None:
    assert resolve_tokenizer("words") is words
    assert resolve_tokenizer("beam_dpne.documents.tokenizers:whitespace") is whitespace
    assert resolve_tokenizer(words) is words


@pytest.mark.parametrize(
    "name",
    [
        "wrods",
        "no_such_module:f",
        "beam_dpne.documents.tokenizers:none",
        "beam_dpne.documents.tokenizers:pa.x",
    ],
)
def test_unknown_tokenizers_are_parameter_errors(name: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"tokenizer={name!r}")):
        resolve_tokenizer(name)


def test_a_name_that_is_no_function_is_a_parameter_error() -> None:
    with pytest.raises(ValueError, match="of type str"):
        resolve_tokenizer("beam_dpne.documents.tokenizers:__name__")


def test_a_module_that_fails_to_import_is_a_parameter_error(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_tokenizer.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError, match="ZeroDivisionError"):
        resolve_tokenizer("broken_tokenizer:f")
    sys.modules.pop("broken_tokenizer", None)


@pytest.mark.parametrize("kind", [KeyError, TokenizerError])
def test_a_tokenizer_that_raises_tells_its_type_and_no_text(kind: type[Exception]) -> None:
    """Also where an own module raises an error of this package, whose other messages hold no text."""

    def explode(texts: pa.Array) -> pa.ListArray:
        raise kind(texts.to_pylist())

    @functools.wraps(words)
    def wrapping(texts: pa.Array) -> pa.ListArray:
        """Says that it is of a module of this package, since it wraps a function of it."""
        return explode(texts)

    for tokenizer, name in ((explode, "explode"), (wrapping, "words")):
        with pytest.raises(TokenizerError, match=rf"{name} raised {kind.__name__}") as caught:
            tokenize(tokenizer, pa.array([CANARY]))
        assert CANARY not in str(caught.value)
        assert caught.value.__suppress_context__


def beside(texts: pa.Array) -> pa.ListArray:
    """Tokens that depend on the number of texts."""
    return pa.array([[str(len(texts))]] * len(texts), pa.list_(pa.string()))


def first(texts: pa.Array) -> pa.ListArray:
    """Tokens that depend on the first text, with borders."""
    return pa.array([[texts[0].as_py(), None]] * len(texts), pa.list_(pa.string()))


def test_a_tokenizer_that_looks_at_other_texts_is_seen() -> None:
    texts = pa.array(["to be", "or not", "to be", ""])
    for bad in (beside, first):
        with pytest.raises(
            TokenizerError, match=f"{bad.__name__} must give a text the same tokens"
        ):
            check_alone(bad, texts)
    for good in (words, whitespace, UNICODE_WORDS):
        check_alone(good, texts)
    check_alone(beside, texts[:0])


@pytest.mark.parametrize(
    ("result", "error"),
    [
        ([["a"]], TokenizerError),
        (None, TokenizerError),
        (pa.array([CANARY]), TokenizerError),
        (pa.array([[1]]), TokenizerError),
        (pa.array([[CANARY], []]), ValueError),
        (pa.array([None], pa.list_(pa.string())), ValueError),
        (types.SimpleNamespace(type="list<string>"), TokenizerError),
    ],
)
def test_a_wrong_result_is_an_error_without_text(result: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="must return") as caught:
        tokenize(lambda _: result, pa.array([CANARY]))
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("tokenizer", "said"),
    [
        (str.split, "tokenizer builtins:str.split raised TypeError (its"),
        (lambda text: text.split(), "<lambda> raised AttributeError (its"),
        (lambda text, _sep: [text], "<lambda> raised TypeError (its"),
        (
            lambda texts: [text.split() for text in texts.to_pylist()],
            "without null lists, got list,",
        ),
    ],
)
def test_a_function_of_one_text_is_told_what_a_tokenizer_gets(tokenizer, said) -> None:
    with pytest.raises(TokenizerError, match=re.escape(said)) as caught:
        tokenize(tokenizer, pa.array([CANARY]))
    message = str(caught.value)
    assert "A tokenizer gets a batch of texts as one Arrow array, and not a single text" in message
    assert CANARY not in message


def test_the_code_in_the_advice_is_a_tokenizer() -> None:
    with pytest.raises(TokenizerError) as caught:
        tokenize(str.split, pa.array(["a"]))
    body = re.search(r"return (pa\.array\(.*\)\)), or", str(caught.value)).group(1)
    advised = eval(f"lambda texts: {body}", {"pa": pa})
    assert tokenize(advised, pa.array(["a b", ""])).to_pylist() == [["a", "b"], []]


def test_a_list_of_names_is_a_parameter_error() -> None:
    with pytest.raises(ValueError, match="`tokenizer` must be one of"):
        resolve_tokenizer(["words"])


def test_an_error_about_the_number_of_lists_tells_no_number() -> None:
    """The number of texts in a bundle, and the number of their tokens, are private."""
    lists = pa.array([["a"]] * 17)
    with pytest.raises(TokenizerError, match="one list for each text") as caught:
        tokenize(lambda _: lists, pa.array(["a"] * 23))
    assert not re.search(r"\d", str(caught.value))


def test_texts_of_a_wrong_type_are_refused() -> None:
    with pytest.raises(TokenizerError, match="texts must be"):
        tokenize(words, pa.array([1]))
    with pytest.raises(TokenizerError, match="texts must be"):
        tokenize(tokens, pa.array([CANARY]))


def test_long_batches_keep_row_borders() -> None:
    rng = np.random.default_rng(1)
    rows = ["".join(rng.choice(list("ab'_ é’"), size)) for size in rng.integers(0, 9, 20_000)]
    assert words(pa.array(rows)).to_pylist() == [words_of(text) for text in rows]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't panic! 3.14 e-mail a_b", ["don't", "panic", "3.14", "e", "mail", "a_b"]),
        ("今日はカタカナ東京へ", ["今", "日", "は", "カタカナ", "東", "京", "へ"]),
        ("हिन्दी नमस्ते 한국어 단어", ["हिन्दी", "नमस्ते", "한국어", "단어"]),
        ("❤\ufe0f ___ ...", []),
        ("NAI\u0308VE", ["naïve"]),
        ("", []),
    ],
)
def test_words_are_cut_at_unicodes_boundaries(text, expected):
    assert tokenize(UNICODE_WORDS, pa.array([text])).to_pylist() == [expected]


def test_unicode_words_treat_each_text_alone():
    rows = ["東京", "", "to be"] * 3
    whole = tokenize(UNICODE_WORDS, pa.array(rows)).to_pylist()
    assert whole == [tokenize(UNICODE_WORDS, pa.array([row])).to_pylist()[0] for row in rows]


def test_unicode_words_are_found_by_name_and_their_key_is_bound_to_the_tables_of_the_package():
    assert resolve_tokenizer("unicode_words") is UNICODE_WORDS
    assert tokenizer_name(UNICODE_WORDS) == "unicode_words"
    identity = tokenizer_identity("unicode_words")
    assert identity == tokenizer_identity(UNICODE_WORDS)
    assert "regex 2" in identity["version"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("今日はカタカナ東京へ", ["今日", "は", "カタカナ", "東京", "へ"]),
        ("我们在北京大学学习。", ["我们", "在", "北京", "大学", "学习"]),
        ("ประเทศที่สวยงามมาก", ["ประเทศ", "ที่", "สวยงาม", "มาก"]),
        ("Don't panic! 3.14 e-mail a_b ___ ❤", ["don't", "panic", "3.14", "e", "mail", "a_b"]),
        ("", []),
    ],
)
def test_icu_words_are_those_of_dictionaries(text, expected):
    assert tokenize(resolve_tokenizer("icu_words"), pa.array([text])).to_pylist() == [expected]
    assert "ICU " in tokenizer_identity("icu_words")["version"]


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [("unicode_words", "regex", "unicode"), ("icu_words", "icu4py", "icu")],
)
def test_without_its_package_the_error_names_the_extra(name, package, extra):
    code = f"import sys; sys.modules['{package}'] = None\n"
    code += "from beam_dpne.documents.tokenizers import resolve_tokenizer\n"
    code += f"resolve_tokenizer('{name}')"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert "ValueError" in ended.stderr
    assert f"pip install '.[{extra}]'" in ended.stderr


def test_a_release_of_text_without_blanks(tmp_path):
    lines = [f'{{"user": "u{i}", "text": "東京へ行く"}}' for i in range(300)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    given = ["--input", str(tmp_path / "a.jsonl"), "--output", str(tmp_path / "out")]
    budget = ["--epsilon", "8", "--delta", "1e-5", "--max_length", "2", "--quiet"]
    assert main(["ngrams", *given, *budget, "--tokenizer", "unicode_words"]) == 0
    parts = [path.read_text(encoding="utf-8") for path in (tmp_path / "out").glob("ngrams-*")]
    assert "東 京" in "".join(parts)
