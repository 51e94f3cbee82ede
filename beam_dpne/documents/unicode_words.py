"""unicode_words: a tokenizer by Unicode's word boundaries, for text without blanks between words.

It needs the package `regex` of the extra `beam-dpne[unicode]`, and is therefore a module by itself.
"""

import unicodedata

import pyarrow as pa
import regex

_BOUNDARY = regex.compile(r"(?V1w)\b")
_LETTER_OR_DIGIT = regex.compile(r"[\p{L}\p{N}]")


class UnicodeWords:
    """The tokenizer, with the name and version that ledgers and run keys use.

    Attributes:
      tokenizer_name: Public name.
      version: Version of the tokenizer, and of the package whose tables define the boundaries.
    """

    tokenizer_name = "unicode_words"
    version = f"1, regex {regex.__version__}"

    def __call__(self, texts: pa.Array) -> pa.ListArray:
        """Splits texts into lower-case words at the default word boundaries of Unicode (UAX #29).

        A text is brought into Unicode normalization form C and then lower-cased, as `words` does. A
        word is then a segment between two boundaries that has a letter or digit. Numbers and
        abbreviations keep their inner full stops and commas. In scripts without blanks (Chinese,
        Japanese, Thai) correct boundaries would need a dictionary, which this tokenizer does not have.
        There most characters are words, so that n-grams are sequences of characters.

        Args:
          texts: A string or large_string array without nulls.

        Returns:
          The words of each text, in order.

        >>> unicode_words(pa.array(["Pi is 3.14!", "東京へ", ""])).to_pylist()
        [['pi', 'is', '3.14'], ['東', '京', 'へ'], []]
        """
        rows = [_words(text) for text in texts.to_pylist()]
        return pa.array(rows, pa.list_(pa.string()))


unicode_words = UnicodeWords()


def _words(text: str) -> list[str]:
    segments = _BOUNDARY.split(unicodedata.normalize("NFC", text).lower())
    return [segment for segment in segments if _LETTER_OR_DIGIT.search(segment)]
