"""python -m pipelines.forecast_profile --text reddit_titles_public.txt.gz

Makes the built-in profile `titles` of `beam-dpne plan --like titles` from public titles, one in each
line: forecasts by simulations for many numbers of users and budgets.
"""

import argparse
import json
import math
import pathlib
import sys
import time
from collections.abc import Sequence

import numpy as np

from beam_dpne import NgramsPlan
from beam_dpne.evaluation.corpus import Corpus, read_corpus
from beam_dpne.forecast.forecasting import Forecaster, LengthForecast, Width, with_documents
from beam_dpne.forecast.profiles import WIDTHS
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.options import ReadOptions

OUTPUT = pathlib.Path(__file__).parents[1] / "beam_dpne" / "forecast" / "titles.json"
TEXT = "public titles of Reddit posts, with 8 titles in the mean and few users with many"
DOCUMENTS_PER_USER = 8
USERS = (300, 1000, 3000, 10_000, 30_000, 100_000, 250_000)
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
DELTA = 1e-7
MAX_LENGTH = 5


def numbers_of(length: LengthForecast) -> list[float | None]:
    """Returns the numbers of one length as they stand in the table of a profile."""
    known = {width.users: width for width in length.widths}
    ends = [known.get(users, Width(users, math.nan, math.nan))[1:] for users in WIDTHS]
    # Less than a tenth of an n-gram or a user is not more than 0.
    numbers = [max(0.1, length.released), *length.needed]
    # In this order a NaN stays one.
    numbers += [max(end, 0.1) for pair in ends for end in pair]
    return [None if not each or math.isnan(each) else float(f"{each:.4g}") for each in numbers]


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the profile."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", required=True, help="public titles, one in each line")
    parser.add_argument("--output", default=str(OUTPUT), help="file of the profile")
    parser.add_argument(
        "--users", type=int, nargs="+", default=USERS, help="numbers of users of the grid"
    )
    parser.add_argument(
        "--max_length", type=int, default=MAX_LENGTH, help="longest n-gram of the plans"
    )
    parsed = parser.parse_args(arguments)
    reading = ReadOptions(input_format="sequences")
    crowd = read_corpus(match_inputs([parsed.text]), reading, "words")
    crowd = with_documents(crowd, DOCUMENTS_PER_USER, np.random.default_rng(0))
    budgets = [1 / NgramsPlan(epsilon=each, delta=DELTA).noise_stddev for each in EPSILONS]
    fields = {
        "text": TEXT,
        "public_users": len(crowd.users),
        "max_length": parsed.max_length,
        "users": parsed.users,
        # The outermost budgets have room, since σ depends a little on max_length.
        "budgets": [budgets[0] * 0.99, *budgets[1:-1], budgets[-1] * 1.01],
        "table": _table(crowd, parsed.max_length, parsed.users),
    }
    text = json.dumps(fields, separators=(",", ":"))
    pathlib.Path(parsed.output).write_text(text + "\n", "utf-8")


def _table(
    crowd: Corpus, max_length: int, all_users: Sequence[int]
) -> list[list[list[list[float | None]]]]:
    """Returns the forecasts at all points of the grid."""
    plans = [
        NgramsPlan(epsilon=epsilon, delta=DELTA, max_length=max_length) for epsilon in EPSILONS
    ]
    rows = []
    for users in all_users:
        start = time.monotonic()
        forecaster = Forecaster(crowd, users)
        forecasts = map(forecaster.forecast, plans)
        rows.append([[numbers_of(length) for length in each] for each in forecasts])
        print(f"{users:,} users: {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    return rows


if __name__ == "__main__":
    main()
