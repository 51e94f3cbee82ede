"""Elasticsearch: documents with a completion field, as NDJSON for the _bulk interface.

`input` is the text that a person types: the words, joined by blanks, without escapes. The other fields
are the columns of the release; `split_ngram` reads `ngram`. `weight` must be a whole number from 0 to
2^31 − 1. A completion field refuses the characters U+0000, U+001E and U+001F, and ignores an input of
blanks, so such rows are left out.
"""

import hashlib
import json
import re
from collections import Counter

import numpy as np

from beam_dpne.documents.text import SEPARATOR
from beam_dpne.exports.source import Rendered, Source

_REFUSED = re.compile("[\x00\x1e\x1f]")
_MOST = 2**31 - 1
_MILLION = 1_000_000
_UNSEARCHABLE = "rows of blanks or with a character that a completion field refuses"


def render(source: Source) -> Rendered:
    """Returns two lines for each row: an action with the row's id, and the document."""
    left_out: Counter[str] = Counter()
    lines = []
    rows = source.rows.to_pylist()
    for row, text, tokens, weight in zip(
        rows, source.texts, source.tokens, _suggestion_weights(source), strict=True
    ):
        typed = SEPARATOR.join(tokens)
        if not typed.strip() or _REFUSED.search(typed):
            left_out[_UNSEARCHABLE] += 1
            continue
        suggestion = {"input": typed, "weight": weight}
        document = {"suggest": suggestion, **row, "ledger_sha256": source.ledger_sha256}
        lines += [{"index": {"_id": _row_id(text)}}, document]
    data = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
    return Rendered(data.encode(), left_out)


def _suggestion_weights(source: Source) -> list[int]:
    """Returns the users of each row, or else millionths of the largest weight of its length."""
    weights = source.weights
    if source.weight_name != "users":
        largest = np.zeros(int(source.lengths.max(initial=0)) + 1)
        np.maximum.at(largest, source.lengths, weights)
        weights = np.maximum(1.0, weights / largest[source.lengths] * _MILLION)
    return np.rint(weights).clip(0, _MOST).astype(np.int64).tolist()


def _row_id(text: str) -> str:
    """Returns an id that depends on the text alone, so that sending a file again adds nothing."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]
