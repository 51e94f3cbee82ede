"""python -m pipelines.more_exports RELEASE OUTPUT [--locale en] [--group GROUP]

Writes a release in a format of one product: documents with a completion field for Elasticsearch, as
NDJSON for its interface _bulk; or, with a locale, a word list for Android's LatinIME keyboard.

The word list is in the combined format from which Android's LatinIME makes a dictionary (see
`dictionaries/sample.combined` and `CombinedInputOutput.java` in packages/inputmethods/LatinIME). A line
has a word with its frequency f, and lines below it have words that follow it (`bigram`). f is the
logarithm of a probability: 255 is 1, and each step less divides it by 1.15; 0 marks words never
suggested, so the least f is 1. The format has no escapes. Words that it, or a reader of it, cannot hold
are left out, and so are n-grams of three words and more.
"""

import argparse
import hashlib
import json
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from beam_dpne.elements.rows import SEPARATOR
from beam_dpne.errors import BeamDpneError, ExportError
from beam_dpne.exports.language import is_unbroken
from beam_dpne.exports.writing import rows_of_group, title_of
from beam_dpne.release.publishing import write_file
from beam_dpne.release.reading import Release, read_release

# Of a completion field.
_REFUSED = re.compile("[\x00\x1e\x1f]")
_MOST_WEIGHT = 2**31 - 1
_STEP = math.log(1.15)
_MOST = 255
# LatinIME ignores words of 48 code points and more (DICTIONARY_MAX_WORD_LENGTH).
_LONGEST = 47
_LOCALE = re.compile(r"[A-Za-z]{2,3}([_-][A-Za-z0-9]{2,8})*")


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the file, and says on stderr how many rows are left out."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.more_exports", allow_abbrev=False)
    parser.add_argument("release", help="Directory of the release.")
    parser.add_argument("output", help="File to write, outside the release.")
    parser.add_argument("--locale", help="Locale of a keyboard, e.g. pt_BR, for a word list.")
    parser.add_argument("--group", help="Group of a word list, if there are groups.")
    given = parser.parse_args(arguments)
    try:
        release = read_release(given.release)
        if given.locale is None:
            text, left_out = suggestions(release)
        else:
            rows = rows_of_group(release, given.group)
            text, left_out = word_list(release, rows, given.locale)
        write_file(given.output, text.encode(), release=given.release, overwrite=False)
    except BeamDpneError as error:
        parser.error(str(error))
    for reason, count in left_out.items():
        print(f"left out: {count} {reason}", file=sys.stderr)
    return 0


def word_list(release: Release, rows: pa.Table, locale: str) -> tuple[str, Mapping[str, int]]:
    """Returns the word list, and how many rows the format cannot hold, by the reason.

    Args:
      release: A release of n-grams or items.
      rows: Its rows, or those of one group.
      locale: Locale of the keyboard, e.g. "pt_BR".

    Raises:
      ExportError: It is not of that form.
    """
    if not _LOCALE.fullmatch(locale):
        raise ExportError(f"locale must be a locale like en or pt_BR, got locale={locale}.")
    left_out: Counter[str] = Counter()
    words: dict[str, float] = {}
    followers: defaultdict[str, dict[str, float]] = defaultdict(dict)
    weights = release.weights(rows).tolist()
    for tokens, weight in zip(map(list, release.words(rows)), weights, strict=True):
        if len(tokens) > 2:
            left_out["n-grams of more than two words"] += 1
        elif not all(map(_is_word, tokens)):
            left_out["words that the format cannot hold, and n-grams with them"] += 1
        elif len(tokens) == 1:
            words[tokens[0]] = weight
        elif words.keys() >= set(tokens):
            first, second = tokens
            followers[first][second] = weight
        else:
            left_out["n-grams with a word that was not released"] += 1
    frequencies = _frequencies(words)
    lines = [_header(release, locale)]
    for word, frequency in _by_frequency(frequencies):
        lines.append(f" word={word},f={frequency}")
        # LatinIME takes a pair's f as at least that of its second word.
        pairs = _frequencies(followers[word])
        raised = {second: max(f, frequencies[second]) for second, f in pairs.items()}
        lines += [f"  bigram={second},f={f}" for second, f in _by_frequency(raised)]
    return "".join(f"{line}\n" for line in lines), left_out


def _header(release: Release, locale: str) -> str:
    # A reader splits the header at commas, equals signs and colons.
    title = "".join(" " if sign in ",=:" else sign for sign in title_of(release))
    return (
        f"dictionary=main:{locale.lower()},locale={locale},description={' '.join(title.split())},"
        f"date=0,version=1,ledger_sha256={release.ledger_sha256}"
    )


def _is_word(word: str) -> bool:
    return 0 < len(word) <= _LONGEST and "," not in word and is_unbroken(word)


def _frequencies(weights: Mapping[str, float]) -> dict[str, int]:
    """Returns f of each word, whose probability is its part of all weights."""
    total = math.fsum(weights.values())
    return {
        word: max(1, min(_MOST, round(_MOST + math.log(weight / total) / _STEP)))
        for word, weight in weights.items()
    }


def _by_frequency(frequencies: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(frequencies.items(), key=lambda pair: (-pair[1], pair[0]))


def suggestions(release: Release) -> tuple[str, Mapping[str, int]]:
    """Returns two lines for each row: an action with the row's id, and the document."""
    left_out: Counter[str] = Counter()
    lines = []
    words = release.words(release.rows)
    weights = _suggestion_weights(release, list(map(len, words)))
    for row, tokens, weight in zip(release.rows.to_pylist(), words, weights, strict=True):
        text = row[release.text_column]
        typed = SEPARATOR.join(tokens)
        if not typed.strip() or _REFUSED.search(typed):
            left_out["rows of blanks or with a character that a completion field refuses"] += 1
            continue
        suggestion = {"input": typed, "weight": weight}
        document = {"suggest": suggestion, **row, "ledger_sha256": release.ledger_sha256}
        # The id depends on the group and the text alone, so that sending a file again adds nothing.
        named = f"{row['group']}\x1f{text}" if "group" in row else text
        row_id = hashlib.sha256(named.encode()).hexdigest()[:32]
        lines += [{"index": {"_id": row_id}}, document]
    return "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines), left_out


def _suggestion_weights(release: Release, lengths: Sequence[int]) -> list[int]:
    """Returns the users of each row, or else millionths of the largest weight of its length."""
    weights = release.weights(release.rows)
    if not release.has_counts:
        places = np.array(lengths, np.int64)
        largest = np.zeros(max(lengths, default=0) + 1)
        np.maximum.at(largest, places, weights)
        weights = np.maximum(1.0, weights / largest[places] * 1e6)
    return np.rint(weights).clip(0, _MOST_WEIGHT).astype(np.int64).tolist()


if __name__ == "__main__":
    sys.exit(main())
