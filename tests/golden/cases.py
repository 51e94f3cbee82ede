"""One small release of every program, strategy, policy and mode, and the digest of its rows.

Texts are lists of tokens, so that the digests do not depend on the version of Unicode's tables, which
differs between versions of Python; what the tokenizers make of texts has digests of its own.
"""

import contextlib
import gzip
import hashlib
import io
import itertools
import json
import pathlib
import re

import pyarrow as pa

from beam_dpne.cli.main import main
from beam_dpne.documents.tokenizers import resolve_tokenizer, tokenize
from beam_dpne.release.reading import read_ledger
from beam_dpne.set_union.plan import POLICIES

DATA = pathlib.Path(__file__).parents[2] / "pipelines" / "data"
RECORDS = 6_000
KEY = "0f1e2d3c" * 8

_NGRAMS = (
    "ngrams",
    "--tokenizer",
    "tokens",
    "--epsilon",
    "6",
    "--delta",
    "1e-5",
    "--max_length",
    "3",
)
_UNION = ("set-union", "--tokenizer", "tokens", "--epsilon", "4", "--delta", "1e-5")
_BAYESIAN = (
    "bayesian",
    "--tokenizer",
    "tokens",
    "--public",
    str(DATA / "reddit_titles_public_trigrams.tsv.gz"),
)
_BAYESIAN += ("--vocabulary_size", "2000", "--epsilon", "4", "--delta", "1e-5")

_STRATEGIES = {
    "adaptive": (),
    "adaptive-1-round": ("--rounds", "1"),
    "adaptive-2-rounds": ("--rounds", "2"),
    "adaptive-words": ("--favour", "words"),
    "adaptive-long": ("--favour", "long"),
    "adaptive-known": ("--known", "known.tsv"),
    "adaptive-giants": ("--max_tokens_per_user", "40"),
    "one_round": ("--strategy", "one_round"),
    "adaptive-without-counts": ("--count_share", "0"),
    "adaptive-half-for-counts": ("--count_share", "0.5"),
    "one_round-without-counts": ("--strategy", "one_round", "--count_share", "0"),
}
# Parameters that only plan files have.
_PLANS = {
    "one_round-single": {"strategy": "one_round", "pruning": "single"},
    "one_round-estimate": {"strategy": "one_round", "valid_count": "estimate"},
    "one_round-growth": {"strategy": "one_round", "noise_growth": 0.8},
    "one_round-shares": {"strategy": "one_round", "budget_shares": [0.2, 0.3, 0.5]},
}
# Groups of the titles, which follow from their first letters.
_GROUPED = {"ngrams/groups": (*_NGRAMS, "--group_field", "group")}
_COUNT = ("count", "--tokenizer", "tokens", "--phrases", "known.tsv", "--epsilon", "2")
_COUNT += ("--delta", "1e-5")
_COUNTED = {
    "count/list": _COUNT,
    "count/groups": (*_COUNT, "--group_field", "group", "--groups", "a,t,zz"),
}
_MODES = {
    "counts": (),
    "counts-clamped": ("--max_count", "3"),
}


CASES: dict[str, tuple[str, ...]] = {
    **{f"ngrams/{name}": (*_NGRAMS, *more) for name, more in _STRATEGIES.items()},
    **{f"ngrams/{name}": (*_NGRAMS[:3], "--plan", name) for name in _PLANS},
    **_GROUPED,
    **{f"set-union/{policy}": (*_UNION, "--policy", policy) for policy in POLICIES},
    "set-union/known": (*_UNION, "--known", "known.tsv"),
    **{f"bayesian/{name}": (*_BAYESIAN, *more) for name, more in _MODES.items()},
    **_COUNTED,
}


TOKENIZERS = ("words", "whitespace", "unicode_words", "item")
# Characters that every version of Unicode's tables treats alike, and that tokenizers tell apart.
SIGNS = [
    "Don't 'tis y''all",
    "a_b ___ 3.14",
    "NAI\u0308VE l’été",
    "❤\ufe0f x\u0301",
    "東京へ",
    "a\u00a0b\tc",
]
_TOKEN = re.compile(r"[a-z0-9']+")


def titles() -> list[dict[str, str]]:
    """The first records of the sample that the repository ships."""
    with gzip.open(DATA / "reddit_titles_sample.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in itertools.islice(lines, RECORDS)]


def known() -> list[str]:
    """The words and n-grams of the public trigrams that the repository ships."""
    with gzip.open(DATA / "reddit_titles_public_trigrams.tsv.gz", "rt", encoding="utf-8") as lines:
        grams = [line.partition("\t")[0].split(" ") for line in lines]
    parts = {
        " ".join(gram[start:end])
        for gram in grams
        for start, end in itertools.combinations(range(4), 2)
    }
    return sorted(parts)


def tokens_digest(name: str) -> str:
    """The SHA-256 of what a tokenizer makes of the ASCII titles and of some signs."""
    texts = [record["text"] for record in titles() if record["text"].isascii()]
    rows = tokenize(resolve_tokenizer(name), pa.array([*texts, *SIGNS])).to_pylist()
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def write_inputs(folder: pathlib.Path) -> None:
    """Writes the records, the key and the plans."""
    records = [(record["user"], _TOKEN.findall(record["text"].lower())) for record in titles()]
    lines = [
        json.dumps({"user": user, "text": tokens, "group": "".join(tokens)[:1] or "none"}) + "\n"
        for user, tokens in records
    ]
    (folder / "titles.jsonl").write_text("".join(lines))
    (folder / "run.key").write_text(KEY)
    (folder / "known.tsv").write_text("\n".join(["ngram", *known()]) + "\n")
    for name, parameters in _PLANS.items():
        plan = {"epsilon": 6, "delta": 1e-5, "max_length": 3, **parameters}
        (folder / name).write_text(json.dumps(plan))


def release_digest(name: str, folder: pathlib.Path, *more: str) -> str:
    """Releases one case and returns the SHA-256 of its rows; `folder` has the inputs."""
    output = folder / "-".join([name.replace("/", "-"), *more])
    given = ["--input", str(folder / "titles.jsonl"), "--run_key_file", str(folder / "run.key")]
    files = {*_PLANS, "known.tsv"}
    options = [str(folder / each) if each in files else each for each in CASES[name]]
    with contextlib.redirect_stdout(io.StringIO()):
        arguments = [*options, *more, *given, "--output", str(output), "--quiet"]
        status = main([str(argument) for argument in arguments])
    if status != 0:
        raise AssertionError(f"{name} ended with status {status}.")
    digest = hashlib.sha256()
    for part in read_ledger(str(output))["parts"]:
        digest.update((output / part["name"]).read_bytes())
    return digest.hexdigest()
