"""The quality of released numbers of users, over several run keys, as tables on stdout.

Not private: results are counted on the data, under run keys that are public. Only for public data.
"""

import dataclasses
import functools
import itertools
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from beam_dpne.cli import display
from beam_dpne.counts.rule import COUNT_SHARE
from beam_dpne.evaluation.corpus import Corpus, GramIndex, index_corpus, read_corpus
from beam_dpne.evaluation.counts import TOP_K, CountQuality, JudgedRows, count_quality
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.options import ReadOptions
from beam_dpne.validation import check_integer
from pipelines.experiments import runner
from pipelines.experiments.corpora import Source
from pipelines.experiments.count_runs import (
    JudgedLength,
    ReleaseCache,
    deal_documents,
    judge_release,
    places_in,
)
from pipelines.experiments.runner import fixed_key
from pipelines.experiments.saved_corpora import load_corpus, save_corpus

# Ends of the bands of released numbers of users in the last table.
BANDS = (0, 30, 100, 300, 1000, 3000, 10**12)
Number = float | int | None
# The figure and the format of each column, by its heading.
Columns = Mapping[str, tuple[str, str]]
Judged = Mapping[str, Sequence[JudgedLength]]
_MEASURED = ("coverage", "within_factor_two", "median_relative_error")


def main(argv: Sequence[str], data: pathlib.Path) -> int:
    """Runs the program and returns its exit status.

    Args:
      argv: Options.
      data: Folder of the data that ship with the repository.
    """
    parser = runner.program("measure_counts.py", __doc__)
    add = parser.add_argument
    add("--input", help="JSON lines with user and text (default: the sample of titles)")
    add("--deal", type=int, default=0, help="deal the lines to so many made-up users")
    add("--epsilon", type=_floats, default=(4.0,), help="ε, or several with commas")
    add("--delta", type=float, default=1e-7, help="δ of each release")
    add("--max_length", type=int, default=5, help="T, the longest n-grams")
    add("--keys", type=int, default=3, help="number of run keys; tables show medians")
    add("--count_share", type=float, default=COUNT_SHARE, help="part for numbers of users")
    add("--max_contributions", type=int, default=100, help="Δ of the paper's algorithm")
    add("--top_k", type=int, default=TOP_K, help="k of the top k")
    add("--cache", help="directory that keeps the data and releases, as secret as the data")
    add("--quiet", action="store_true", help="no progress on stderr")
    return runner.run(parser, argv, lambda given: _command(vars(given), data))


def _floats(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


def _command(values: Mapping[str, Any], data: pathlib.Path) -> None:
    for name in ("keys", "top_k", "max_length"):
        check_integer(name, values[name], 1)
    check_integer("deal", values["deal"], 0)
    plans = [(epsilon, _plans(epsilon, values)) for epsilon in values["epsilon"]]
    print(runner.NOTICE)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(values["cache"] or temporary)
        cache = _cache(values, data, folder)
        for epsilon, plan_by_name in plans:
            _print(epsilon, values, _measure(plan_by_name, cache, values))


def _plans(epsilon: float, values: Mapping[str, Any]) -> dict[str, PrivacyPlan]:
    """Returns the plans: with counts, without them, and the paper's algorithm without them."""
    common: dict[str, Any] = {name: values[name] for name in ("delta", "max_length")}
    paper = {"strategy": "one_round", "max_contributions": values["max_contributions"]}
    return {
        "counted": PrivacyPlan(epsilon=epsilon, **common, count_share=values["count_share"]),
        "uncounted": PrivacyPlan(epsilon=epsilon, **common, count_share=0.0),
        "one_round": PrivacyPlan(epsilon=epsilon, **common, count_share=0.0, **paper),
    }


def _cache(values: Mapping[str, Any], data: pathlib.Path, folder: pathlib.Path) -> ReleaseCache:
    """Returns the cache of releases of the input, which is read if a release is missing."""
    path = values["input"] or str(data / runner.TITLES_FILE)
    kind = "sequences" if values["deal"] else "auto"
    source = Source(
        path=path,
        title="",
        note="",
        reading=ReadOptions(input_format=kind),
        tokenizer="words",
    )
    digest = f"{source.digest} {values['deal']}"

    @functools.lru_cache(maxsize=1)
    def corpus() -> Corpus:
        saved = folder / f"corpus-{source.digest[:12]}-{values['deal']}"
        if not (saved / "corpus.json").is_file():
            files = match_inputs([path], kind)
            read = read_corpus(files, source.reading, source.tokenizer)
            if values["deal"]:
                read = deal_documents(read, values["deal"], seed=0)
            save_corpus(read, saved)
        return load_corpus(saved)

    @functools.lru_cache(maxsize=1)
    def index() -> GramIndex:
        return index_corpus(corpus(), values["max_length"])

    return ReleaseCache(folder, digest, corpus, index)


def _measure(
    plans: Mapping[str, PrivacyPlan], cache: ReleaseCache, values: Mapping[str, Any]
) -> list[Judged]:
    """Returns the rows of each length, by plan, for each run key."""
    measured = []
    for key in range(1, values["keys"] + 1):
        run_key = fixed_key(key)
        judged: dict[str, Sequence[JudgedLength]] = {}
        for name, plan in plans.items():
            started = time.monotonic()
            judged[name] = judge_release(cache.release(plan, run_key), plan, run_key)
            if not values["quiet"]:
                seconds = time.monotonic() - started
                line = f"ε = {plan.epsilon:g}, key {key}, {name}: {seconds:.1f} s"
                print(line, file=sys.stderr, flush=True)
        measured.append(judged)
    return measured


def _print(epsilon: float, values: Mapping[str, Any], measured: Sequence[Judged]) -> None:
    """Prints the tables of medians over run keys."""
    what = f"ε = {epsilon:g}, medians of {values['keys']} keys"
    top_k = values["top_k"]
    # (keys, T + 1) figures; the last of each key are of all lengths together.
    figures = [
        [
            *(_figures(run_of_length, top_k) for run_of_length in _by_length(run)),
            _figures({name: _together(lengths) for name, lengths in run.items()}, top_k),
        ]
        for run in measured
    ]
    names = (*map(str, range(1, values["max_length"] + 1)), "all")
    for title, columns in _tables(top_k):
        rows = [
            [name, *(_cell([row[key] for row in same], form) for key, form in columns.values())]
            for name, *same in zip(names, *figures, strict=True)
        ]
        display.print_table(f"{title}; {what}", ("length", *columns), rows)
    rows = []
    for first, last in itertools.pairwise(BANDS):
        parts = [
            _figures_of_counts(_band(_together(run["counted"]), first, last)) for run in measured
        ]
        cells = [_cell([part[key] for part in parts], form) for key, form in _OF_BANDS.values()]
        rows.append(
            [f"{first:,} to {last:,}" if last < BANDS[-1] else f"{first:,} and more", *cells]
        )
    headings = ("users", *_OF_BANDS)
    display.print_table(f"By released numbers of users, all lengths; {what}", headings, rows)


def _tables(top_k: int) -> tuple[tuple[str, Columns], ...]:
    """Returns the titles of the tables, and the figure and the format of each of their columns."""
    return (
        (
            "Released n-grams with counts and without, and their loss by counts",
            {
                "with counts": ("released", ",.0f"),
                "without": ("without", ",.0f"),
                "loss": ("loss", ".1%"),
                "one_round": ("paper", ",.0f"),
                "spurious": ("spurious", ",.0f"),
            },
        ),
        (
            "Numbers of users and their intervals; 'below' and 'above' are the shares of true numbers "
            "outside of them",
            _OF_COUNTS,
        ),
        (
            f"Ranks (Spearman) and overlap of the top {top_k}, by users, by scores, and by one_round's "
            "scores; 'both' is over the n-grams that with counts and one_round release",
            {
                "ρ users": ("rank_correlation", ".3f"),
                "ρ score": ("score_rank_correlation", ".3f"),
                "both": ("both", ",.0f"),
                "both: ρ users": ("users_of_both", ".3f"),
                "both: ρ one_round": ("paper_of_both", ".3f"),
                "top users": ("top", ".0f"),
                "top score": ("score_top", ".0f"),
                "top one_round": ("paper_top", ".0f"),
            },
        ),
    )


_OF_COUNTS: Columns = {
    "coverage": ("coverage", ".1%"),
    "below": ("below", ".1%"),
    "above": ("above", ".1%"),
    "within 2": ("within_factor_two", ".1%"),
    "high ≤ 2 low": ("narrow", ".1%"),
    "error": ("median_relative_error", ".1%"),
    "bias": ("bias", "+.1%"),
}
_OF_BANDS: Columns = {"n-grams": ("released", ",.0f"), **_OF_COUNTS}


def _by_length(run: Judged) -> Iterator[dict[str, JudgedLength]]:
    for rows in zip(*run.values(), strict=True):
        yield dict(zip(run, rows, strict=True))


def _figures(rows: Mapping[str, JudgedLength], top_k: int) -> dict[str, Number]:
    """Returns all figures of one run key and one length, or of all lengths together.

    Args:
      rows: The rows by plan.
      top_k: Size of the tops.
    """
    counted, plain, paper = (rows[name] for name in ("counted", "uncounted", "one_round"))
    quality, theirs = _quality(counted, top_k), _quality(paper, top_k)
    places = places_in(paper.ngrams, counted.ngrams)
    ours_of_both = _taken(counted, np.flatnonzero(places >= 0))
    paper_of_both = _taken(paper, places[places >= 0])
    without = plain.rows.truth.size
    return {
        **_figures_of_counts(counted),
        "without": without,
        "loss": 1 - counted.rows.truth.size / without if without else None,
        "paper": paper.rows.truth.size,
        "spurious": int((counted.rows.truth == 0).sum()),
        "rank_correlation": quality.rank_correlation,
        "score_rank_correlation": quality.score_rank_correlation,
        "top": quality.top,
        "score_top": quality.score_top,
        "paper_top": theirs.score_top,
        "both": ours_of_both.rows.truth.size,
        "users_of_both": _quality(ours_of_both, top_k).rank_correlation,
        "paper_of_both": _quality(paper_of_both, top_k).score_rank_correlation,
    }


def _figures_of_counts(counted: JudgedLength) -> dict[str, Number]:
    """Returns the figures of estimates and intervals; all but the first are over real rows."""
    quality = _quality(counted, 1)
    figures: dict[str, Number] = {
        "released": counted.rows.truth.size,
        **{key: getattr(quality, key) for key in _MEASURED},
        **dict.fromkeys(("below", "above", "narrow", "bias")),
    }
    real = counted.rows.truth > 0
    if counted.rows.users is not None and real.any():
        truth, (users, low, high) = counted.rows.truth[real], counted.rows.users[real].T
        figures["below"] = float(np.mean(truth < low))
        figures["above"] = float(np.mean(truth > high))
        figures["narrow"] = float(np.mean(high <= 2 * np.maximum(low, 1)))
        # The estimates' typical ratio to the truth, less 1.
        figures["bias"] = float(np.median(users / truth)) - 1
    return figures


def _quality(judged: JudgedLength, top_k: int) -> CountQuality:
    if not judged.length:
        return count_quality(judged.rows)
    return count_quality(judged.rows, judged.length, judged.common[:top_k])


def _cell(found: Sequence[Number], form: str) -> str:
    values = [value for value in found if value is not None]
    return format(statistics.median(values), form) if values else "–"


def _together(judged: Sequence[JudgedLength]) -> JudgedLength:
    """Returns the rows of all lengths, under the length 0, which has no top."""
    rows = JudgedRows.together([each.rows for each in judged])
    texts = pa.concat_arrays([each.ngrams for each in judged])
    return JudgedLength(length=0, ngrams=texts, rows=rows, common=np.zeros(0, np.int64))


def _taken(judged: JudgedLength, places: np.ndarray) -> JudgedLength:
    """Returns the rows at some places."""
    rows = judged.rows
    users = None if rows.users is None else rows.users[places]
    rows = JudgedRows(truth=rows.truth[places], scores=rows.scores[places], users=users)
    return dataclasses.replace(judged, ngrams=judged.ngrams.take(pa.array(places)), rows=rows)


def _band(judged: JudgedLength, first: int, last: int) -> JudgedLength:
    """Returns the rows whose estimated number is above `first` and at most `last`."""
    if judged.rows.users is None:
        return _taken(judged, np.zeros(0, np.int64))
    users = judged.rows.users[:, 0]
    return _taken(judged, np.flatnonzero((users > first) & (users <= last)))
