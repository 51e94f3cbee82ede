"""One small release of every program, strategy, policy and mode, and the digest of its rows."""

import gzip
import hashlib
import itertools
import pathlib

from beam_dpne.cli.main import main
from beam_dpne.ledger import read_ledger
from beam_dpne.policy_names import POLICIES, VOCABULARY_POLICIES

DATA = pathlib.Path(__file__).parents[2] / "pipelines" / "data"
RECORDS = 6_000
KEY = "0f1e2d3c" * 8
WORDS = ("a", "and", "for", "i", "in", "is", "my", "new", "of", "on", "the", "to", "you", "your")

_NGRAMS = ("ngrams", "--epsilon", "6", "--delta", "1e-5", "--max_length", "3")
_UNION = ("set-union", "--tokenizer", "words", "--epsilon", "4", "--delta", "1e-5")
_BAYESIAN = ("bayesian", "--public", str(DATA / "reddit_titles_public_trigrams.tsv.gz"))
_BAYESIAN += ("--vocabulary_size", "2000", "--epsilon", "4", "--delta", "1e-5")
_PAPER = ("--accept_no_guarantee",)

_STRATEGIES = {
    "adaptive": (),
    "adaptive-1-round": ("--rounds", "1"),
    "adaptive-2-rounds": ("--rounds", "2"),
    "adaptive-even": ("--user_budgets", "even"),
    "adaptive-single": ("--pruning", "single"),
    "one_round": ("--strategy", "one_round"),
    "one_round-single": ("--strategy", "one_round", "--pruning", "single"),
    "one_round-estimate": ("--strategy", "one_round", "--valid_count", "estimate"),
    "one_round-growth": ("--strategy", "one_round", "--noise_growth", "0.8"),
    "one_round-whitespace": ("--strategy", "one_round", "--tokenizer", "whitespace"),
}
_MODES = {
    "counts": (),
    "counts-clamped": ("--max_count", "3"),
    "log_global": ("--mode", "log_global"),
    "paper_brute_force": ("--mode", "paper_brute_force", *_PAPER),
    "paper_claim1": ("--mode", "paper_claim1", "--tune", *_PAPER),
}


def _vocabulary(policy: str) -> tuple[str, ...]:
    """The options of n-grams whose words are found by a policy; lengths up to 2 are enough."""
    return (*_NGRAMS[:-1], "2", "--vocabulary_policy", policy)


CASES: dict[str, tuple[str, ...]] = {
    **{f"ngrams/{name}": (*_NGRAMS, *more) for name, more in _STRATEGIES.items()},
    **{
        f"ngrams/vocabulary-{policy}": _vocabulary(policy)
        for policy in VOCABULARY_POLICIES
        if policy not in ("rounds", "public")
    },
    "ngrams/vocabulary-public": (*_vocabulary("public"), "--vocabulary", "WORDS"),
    **{f"set-union/{policy}": (*_UNION, "--policy", policy) for policy in POLICIES},
    **{f"bayesian/{name}": (*_BAYESIAN, *more) for name, more in _MODES.items()},
}


def write_inputs(folder: pathlib.Path) -> None:
    """Writes the records, the key and a public vocabulary."""
    with gzip.open(DATA / "reddit_titles_sample.jsonl.gz", "rt", encoding="utf-8") as lines:
        (folder / "titles.jsonl").write_text("".join(itertools.islice(lines, RECORDS)))
    (folder / "run.key").write_text(KEY)
    (folder / "words.txt").write_text("\n".join(WORDS))


def release_digest(name: str, folder: pathlib.Path) -> str:
    """Releases one case and returns the SHA-256 of its rows; `folder` has the inputs."""
    output = folder / name.replace("/", "-")
    given = ["--input", str(folder / "titles.jsonl"), "--run_key_file", str(folder / "run.key")]
    options = [str(folder / "words.txt") if each == "WORDS" else each for each in CASES[name]]
    status = main([*options, *given, "--output", str(output), "--quiet"])
    if status != 0:
        raise AssertionError(f"{name} ended with status {status}.")
    digest = hashlib.sha256()
    for part in read_ledger(str(output))["parts"]:
        digest.update((output / part["name"]).read_bytes())
    return digest.hexdigest()
