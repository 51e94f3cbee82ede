"""python -m pipelines.experiments.series TITLES OUTPUT

Twelve monthly releases of public titles, one title a line, as one series with ε = 8 and δ = 1e-6 for
the year. The titles are dealt to made-up people, of whom .8 appear in one month, and .2 in each month
with probability 1/3; whoever appears has one title. The table says how many n-grams all twelve releases
have, by the largest number of releases in which one person takes part, without and with the last
release known.
"""

import argparse
import gzip
import json
import pathlib
import random
from collections.abc import Sequence

from beam_dpne.cli.display import print_table
from beam_dpne.cli.main import main as beam_dpne
from beam_dpne.release.reading import read_release

MONTHS = 12
OFTEN = 0.2
MONTHLY = 1 / 3
TIMES = (12, 4, 2, 1)


def write_months(titles: pathlib.Path, folder: pathlib.Path) -> None:
    """Writes the input of each month; titles are dealt until there are none left."""
    with gzip.open(titles, "rt", encoding="utf-8") as lines:
        texts = [line.strip() for line in lines]
    chance = random.Random(1)
    chance.shuffle(texts)
    months: list[list[str]] = [[] for _ in range(MONTHS)]
    person = 0
    while texts:
        person += 1
        if chance.random() < OFTEN:
            own = [month for month in range(MONTHS) if chance.random() < MONTHLY]
        else:
            own = [chance.randrange(MONTHS)]
        for month in own[: len(texts)]:
            months[month].append(json.dumps({"user": f"person {person}", "text": texts.pop()}))
    for number, rows in enumerate(months, 1):
        path = folder / f"{number:02}.jsonl"
        path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def released(folder: pathlib.Path, times: int, *, is_known: bool) -> list[int]:
    """Releases all months as a series; returns the number of n-grams of each release."""
    kind = f"{times}-{'known' if is_known else 'alone'}"
    series = [str(folder / f"series-{kind}"), "--participants", str(folder / f"private-{kind}")]
    budget = ["--epsilon", "8", "--delta", "1e-6", "--releases", str(MONTHS)]
    if beam_dpne(["series", "create", *series, *budget, "--releases_per_user", str(times)]):
        raise SystemExit(1)
    rows: list[int] = []
    for month in range(1, MONTHS + 1):
        output = folder / f"{kind}-{month:02}"
        given = ["--input", str(folder / f"{month:02}.jsonl"), "--output", str(output)]
        given += ["--max_length", "3", "--count_share", "0", "--series", *series, "--quiet"]
        if is_known and month > 1:
            given += ["--known", str(folder / f"{kind}-{month - 1:02}"), "--known_same_people"]
        if beam_dpne(["ngrams", *given]):
            raise SystemExit(1)
        rows.append(read_release(str(output)).num_rows)
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    """Makes the releases of each year, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("titles", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    given = parser.parse_args(argv)
    given.output.mkdir(parents=True)
    write_months(given.titles, given.output)
    alone = {times: released(given.output, times, is_known=False) for times in TIMES}
    known = {times: released(given.output, times, is_known=True) for times in TIMES}
    rows = [
        {
            "releases_per_user": times,
            "n-grams": sum(alone[times]),
            "times as many": f"{sum(alone[times]) / sum(alone[MONTHS]):.2f}",
            "last month": alone[times][-1],
            "with the last known": sum(known[times]),
            "times as many with it": f"{sum(known[times]) / sum(known[MONTHS]):.2f}",
            "last month with it": known[times][-1],
        }
        for times in TIMES
    ]
    print_table("NOT PRIVATE, for public data only: ε = 8, δ = 1e-6 for the year", rows)


if __name__ == "__main__":
    main()
