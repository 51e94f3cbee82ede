"""The experiments of two papers in one command: tables in one folder, with ours beside them.

NOT private: results are counted on the data, under run keys that are public. Only for public data.
"""

import argparse
import os
import pathlib
import tempfile
from collections.abc import Mapping, Sequence

from beam_dpne.reading.options import ReadOptions
from pipelines.experiments import dealing, paper_parts, paper_tables, runner
from pipelines.experiments.corpora import Corpora, Source
from pipelines.experiments.experiments import Part
from pipelines.experiments.paper_measuring import measure

MSNBC_FILE = "msnbc990928.seq.gz"
PARTS = ("msnbc", "titles", "spurious", "set_union", "sweeps", "best")
_PARAGRAPHS = (
    "The tables and figures of two papers, run again by `pipelines/reproduce_papers.py`, with ours "
    "beside them. DPNE: Kim et al., *Differentially Private n-gram Extraction* (NeurIPS 2021). DPSU: "
    "Gopi et al., *Differentially Private Set Union* (ICML 2020).",
    "All runs of n-grams are without numbers of users (`--count_share 0`), which the papers do not "
    "release, so that every method spends its whole budget on n-grams.",
)
_SAMPLE = 10


def main(argv: Sequence[str], data: pathlib.Path) -> int:
    """Runs the experiments and returns the exit status.

    Args:
      argv: options.
      data: folder of the data that ship with the repository.
    """
    parser = runner.program("reproduce_papers.py", __doc__)
    runner.add_study_options(parser, PARTS)
    parser.add_argument("--msnbc", help="the MSNBC data, if not those of the repository")
    parser.add_argument(
        "--public_text",
        help="public text for the part best, a text on each line or JSON lines with text; it is dealt "
        "to made-up users (default: the texts of the sample)",
    )
    parser.add_argument(
        "--full", action="store_true", help="everything at full size; hours instead of one"
    )
    return runner.run(parser, argv, lambda given: _command(given, data))


def _command(given: argparse.Namespace, data: pathlib.Path) -> None:
    runner.check_parts(given, PARTS)
    if given.full and given.quick:
        raise ValueError("full and quick must not be given together.")
    scale = paper_parts.DEFAULT
    if given.full or given.quick:
        scale = paper_parts.FULL if given.full else paper_parts.QUICK
    with tempfile.TemporaryDirectory() as folder:
        cache = pathlib.Path(folder)
        sources = sources_of(given, data)
        if "best" in given.parts:
            sources |= dealt_sources(given, data, cache)
        sweeps = "titles_tenth" if "titles_tenth" in sources else "titles"
        chosen = paper_parts.all_parts(scale, titles="titles", sweeps=sweeps)
        parts = tuple(part for part in chosen if part.name in given.parts)
        corpora = Corpora(sources, cache, runner.fixed_key(0), longest_of(parts))
        study = runner.Study(
            title="# The papers' experiments",
            paragraphs=_PARAGRAPHS,
            data={source.title: source.note for source in sources.values()},
            parts=parts,
            makers=paper_tables.MAKERS,
            measure=lambda run, run_key: measure(run, corpora, run_key),
        )
        runner.run_study(study, given)


def longest_of(parts: Sequence[Part]) -> Mapping[str, int]:
    """Returns the length up to which each corpus is counted."""
    longest: dict[str, int] = {}
    for run in (run for part in parts for run in part.runs):
        longest[run.corpus] = max(longest.get(run.corpus, 1), run.longest)
    return longest


def sources_of(given: argparse.Namespace, data: pathlib.Path) -> dict[str, Source]:
    """Returns the data by name: "msnbc", "titles", and "titles_tenth" for sweeps unless all is full.

    The sample that ships with the repository is not cut down further.
    """
    path = given.titles or str(data / runner.TITLES_FILE)
    name = os.path.basename(path)
    texts = Source(
        path=path,
        title=f"titles ({name})" if given.titles else "titles (the sample in the repository)",
        note=f"{name}, tokenizer words; not the papers' data",
        reading=ReadOptions(),
        tokenizer="words",
    )
    sources = {
        "msnbc": Source(
            path=given.msnbc or str(data / MSNBC_FILE),
            title="MSNBC page visits",
            note="one document a user; the data of DPNE, Table 5",
            reading=ReadOptions(input_format="sequences"),
            tokenizer="whitespace",
        ),
        "titles": texts,
    }
    if given.titles and not given.full:
        sources["titles_tenth"] = Source(
            path=path,
            title=f"a keyed tenth of the users of titles ({name})",
            note="each user is in it with probability 1/10",
            reading=texts.reading,
            tokenizer=texts.tokenizer,
            one_in=_SAMPLE,
        )
    return sources


def dealt_sources(
    given: argparse.Namespace, data: pathlib.Path, cache: pathlib.Path
) -> dict[str, Source]:
    """Returns public texts dealt to users with one text each, and to users with 2,000 words each."""
    path = given.public_text or str(data / runner.TITLES_FILE)
    name = os.path.basename(path)
    return {
        kind: Source(
            path=dealing.write_dealt(path, words, cache / f"{kind}.jsonl"),
            title=f"public texts ({name}) dealt to made-up users of {holding}",
            note="the texts are real, the users are made up",
            reading=ReadOptions(),
            tokenizer="words",
        )
        for kind, words, holding in (
            (dealing.SHORT, 0, "one text"),
            (dealing.LONG, dealing.WORDS_OF_LONG, f"{dealing.WORDS_OF_LONG:,} words"),
        )
    }
