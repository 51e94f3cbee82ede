"""The quality of released numbers of users, over several run keys, as tables on stdout.

Not private: results are counted on the data, under run keys that are public. Only for public data.
"""

import argparse
import dataclasses
import functools
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from beam_dpne import reading
from beam_dpne.cli import display
from beam_dpne.cli.main import OneLineParser, run_program
from beam_dpne.cli.options import Option, add_options, integer, number, numbers, with_defaults
from beam_dpne.counts.rule import COUNT_SHARE
from beam_dpne.errors import UsageError
from beam_dpne.evaluation.corpus import Corpus, read_corpus
from beam_dpne.evaluation.counts import TOP_K, JudgedRows, length_quality, total_quality
from beam_dpne.evaluation.index import index_corpus
from beam_dpne.evaluation.secrecy import NOTICE
from beam_dpne.ngrams.plan import PrivacyPlan
from pipelines.experiments.corpora import Source
from pipelines.experiments.count_runs import (
    JudgedLength,
    ReleaseCache,
    deal_documents,
    judge_release,
    places_in,
)
from pipelines.experiments.program import TITLES_FILE, fixed_key
from pipelines.experiments.saved_corpora import load_corpus, save_corpus

PROGRAM = "measure_counts.py"
OPTIONS = (
    Option(
        name="input",
        path="file",
        help="Texts of users, JSON lines with user and text; without it, the sample of titles that "
        "ships with this program.",
    ),
    Option(
        name="deal",
        default=0,
        parse=integer,
        help="The input has one text a line and no users: deal the texts to so many made-up users.",
    ),
    Option(name="epsilon", default=(4.0,), parse=numbers, help="ε, or several with commas."),
    Option(name="delta", default=1e-7, parse=number, help="δ of each release."),
    Option(name="max_length", default=5, parse=integer, help="T, the longest n-grams."),
    Option(name="keys", default=3, parse=integer, help="Number of run keys; tables show medians."),
    Option(
        name="count_share",
        default=COUNT_SHARE,
        parse=number,
        help="Part of the budget for numbers of users.",
    ),
    Option(
        name="max_contributions",
        default=100,
        parse=integer,
        help="Δ of the paper's algorithm (one_round).",
    ),
    Option(name="top_k", default=TOP_K, parse=integer, help="k of the top k."),
    Option(
        name="cache",
        path="directory",
        help="Local directory that keeps the data and releases without numbers of users, both as "
        "secret as the data, so that changed estimates are measured again in seconds.",
    ),
    Option(name="quiet", flag=True, help="No progress on stderr."),
)
# Ends of the bands of released numbers of users in the last table.
BANDS = (0, 30, 100, 300, 1000, 3000, 10**12)
Number = float | int | None


def main(argv: Sequence[str], data: pathlib.Path) -> int:
    """Runs the program and returns its exit status.

    Args:
      argv: Options.
      data: Folder of the data that ship with the repository.
    """
    parser = OneLineParser(
        prog=PROGRAM,
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_options(parser, "measuring", OPTIONS)
    parser.set_defaults(command=functools.partial(_command, data=data))
    return run_program(parser, argv)


def _command(
    parsed: argparse.Namespace, beam_arguments: Sequence[str], data: pathlib.Path
) -> None:
    if beam_arguments:
        raise UsageError(f"{PROGRAM} has no option {beam_arguments[0].split('=')[0]}.")
    values = with_defaults(parsed, OPTIONS)
    for name in ("keys", "top_k", "max_length"):
        if values[name] < 1:
            raise UsageError(f"{name} must be at least 1, got {name}={values[name]}.")
    if values["deal"] < 0:
        raise UsageError(f"deal must be at least 0, got deal={values['deal']}.")
    plans = [(epsilon, _plans(epsilon, values)) for epsilon in values["epsilon"]]
    if values["input"]:
        display.print_line(NOTICE)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(values["cache"] or temporary)
        cache = _cache(values, data, folder)
        for epsilon, plan_by_name in plans:
            _print(epsilon, values, _measure(plan_by_name, cache, values))


def _plans(epsilon: float, values: Mapping[str, Any]) -> dict[str, PrivacyPlan]:
    """Returns the plans: with counts, without them, and the paper's algorithm without them."""
    common = {name: values[name] for name in ("delta", "max_length")} | {"epsilon": epsilon}
    paper = {"strategy": "one_round", "max_contributions": values["max_contributions"]}
    return {
        "counted": PrivacyPlan(**common, count_share=values["count_share"]),
        "uncounted": PrivacyPlan(**common, count_share=0.0),
        "one_round": PrivacyPlan(**common, count_share=0.0, **paper),
    }


def _cache(values: Mapping[str, Any], data: pathlib.Path, folder: pathlib.Path) -> ReleaseCache:
    """Returns the cache of releases of the input, which is read if a release is missing."""
    path = values["input"] or str(data / TITLES_FILE)
    kind = "sequences" if values["deal"] else "auto"
    source = Source(
        path=path,
        title="",
        note="",
        reading=reading.ReadOptions(input_format=kind),
        tokenizer="words",
    )
    digest = f"{source.digest} {values['deal']}"

    @functools.lru_cache(maxsize=1)
    def corpus() -> Corpus:
        saved = folder / f"corpus-{source.digest[:12]}-{values['deal']}"
        if not (saved / "corpus.json").is_file():
            files = reading.match_inputs([path], kind)
            read = read_corpus(files, source.reading, source.tokenizer)
            if values["deal"]:
                read = deal_documents(read, values["deal"], seed=0)
            save_corpus(read, saved)
        return load_corpus(saved)

    @functools.lru_cache(maxsize=1)
    def index():
        return index_corpus(corpus(), values["max_length"])

    return ReleaseCache(folder, digest, corpus, index)


def _measure(
    plans: Mapping[str, PrivacyPlan], cache: ReleaseCache, values: Mapping[str, Any]
) -> list[dict[str, list[JudgedLength]]]:
    """Returns the rows of each length, by plan, for each run key."""
    measured = []
    for key in range(1, values["keys"] + 1):
        run_key, judged = fixed_key(key), {}
        for name, plan in plans.items():
            started = time.monotonic()
            judged[name] = judge_release(cache.release(plan, run_key), plan, run_key)
            if not values["quiet"]:
                seconds = time.monotonic() - started
                line = f"ε = {plan.epsilon:g}, key {key}, {name}: {seconds:.1f} s"
                print(line, file=sys.stderr, flush=True)
        measured.append(judged)
    return measured


def _print(epsilon: float, values: Mapping[str, Any], measured: Sequence[dict[str, list]]) -> None:
    """Prints four tables of medians over run keys."""
    what = f"ε = {epsilon:g}, medians of {values['keys']} keys"
    top_k = values["top_k"]
    lengths = range(values["max_length"])
    names = (*map(str, range(1, values["max_length"] + 1)), "all")

    def table(title: str, columns: Mapping[str, tuple[Callable[..., Number], str]]) -> None:
        rows = []
        for place, name in enumerate(names):
            cells = []
            for measure, form in columns.values():
                if place < len(lengths):
                    found = [measure(*(run[plan][place] for plan in run)) for run in measured]
                else:
                    found = [measure(*map(_together, run.values())) for run in measured]
                cells.append(_cell(found, form))
            rows.append([name, *cells])
        display.print_rows(f"{title}; {what}", ("length", *columns), rows)

    def quality(name: str) -> Callable[..., Number]:
        return lambda counted, *_: getattr(_quality(counted, top_k), name)

    table(
        "Released n-grams with counts and without, and their loss by counts",
        {
            "with counts": (lambda counted, *_: counted.rows.truth.size, ",.0f"),
            "without": (lambda _, plain, __: plain.rows.truth.size, ",.0f"),
            "loss": (_loss, ".1%"),
            "one_round": (lambda _, __, paper: paper.rows.truth.size, ",.0f"),
            "spurious": (lambda counted, *_: int((counted.rows.truth == 0).sum()), ",.0f"),
        },
    )
    table(
        "Numbers of users and their intervals",
        {
            "coverage": (quality("coverage"), ".1%"),
            "truth below": (functools.partial(_missed, side=1), ".1%"),
            "truth above": (functools.partial(_missed, side=-1), ".1%"),
            "within 2": (quality("within_factor_two"), ".1%"),
            "high ≤ 2 low": (_narrow, ".1%"),
            "error": (quality("median_relative_error"), ".1%"),
            "bias": (_bias, "+.1%"),
        },
    )
    table(
        f"Ranks (Spearman) and overlap of the top {top_k}, by users, by scores, and by one_round's "
        "scores; 'both' is over the n-grams that with counts and one_round release",
        {
            "ρ users": (quality("rank_correlation"), ".3f"),
            "ρ score": (quality("score_rank_correlation"), ".3f"),
            "both": (lambda counted, _, paper: _both(counted, paper)[0].truth.size, ",.0f"),
            "both: ρ users": (_users_of_both, ".3f"),
            "both: ρ one_round": (_scores_of_both, ".3f"),
            "top users": (quality("top"), ".0f"),
            "top score": (quality("score_top"), ".0f"),
            "top one_round": (lambda _, __, paper: _quality(paper, top_k).score_top, ".0f"),
        },
    )
    rows = []
    for first, last in zip(BANDS[:-1], BANDS[1:], strict=True):
        parts = [_band(_together(run["counted"]), first, last) for run in measured]
        cells = [
            _cell([part.rows.truth.size for part in parts], ",.0f"),
            *(_cell([getattr(_quality(p, 1), name) for p in parts], ".1%") for name in _OF_BANDS),
            _cell([_bias(part) for part in parts], "+.1%"),
        ]
        rows.append([f"{first:,} to {last:,}" if last < BANDS[-1] else f"above {first:,}", *cells])
    headings = ("users, estimated", "n-grams", "coverage", "within 2", "error", "bias")
    display.print_rows(f"By released numbers of users, all lengths; {what}", headings, rows)


_OF_BANDS = ("coverage", "within_factor_two", "median_relative_error")


def _together(judged: Sequence[JudgedLength]) -> JudgedLength:
    """Returns the rows of all lengths; length is 0, which has no top k."""
    parts = [each.rows for each in judged]
    counted = [part.users for part in parts if part.users is not None]
    rows = JudgedRows(
        truth=np.concatenate([part.truth for part in parts]),
        scores=np.concatenate([part.scores for part in parts]),
        users=np.concatenate(counted) if counted else None,
    )
    texts = pa.concat_arrays([each.ngrams for each in judged])
    return JudgedLength(length=0, ngrams=texts, rows=rows, common=np.zeros(0, np.int64))


def _quality(judged: JudgedLength, top_k: int):
    if not judged.length:
        return total_quality([judged.rows])
    last = judged.common[:top_k]
    return length_quality(
        judged.length, judged.rows, top_k=last.size, users_of_last=int(last.min(initial=2**31))
    )


def _cell(found: Iterable[Number], form: str) -> str:
    values = [value for value in found if value is not None]
    return format(statistics.median(values), form) if values else "–"


def _loss(counted: JudgedLength, plain: JudgedLength, _: JudgedLength) -> Number:
    before = plain.rows.truth.size
    return 1 - counted.rows.truth.size / before if before else None


def _estimates(judged: JudgedLength) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns the truth and the estimates of real rows, or None if there are none."""
    real = judged.rows.truth > 0
    if judged.rows.users is None or not real.any():
        return None
    return judged.rows.truth[real], judged.rows.users[real]


def _missed(counted: JudgedLength, *_: JudgedLength, side: int) -> Number:
    """Returns the share of true numbers below the interval (side = 1), or above it (side = −1)."""
    found = _estimates(counted)
    if found is None:
        return None
    truth, users = found
    return float(np.mean(truth < users[:, 1] if side > 0 else truth > users[:, 2]))


def _narrow(counted: JudgedLength, *_: JudgedLength) -> Number:
    found = _estimates(counted)
    if found is None:
        return None
    _, users = found
    return float(np.mean(users[:, 2] <= 2 * np.maximum(users[:, 1], 1)))


def _bias(counted: JudgedLength, *_: JudgedLength) -> Number:
    """Returns the median of users / true number, less 1."""
    found = _estimates(counted)
    return None if found is None else float(np.median(found[1][:, 0] / found[0])) - 1


def _both(counted: JudgedLength, paper: JudgedLength) -> tuple[JudgedRows, JudgedRows]:
    """Returns the rows that both releases have, in the same order."""
    places = places_in(paper.ngrams, counted.ngrams)
    ours, theirs = np.flatnonzero(places >= 0), places[places >= 0]
    return _taken(counted.rows, ours), _taken(paper.rows, theirs)


def _taken(rows: JudgedRows, places: np.ndarray) -> JudgedRows:
    users = None if rows.users is None else rows.users[places]
    return JudgedRows(truth=rows.truth[places], scores=rows.scores[places], users=users)


def _users_of_both(counted: JudgedLength, _: JudgedLength, paper: JudgedLength) -> Number:
    return total_quality([_both(counted, paper)[0]]).rank_correlation


def _scores_of_both(counted: JudgedLength, _: JudgedLength, paper: JudgedLength) -> Number:
    if not counted.length:
        return None
    theirs = _both(counted, paper)[1]
    return length_quality(1, theirs, top_k=1, users_of_last=1).score_rank_correlation


def _band(judged: JudgedLength, first: int, last: int) -> JudgedLength:
    """Returns the rows whose estimated number is above `first` and at most `last`."""
    if judged.rows.users is None:
        return dataclasses.replace(judged, rows=_taken(judged.rows, np.zeros(0, np.int64)))
    users = judged.rows.users[:, 0]
    inside = np.flatnonzero((users > first) & (users <= last))
    return dataclasses.replace(judged, rows=_taken(judged.rows, inside))
