"""The floor: DPNE in one numpy process, the least time the benchmarks compare against.

    python -m tests.benchmarks.floor --input msnbc990928.seq.gz --input_format sequences \
        --output /tmp/floor --epsilon 1 --delta 1e-7 --max_length 6 --max_contributions 10 \
        --spurious_fraction 0.01 --category_names

The same algorithm (one round per length, both-sided pruning, |V_k| counted exactly, weighted
Gaussian), the same input and an `ngrams.jsonl` of the same rows, but numpy's ordinary generator,
float weights and scores as they fall: fast, and no guarantee that survives a careful reader.

Nothing is ever grouped by user. A position carries its user's index, and one `np.sort` of
`gram << bits | user` yields the distinct pairs, the users' sizes and the histogram together.
"""

import argparse
import dataclasses
import gzip
import json
import math
import pathlib
import statistics
import unicodedata

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

_NORMAL = statistics.NormalDist()
_TABLE_CELLS = 1 << 27  # look-up by table below, by binary search above
_BLOCK = 1 << 20  # bytes tokenized at once: intermediate arrays stay in the cache
_WORD_CATEGORIES = {"Ll", "Lu", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd"}


@dataclasses.dataclass
class Corpus:
    """All documents end to end: `ids` are word codes, -1 ends a document."""

    ids: np.ndarray
    users: np.ndarray
    num_users: int
    words: list[str]


@dataclasses.dataclass
class Released:
    """S_k in the order of its keys, each gram by its two (k-1)-grams' ids in S_{k-1}."""

    keys: np.ndarray
    prefixes: np.ndarray
    suffixes: np.ndarray
    scores: np.ndarray
    texts: list[str]


def upper_tail(x: float) -> float:
    return 0.5 * math.erfc(x / math.sqrt(2))


def gaussian_stddev(epsilon: float, delta: float) -> float:
    """The analytic Gaussian mechanism's sigma, by bisection."""

    def excess(sigma: float) -> float:
        a, b = 0.5 / sigma, epsilon * sigma
        return upper_tail(b - a) - math.exp(epsilon) * upper_tail(a + b) - delta

    low, high = 1e-3, 1e6
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high


def vocabulary_threshold(sigma: float, delta: float, limit: int) -> float:
    return max(
        1 / math.sqrt(t) - sigma * _NORMAL.inv_cdf(-math.expm1(math.log1p(-delta) / t))
        for t in range(1, limit + 1)
    )


def read_sequences(path: str, category_names: bool) -> tuple[bytes, dict[str, str]]:
    """The lines after the header, and what to call their tokens."""
    with gzip.open(path) as file:
        header, _, body = file.read().partition(b"% Sequences:")
    if not body:
        header, body = b"", header
    lines = [line for line in header.decode().splitlines() if line and line[0] != "%"]
    names = lines[-1].split() if category_names else []
    return body.strip() + b"\n", {str(i): name for i, name in enumerate(names, 1)}


def read_jsonl(path: str) -> pa.Table:
    schema = pa.schema([("user", pa.string()), ("text", pa.string())])
    parse = pyarrow.json.ParseOptions(schema, unexpected_field_behavior="ignore")
    with pa.input_stream(path, compression="gzip") as stream:
        return pyarrow.json.read_json(stream, parse_options=parse)


def split_lines(line_of_text: np.ndarray, inside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lengths of all tokens, and the number of tokens of each line."""
    padded = np.zeros(len(inside) + 2, bool)
    padded[1:-1] = inside
    edges = np.flatnonzero(padded[1:] != padded[:-1])
    starts = edges[::2]
    ends = np.searchsorted(starts, np.flatnonzero(line_of_text == ord("\n")))
    return edges[1::2] - starts, np.diff(ends, prepend=0)


def string_array(lengths: np.ndarray, data: bytes | np.ndarray) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(lengths), buffers)


def drop_outer_apostrophes(codes: np.ndarray, inside: np.ndarray) -> None:
    """Apostrophes between two word characters join them; the others become blanks."""
    at = np.flatnonzero(codes == ord("'"))
    inner = inside[at - 1] & inside[(at + 1) % len(inside)]
    inside[at[inner]] = True
    codes[at[~inner]] = ord(" ")


def _ascii_table() -> bytes:
    """Lower case for letters, themselves for digits, `_`, `'` and line ends, else blank."""
    kept = "0123456789_'\nabcdefghijklmnopqrstuvwxyz"
    return bytes(ord(c) if (c := chr(i).lower()) in kept else 32 for i in range(128)) + b" " * 128


_ASCII = _ascii_table()


def ascii_words(block: bytes) -> tuple[pa.Array, np.ndarray]:
    codes = np.frombuffer(bytearray(block.translate(_ASCII)), np.uint8)
    inside = codes > ord("'")
    drop_outer_apostrophes(codes, inside)
    lengths, per_line = split_lines(codes, inside)
    return string_array(lengths, codes[np.flatnonzero(inside)]), per_line


def unicode_words(block: str) -> tuple[pa.Array, np.ndarray]:
    block = unicodedata.normalize("NFC", block).lower()
    codes = np.frombuffer(bytearray(block.encode("utf-32-le")), np.uint32)
    seen = np.flatnonzero(np.bincount(codes))
    is_word = np.zeros(seen[-1] + 1, bool)
    for code in seen.tolist():
        is_word[code] = code == ord("_") or unicodedata.category(chr(code)) in _WORD_CATEGORIES
    inside = is_word[codes]
    drop_outer_apostrophes(codes, inside)
    lengths, per_line = split_lines(codes, inside)
    kept = codes[inside]
    widths = 1 + (kept > 0x7F) + (kept > 0x7FF) + (kept > 0xFFFF)
    ends = np.cumsum(np.append(0, widths))[np.append(0, np.cumsum(lengths))]
    return string_array(np.diff(ends), kept.tobytes().decode("utf-32-le").encode()), per_line


def join_lines(texts: pa.Array) -> bytes:
    """One line per text."""
    whole = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    lines = pc.call_function("binary_join", [whole, "\n"])[0].as_buffer().to_pybytes() + b"\n"
    if lines.count(b"\n") > len(texts):
        blank = pc.ReplaceSubstringOptions("\n", " ")
        return join_lines(pc.call_function("replace_substring", [texts], blank))
    return lines


def tokenize_words(table: pa.Table) -> tuple[list[pa.Array], np.ndarray, pa.ChunkedArray]:
    """Tokens, tokens per document, and the documents' users (documents change their order)."""
    tokens, per_document, users, rest = [], [], [], []
    for batch in table.to_batches():
        plain = pc.call_function("string_is_ascii", [batch["text"]])
        rest.append(batch.filter(pc.call_function("invert", [plain])))
        common = batch.filter(plain)
        if len(common):
            found, per_line = ascii_words(join_lines(common["text"]))
            tokens.append(found)
            per_document.append(per_line)
            users.append(common["user"])
    others = pa.Table.from_batches(rest, table.schema).combine_chunks()
    if len(others):
        found, per_line = unicode_words(join_lines(others["text"].chunk(0)).decode())
        tokens.append(found)
        per_document.append(per_line)
        users.append(others["user"].chunk(0))
    return tokens, np.concatenate(per_document), pa.chunked_array(users, pa.string())


def tokenize_sequences(body: bytes) -> tuple[list[pa.Array], np.ndarray]:
    tokens, per_document, start = [], [], 0
    while start < len(body):
        end = body.find(b"\n", start + _BLOCK) + 1 or len(body)
        block = body[start:end]
        codes = np.frombuffer(block, np.uint8)
        lengths, per_line = split_lines(codes, codes > 32)
        tokens.append(string_array(lengths, block.translate(None, bytes(range(33)))))
        per_document.append(per_line)
        start = end
    return tokens, np.concatenate(per_document)


def encode(arrays: pa.ChunkedArray) -> tuple[np.ndarray, list[str]]:
    """Codes and what they stand for."""
    encoded = arrays.dictionary_encode()
    codes = [chunk.indices.to_numpy() for chunk in encoded.chunks]
    return np.concatenate(codes), encoded.chunk(0).dictionary.to_pylist()


def lay_out(codes: np.ndarray, lengths: np.ndarray, users: np.ndarray, words: list[str]) -> Corpus:
    """Positions of all documents, with -1 after each."""
    ends = np.cumsum(lengths + 1) - 1
    word_here = np.ones(len(codes) + len(lengths), bool)
    word_here[ends] = False
    ids = np.full(len(word_here), -1, np.int32)
    ids[word_here] = codes
    num_users = int(users.max()) + 1
    return Corpus(ids, np.repeat(users.astype(np.int32), lengths + 1), num_users, words)


def load(options: argparse.Namespace) -> Corpus:
    if options.input_format == "sequences":
        body, names = read_sequences(options.input, options.category_names)
        tokens, lengths = tokenize_sequences(body)
        codes, words = encode(pa.chunked_array(tokens, pa.string()))
        words = [names.get(word, word) for word in words]
        return lay_out(codes, lengths, np.arange(len(lengths)), words)
    tokens, lengths, holders = tokenize_words(read_jsonl(options.input))
    codes, words = encode(pa.chunked_array(tokens, pa.string()))
    return lay_out(codes, lengths, encode(holders)[0], words)


def changes(values: np.ndarray) -> np.ndarray:
    """Marks the first of each run of equal values."""
    first = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=first[1:])
    return first


def beyond_limit(
    users: np.ndarray, sizes: np.ndarray, limit: int, rng: np.random.Generator
) -> np.ndarray:
    """Places of all but a uniform `limit`-subset of each user's grams."""
    at = np.flatnonzero(sizes[users] > limit)
    bits = 62 - len(sizes).bit_length()
    draws = rng.integers(0, 1 << bits, len(at))
    draws |= users[at] << bits
    ordered = np.sort(draws)
    large = np.flatnonzero(sizes > limit)
    starts = np.cumsum(sizes[large]) - sizes[large]
    cutoffs = np.zeros(len(sizes), np.int64)
    cutoffs[large] = ordered[starts + limit - 1]
    return at[draws > cutoffs[users[at]]]


def histogram(
    keys: np.ndarray, users: np.ndarray, num_users: int, limit: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Observed keys in rising order and their weights, those at weight 0 included."""
    bits = num_users.bit_length()
    if int(keys.max(initial=0)) >> (63 - bits):
        raise OverflowError("a gram's key and a user's index must fit 63 bits together")
    pairs = keys << bits
    pairs |= users
    pairs.sort()
    pairs = pairs[np.flatnonzero(changes(pairs))]  # much faster than by the mask itself
    holders = pairs & ((1 << bits) - 1)
    pairs >>= bits
    sizes = np.bincount(holders, minlength=num_users)
    weights = (1 / np.sqrt(np.clip(sizes, 1, limit)))[holders]
    if sizes.max(initial=0) > limit:
        weights[beyond_limit(holders, sizes, limit, rng)] = 0
    starts = np.flatnonzero(changes(pairs))
    return pairs[starts], np.add.reduceat(weights, starts)


def search(ordered: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Place of each key in `ordered`, or -1."""
    places = np.searchsorted(ordered, keys)
    padded = np.append(ordered, -1)  # no key is negative
    return np.where(padded[places] == keys, places, -1)


def look_up(released: np.ndarray, keys: np.ndarray, num_keys: int) -> np.ndarray:
    """As `search`, for very many keys in [0, num_keys)."""
    if num_keys > _TABLE_CELLS:
        return search(released, keys)
    table = np.zeros(num_keys, np.int32)  # zero-filled pages cost nothing until they are touched
    table[released] = np.arange(1, len(released) + 1)
    return table[keys] - 1


def release_words(
    corpus: Corpus, sigma: float, delta: float, limit: int, rng: np.random.Generator
) -> Released:
    """S_1; leaves ids in S_1 at the corpus's positions."""
    here = np.flatnonzero(corpus.ids >= 0)
    codes = corpus.ids[here].astype(np.int64)
    keys, weights = histogram(codes, corpus.users[here], corpus.num_users, limit, rng)
    scores = weights + sigma * rng.standard_normal(len(keys))
    chosen = (weights > 0) & (scores > vocabulary_threshold(sigma, delta, limit))
    keys, scores = keys[chosen], scores[chosen]
    table = np.full(len(corpus.words) + 1, -1, np.int32)  # the last cell is for -1
    table[keys] = np.arange(len(keys))
    corpus.ids = table[corpus.ids]
    texts = [corpus.words[key] for key in keys.tolist()]
    empty = np.zeros(len(keys), np.int64)
    return Released(keys, empty, empty, scores, texts)


def compact(corpus: Corpus) -> None:
    """Keeps one -1 after each run of live positions."""
    live = corpus.ids >= 0
    live[1:] |= live[:-1].copy()
    kept = np.flatnonzero(live)
    corpus.ids, corpus.users = corpus.ids[kept], corpus.users[kept]


def draw_spurious(
    shorter: Released, left: np.ndarray, right: np.ndarray, rate: float, rng: np.random.Generator
) -> np.ndarray:
    """Keys of a Bernoulli(`rate`) subset of V_k."""
    ends = np.cumsum(left * right)
    number = rng.poisson(-int(ends[-1]) * math.log1p(-rate))
    middles = np.searchsorted(ends, rng.integers(0, ends[-1], number), "right")
    by_suffix = np.argsort(shorter.suffixes, kind="stable")
    prefixes = by_suffix[(np.cumsum(left) - left)[middles] + rng.integers(0, left[middles])]
    suffixes = (np.cumsum(right) - right)[middles] + rng.integers(0, right[middles])
    keys = np.sort(prefixes * len(shorter.keys) + suffixes)
    return keys[changes(keys)]


def spurious_scores(number: int, rate: float, sigma: float, rng: np.random.Generator) -> np.ndarray:
    """Noise, given that it passes the threshold."""
    draws = ((1 - rng.random(number)) * rate).tolist()
    return np.array([-sigma * _NORMAL.inv_cdf(draw) for draw in draws])


def release_longer(
    corpus: Corpus,
    shorter: Released,
    sigma: float,
    limit: int,
    eta: float,
    rng: np.random.Generator,
) -> Released:
    """S_k from S_{k-1}; moves the corpus's ids from the one to the other."""
    size = len(shorter.keys)
    here = np.flatnonzero((corpus.ids[:-1] | corpus.ids[1:]) >= 0)
    position_keys = corpus.ids[here].astype(np.int64)
    position_keys *= size
    position_keys += corpus.ids[1:][here]
    keys, weights = histogram(position_keys, corpus.users[here], corpus.num_users, limit, rng)

    middles = 1 + max(shorter.prefixes.max(), shorter.suffixes.max())
    left = np.bincount(shorter.suffixes, minlength=middles)
    right = np.bincount(shorter.prefixes, minlength=middles)
    rate = eta * min(1.0, size / int(left @ right))
    scores = weights + sigma * rng.standard_normal(len(keys))
    chosen = scores > -sigma * _NORMAL.inv_cdf(rate)
    spurious = draw_spurious(shorter, left, right, rate, rng)
    spurious = spurious[search(keys, spurious) < 0]
    scores = np.append(scores[chosen], spurious_scores(len(spurious), rate, sigma, rng))
    keys = np.append(keys[chosen], spurious)
    order = np.argsort(keys)
    keys, scores = keys[order], scores[order]

    corpus.ids = np.full(len(corpus.ids), -1, np.int32)
    corpus.ids[here] = look_up(keys, position_keys, size * size)
    prefixes, suffixes = np.divmod(keys, size)
    texts = [
        f"{shorter.texts[prefix]} {shorter.texts[suffix].rpartition(' ')[2]}"
        for prefix, suffix in zip(prefixes.tolist(), suffixes.tolist(), strict=True)
    ]
    return Released(keys, prefixes, suffixes, scores, texts)


def release(
    corpus: Corpus, options: argparse.Namespace, rng: np.random.Generator
) -> list[Released]:
    """S_1 to S_T; stops where nothing longer can be valid."""
    vocabulary_delta = options.delta * options.vocabulary_delta_share
    sigma = gaussian_stddev(options.epsilon, options.delta - vocabulary_delta)
    sigma *= math.sqrt(options.max_length)
    limit = options.max_contributions
    levels = [release_words(corpus, sigma, vocabulary_delta, limit, rng)]
    for _ in range(2, options.max_length + 1):
        if not np.isin(levels[-1].suffixes, levels[-1].prefixes).any():
            break
        compact(corpus)
        eta = options.spurious_fraction
        levels.append(release_longer(corpus, levels[-1], sigma, limit, eta, rng))
    return levels


def write(levels: list[Released], output: pathlib.Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
    with open(output / "ngrams.jsonl", "w", encoding="utf-8") as file:
        for length, level in enumerate(levels, 1):
            rows = zip((-level.scores).tolist(), level.texts, strict=True)
            for negated, text in sorted(rows, key=lambda row: (row[0], row[1].encode())):
                row = {"length": length, "ngram": text, "score": -negated}
                file.write(encoder.encode(row) + "\n")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--input", required=True)
    parser.add_argument("--input_format", choices=["sequences", "jsonl"], required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--epsilon", type=float, required=True)
    parser.add_argument("--delta", type=float, required=True)
    parser.add_argument("--max_length", type=int, required=True)
    parser.add_argument("--max_contributions", type=int, required=True)
    parser.add_argument("--spurious_fraction", type=float, required=True)
    parser.add_argument("--vocabulary_delta_share", type=float, default=0.5)
    parser.add_argument("--category_names", action="store_true")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    write(release(load(options), options, np.random.default_rng()), options.output)


if __name__ == "__main__":
    main()
