"""The tokenizer by Unicode's word boundaries."""

import sys

import pyarrow as pa
import pytest

from beam_dpne.cli.main import main
from beam_dpne.documents.key_context import tokenizer_identity
from beam_dpne.documents.tokenizers import resolve_tokenizer, tokenize, tokenizer_name
from beam_dpne.documents.unicode_words import unicode_words


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
    assert tokenize(unicode_words, pa.array([text])).to_pylist() == [expected]


def test_each_text_is_treated_alone():
    rows = ["東京", "", "to be"] * 3
    whole = tokenize(unicode_words, pa.array(rows)).to_pylist()
    assert whole == [tokenize(unicode_words, pa.array([row])).to_pylist()[0] for row in rows]


def test_it_is_found_by_name_and_its_key_is_bound_to_the_tables_of_the_package():
    assert resolve_tokenizer("unicode_words") is unicode_words
    assert tokenizer_name(unicode_words) == "unicode_words"
    identity = tokenizer_identity("unicode_words")
    assert identity == tokenizer_identity(unicode_words)
    assert "regex 2" in identity["version"]


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.delitem(sys.modules, "beam_dpne.documents.unicode_words")
    monkeypatch.setitem(sys.modules, "regex", None)
    with pytest.raises(ValueError, match=r"beam-dpne\[unicode\]"):
        resolve_tokenizer("unicode_words")


def test_a_release_of_text_without_blanks(tmp_path):
    lines = [f'{{"user": "u{i}", "text": "東京へ行く"}}' for i in range(300)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    given = ["--input", str(tmp_path / "a.jsonl"), "--output", str(tmp_path / "out")]
    budget = ["--epsilon", "8", "--delta", "1e-5", "--max_length", "2", "--quiet"]
    assert main(["ngrams", *given, *budget, "--tokenizer", "unicode_words"]) == 0
    parts = [path.read_text(encoding="utf-8") for path in (tmp_path / "out").glob("ngrams-*")]
    assert "東 京" in "".join(parts)
