"""python -m pipelines.experiments.living TITLES OUTPUT [--known]

Twelve monthly releases of public titles, one title a line, dealt to made-up users: each user has one
title a month, at a total of ε = 8 and δ = 1.2e-6 for the year. A sixth of the titles is kept as public
text. From month 5 on, one user in a hundred also has a new phrase. The table says how many n-grams each
month releases, and what `beam-dpne compare` says of the phrase. With --known each release knows the
public text and the last release.
"""

import argparse
import gzip
import json
import pathlib
import random
from collections.abc import Sequence

import pyarrow.compute as pc

from beam_dpne.accounting.composition import plan_of_each
from beam_dpne.cli.display import print_table
from beam_dpne.cli.main import main as beam_dpne
from beam_dpne.ngrams.plan import NgramsPlan
from beam_dpne.release.changes import compare_releases
from beam_dpne.release.reading import read_release

MONTHS = 12
FIRST = 5
PHRASE = "zorbax plimket"
YEAR = NgramsPlan(epsilon=8, delta=1.2e-6)


def write_months(titles: pathlib.Path, folder: pathlib.Path) -> None:
    """Writes the input of each month, and the public text."""
    with gzip.open(titles, "rt", encoding="utf-8") as lines:
        texts = [line.strip() for line in lines]
    random.Random(1).shuffle(texts)
    of_month = len(texts) * 5 // 6 // MONTHS
    for month in range(MONTHS):
        own = texts[month * of_month : (month + 1) * of_month]
        with open(folder / f"{month + 1:02}.jsonl", "w", encoding="utf-8") as file:
            for user, text in enumerate(own):
                has_phrase = month + 1 >= FIRST and user % 100 == 0
                text_of_month = f"{text} {PHRASE}" if has_phrase else text
                file.write(json.dumps({"user": f"u{user}", "text": text_of_month}) + "\n")
    public = texts[MONTHS * of_month :]
    (folder / "public.txt").write_text("\n".join(public) + "\n", encoding="utf-8")


def release(folder: pathlib.Path, month: int, *, is_known: bool) -> pathlib.Path:
    """Releases a month; returns the folder of its release."""
    kind = "known" if is_known else "alone"
    output, last = (folder / f"{kind}-{each:02}" for each in (month, month - 1))
    lists = [folder / "public.txt", *([last] if month > 1 else [])]
    known = [part for each in lists for part in ("--known", str(each))]
    known += ["--known_same_people"] if month > 1 else []
    given = ["--input", str(folder / f"{month:02}.jsonl"), "--output", str(output)]
    given += ["--plan", str(folder / "plan.json"), "--overwrite", "--quiet"]
    if status := beam_dpne(["ngrams", *given, *(known if is_known else [])]):
        raise SystemExit(status)
    return output


def main(argv: Sequence[str] | None = None) -> None:
    """Makes the releases of a year, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("titles", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--known", action="store_true")
    given = parser.parse_args(argv)
    given.output.mkdir(parents=True, exist_ok=True)
    write_months(given.titles, given.output)
    plan = plan_of_each(YEAR, MONTHS)
    (given.output / "plan.json").write_text(plan.to_json())
    rows = []
    last = {}
    for month in range(1, MONTHS + 1):
        row: dict[str, object] = {"month": month}
        for is_known in (False, True) if given.known else (False,):
            name = " known" if is_known else ""
            found = read_release(str(release(given.output, month, is_known=is_known)))
            row[f"n-grams{name}"] = found.num_rows
            if is_known in last:
                changes = compare_releases(last[is_known], found)
                own = changes.filter(pc.field("ngram") == PHRASE)["change"].to_pylist()
                row[f"phrase{name}"] = own[0] if own else "–"
            else:
                row[f"phrase{name}"] = "–"
            last[is_known] = found
        rows.append(row)
    title = (
        f"NOT PRIVATE, for public data only: ε = {plan.epsilon:g}, δ = {plan.delta:g} each month"
    )
    print_table(title, rows)


if __name__ == "__main__":
    main()
