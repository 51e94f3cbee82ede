"""The calls with their keywords, which `docs/make_calls.py` writes here."""

import os
from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

import pyarrow as pa

from beam_dpne.bayesian.plan import ProbabilitiesPlan
from beam_dpne.documents.tokenizers import Tokenizer
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams.plan import NgramsPlan
from beam_dpne.release.whole import Release
from beam_dpne.set_union.plan import SetUnionPlan

class _ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

_Path = str | os.PathLike[str]
_Frame = _ArrowStream | Iterable[pa.RecordBatch] | _Path | Sequence[_Path]

def release_ngrams(
    frame: _Frame,
    /,
    *,
    user: str | Sequence[str] = "user",
    text: str | Sequence[str] = "text",
    epsilon: float | None = None,
    delta: float | None = None,
    plan: NgramsPlan | _Path | None = None,
    input_format: Literal[
        "auto", "json", "jsonl", "csv", "tsv", "parquet", "mbox", "sequences"
    ] = "auto",
    normalize_users: bool = False,
    record_is_user: bool = False,
    encoding: str | None = None,
    delimiter: str | None = None,
    quoting: Literal["auto", "quoted", "backslash", "none"] = "auto",
    columns: str | Sequence[str] | None = None,
    max_record_bytes: int = 16777216,
    records: str | None = None,
    where: str | Sequence[str] | None = None,
    tokenizer: str | Tokenizer | None = None,
    item_separator: str | None = None,
    mask: str | Sequence[Literal["urls", "emails", "mentions", "numbers", "html"]] | None = None,
    fold: str | Sequence[Literal["apostrophes", "width", "compatibility", "case"]] | None = None,
    keep: str | Sequence[Literal["emoji", "hashtags", "mentions"]] | None = None,
    stop_list: _Path | None = None,
    rejects: _Path | None = None,
    max_rejected: float = 0.05,
    group: str | None = None,
    known: _Path | Sequence[_Path] | None = None,
    known_min_count: int = 5,
    known_same_people: bool = False,
    public_user_count: int | None = None,
    max_length: int = 5,
    strategy: Literal["adaptive", "one_round"] = "adaptive",
    max_contributions: int | Sequence[int] | None = None,
    count_share: float = 0.15,
    spurious_fraction: float = 0.01,
    rounds: int | None = None,
    favour: Literal["words", "balanced", "long"] | None = None,
    vocabulary_delta_share: float | None = None,
    pruning: Literal["both", "single"] = "both",
    valid_count: Literal["exact", "estimate"] = "exact",
    noise_growth: float | None = None,
    budget_shares: str | Sequence[float] | None = None,
    max_tokens_per_user: int = 1000000,
    title: str | None = None,
    contact: str | None = None,
    unit: str | None = None,
    run_key: _Path | RunKey | None = None,
    partitions: int | None = None,
    workers: int | None = None,
    budget: str | None = None,
    progress: bool = True,
) -> Release: ...
def release_items(
    frame: _Frame,
    /,
    *,
    user: str | Sequence[str] = "user",
    text: str | Sequence[str] = "text",
    epsilon: float | None = None,
    delta: float | None = None,
    plan: SetUnionPlan | _Path | None = None,
    input_format: Literal[
        "auto", "json", "jsonl", "csv", "tsv", "parquet", "mbox", "sequences"
    ] = "auto",
    normalize_users: bool = False,
    record_is_user: bool = False,
    encoding: str | None = None,
    delimiter: str | None = None,
    quoting: Literal["auto", "quoted", "backslash", "none"] = "auto",
    columns: str | Sequence[str] | None = None,
    max_record_bytes: int = 16777216,
    records: str | None = None,
    where: str | Sequence[str] | None = None,
    tokenizer: str | Tokenizer | None = None,
    item_separator: str | None = None,
    mask: str | Sequence[Literal["urls", "emails", "mentions", "numbers", "html"]] | None = None,
    fold: str | Sequence[Literal["apostrophes", "width", "compatibility", "case"]] | None = None,
    keep: str | Sequence[Literal["emoji", "hashtags", "mentions"]] | None = None,
    stop_list: _Path | None = None,
    rejects: _Path | None = None,
    max_rejected: float = 0.05,
    known: _Path | Sequence[_Path] | None = None,
    known_min_count: int = 5,
    known_same_people: bool = False,
    public_user_count: int | None = None,
    policy: Literal[
        "weighted_gaussian", "sips", "policy_gaussian", "screened_gaussian"
    ] = "screened_gaussian",
    max_contributions: int = 100,
    count_share: float = 0.15,
    max_users: int = 10000000,
    cutoff_margin: float = 5.0,
    max_shard_users: int = 5000000,
    vocabulary_delta_share: float = 0.5,
    max_items_per_user: int = 1000000,
    title: str | None = None,
    contact: str | None = None,
    unit: str | None = None,
    run_key: _Path | RunKey | None = None,
    partitions: int | None = None,
    workers: int | None = None,
    budget: str | None = None,
    progress: bool = True,
) -> Release: ...
def estimate_probabilities(
    frame: _Frame,
    /,
    *,
    user: str | Sequence[str] = "user",
    text: str | Sequence[str] = "text",
    epsilon: float | None = None,
    delta: float | None = None,
    plan: ProbabilitiesPlan | _Path | None = None,
    input_format: Literal[
        "auto", "json", "jsonl", "csv", "tsv", "parquet", "mbox", "sequences"
    ] = "auto",
    normalize_users: bool = False,
    record_is_user: bool = False,
    encoding: str | None = None,
    delimiter: str | None = None,
    quoting: Literal["auto", "quoted", "backslash", "none"] = "auto",
    columns: str | Sequence[str] | None = None,
    max_record_bytes: int = 16777216,
    records: str | None = None,
    where: str | Sequence[str] | None = None,
    tokenizer: str | Tokenizer | None = None,
    item_separator: str | None = None,
    mask: str | Sequence[Literal["urls", "emails", "mentions", "numbers", "html"]] | None = None,
    fold: str | Sequence[Literal["apostrophes", "width", "compatibility", "case"]] | None = None,
    keep: str | Sequence[Literal["emoji", "hashtags", "mentions"]] | None = None,
    stop_list: _Path | None = None,
    rejects: _Path | None = None,
    max_rejected: float = 0.05,
    public: _Path,
    public_user_count: int | None = None,
    length: int = 3,
    vocabulary_size: int = 50000,
    max_count: int = 1,
    max_contributions: int = 10,
    max_tokens_per_user: int = 1000000,
    title: str | None = None,
    contact: str | None = None,
    unit: str | None = None,
    run_key: _Path | RunKey | None = None,
    partitions: int | None = None,
    workers: int | None = None,
    budget: str | None = None,
    progress: bool = True,
) -> Release: ...
