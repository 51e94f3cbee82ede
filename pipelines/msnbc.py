"""python pipelines/msnbc.py

Runs the paper's MSNBC experiment on the data beside this file and prints it beside Table 5;
`--strategy adaptive` runs ours under the same privacy. It is `beam-dpne ngrams` with the parameters of
the paper's section 3.2, and with the category names in the file's header as words. With another
strategy only ε, δ, T and η are the paper's. As in the paper, the whole budget is for n-grams.
"""

import dataclasses
import hashlib
import json
import pathlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from beam_dpne.cli import main
from beam_dpne.cli.commands import COMMANDS
from beam_dpne.elements import processor
from beam_dpne.jobs.made import Made

if TYPE_CHECKING:
    import pyarrow as pa

    from beam_dpne.release.reading import Release

DATA = pathlib.Path(__file__).parent / "data" / "msnbc990928.seq.gz"
TABLE_5 = (17, 254, 1273, 1954, 2221, 2020)
BEST_LENGTHS = (2, 3, 6)
BEST = 10
PAPER = {
    "input": str(DATA),
    "input_format": "sequences",
    "epsilon": 1.0,
    "delta": 1e-7,
    "max_length": 6,
    "strategy": "one_round",
    "count_share": 0.0,
    "output": "release/msnbc",
}
PAPER_MAX_CONTRIBUTIONS = 10
_SEQUENCES = "% Sequences:"
_HEAD_BYTES = 4096


class CategoryNames:
    """A tokenizer that replaces page categories, numbered from 1 in the data, by their names.

    Attributes:
      tokenizer_name: its name in ledgers and in the context of a run key.
      version: the digest of the names, on which the tokens depend.
    """

    tokenizer_name = "msnbc_categories"

    def __init__(self, names: Sequence[str]):
        """Takes the names of the categories in the order of their numbers."""
        import pyarrow as pa

        self._names = pa.array(names, pa.string())
        self.version = hashlib.sha256(json.dumps(list(names)).encode()).hexdigest()

    def __call__(self, texts: "pa.Array") -> "pa.ListArray":
        """Splits at blanks and replaces numbers by names."""
        import pyarrow as pa

        from beam_dpne.documents import tokenizers

        visits = tokenizers.whitespace(texts)
        # Only the distinct numbers, a dozen of them, are parsed and looked up.
        encoded = visits.values.dictionary_encode()
        numbers = encoded.dictionary.cast(pa.int32()).to_numpy(zero_copy_only=False)
        names = self._names.take(pa.array(numbers - 1)).take(encoded.indices)
        return pa.ListArray.from_arrays(visits.offsets, names)


def category_names(path: str) -> list[str]:
    """Returns the category names of the file's header, in the order of their numbers.

    Raises:
      UsageError: if the file has no such header.
    """
    from beam_dpne.errors import UsageError
    from beam_dpne.reading.files import TextFile, guarded

    with guarded(path), TextFile(path) as text:
        head, found, _ = text.read(_HEAD_BYTES).partition(_SEQUENCES)
    lines = [line for line in head.splitlines() if line.strip()]
    names = [line.split() for line in lines if not line.startswith("%")]
    if not found or len(names) != 1:
        raise UsageError(f"`input` must begin with the header of the MSNBC data, got {path}.")
    return names[0]


def release_msnbc(argv: Sequence[str]) -> int:
    """Runs the experiment; options of `beam-dpne ngrams` change its parameters."""
    processor.set_numpy()
    ngrams = next(each for each in COMMANDS if each.name == "ngrams")
    command = dataclasses.replace(ngrams, description=__doc__ or "", run=_run)
    given, _ = command.parser().parse_known_args(argv)
    values = {name: value for name, value in PAPER.items() if getattr(given, name) is None}
    if values.get("strategy") and given.max_contributions is None:
        values["max_contributions"] = PAPER_MAX_CONTRIBUTIONS
    return main.run_command(command, [*(f"--{n}={value}" for n, value in values.items()), *argv])


def _run(made: Made, beam_arguments: list[str]) -> None:
    from beam_dpne.cli import runs
    from beam_dpne.jobs.parameters import Input
    from beam_dpne.reading.options import names_of
    from beam_dpne.storage.directories import check_access

    inputs = names_of(made[Input].input)
    check_access(inputs, [])
    tokenizer = CategoryNames(category_names(inputs[-1]))
    release = runs.run(made, beam_arguments, tokenizer)
    if release is not None:
        _print_comparison(release)
        _print_best(release)


def _print_comparison(release: "Release") -> None:
    """Prints the numbers of released n-grams beside the paper's, by length."""
    from beam_dpne.cli import display

    ours = {row["length"]: row["released"] for row in release.lengths}
    paper = dict(enumerate(TABLE_5, start=1))
    rows = [
        {
            "length": str(length),
            "ours": number,
            "paper": paper.get(length),
            "difference": f"{number / paper[length] - 1:+.1%}" if length in paper else None,
        }
        for length, number in ours.items()
    ]
    common = ours.keys() & paper.keys()
    totals = sum(ours[length] for length in common), sum(paper[length] for length in common)
    whole = {"ours": totals[0], "paper": totals[1]}
    rows.append({"length": "all", **whole, "difference": f"{totals[0] / totals[1] - 1:+.1%}"})
    display.print_table("Ours beside the paper (Kim et al. 2021, Table 5, row DPNE)", rows)


def _print_best(release: "Release") -> None:
    """Prints the first n-grams of some lengths: those with most users, or with the highest scores."""
    import pyarrow.compute as pc

    from beam_dpne.cli import display

    title = "Most users" if release.has_counts else "Highest scores"
    column = release.value_column
    for length in BEST_LENGTHS:
        rows = release.rows.filter(pc.field("length") == length).slice(0, BEST).to_pylist()
        if rows:
            table = [{"n-gram": row["ngram"], column: row[column]} for row in rows]
            display.print_table(f"{title}, length {length}", table)


if __name__ == "__main__":
    sys.exit(release_msnbc(sys.argv[1:]))
