"""The papers' experiments in one command: tables, pictures and a summary in one folder.

Not private: results are counted on the data, under run keys that are public. Only for public data.
"""

import functools
import os
import pathlib
from collections.abc import Sequence

from beam_dpne.cli.options import Option
from beam_dpne.errors import UsageError
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.reading.options import ReadOptions
from beam_dpne.storage.run_files import RunKeyFile
from pipelines.experiments import dealing, paper_figures, paper_parts, paper_tables, printed
from pipelines.experiments.corpora import Corpora, Source
from pipelines.experiments.paper_measuring import measure
from pipelines.experiments.program import (
    TITLES_FILE,
    Report,
    Values,
    common_options,
    fixed_key,
    run_study,
)
from pipelines.experiments.study import FIXED_KEYS, SECRET_KEYS, Study

MSNBC_FILE = "msnbc990928.seq.gz"
PARTS = ("targets", "msnbc", "titles", "spurious", "set_union", "sweeps", "best")
OPTIONS = (
    *common_options(PARTS, "One key and few values: to see that it works, in minutes."),
    Option(
        name="msnbc",
        path="file",
        help="The MSNBC data, if not the file that ships with this program.",
    ),
    Option(
        name="public_text",
        path="file",
        help="Public text for the part best, a text on each line, or JSON lines with text; it is dealt "
        "to made-up users. Without it, the texts of the sample that ships with this program.",
    ),
    Option(
        name="full",
        flag=True,
        help="Everything at full size, with more keys and values; hours instead of one.",
    ),
    Option(
        name="run_key_file",
        path="file",
        help="A file with 64 hexadecimal digits from which the run keys follow, instead of the numbers "
        "1, 2, 3.",
    ),
)
TITLE = "# The papers' experiments"
_PARAGRAPHS = (
    "The tables and figures of two papers, run again by `pipelines/reproduce_papers.py`, with ours "
    "beside them. DPNE: Kim et al., *Differentially Private n-gram Extraction* (NeurIPS 2021). DPSU: "
    "Gopi et al., *Differentially Private Set Union* (ICML 2020).",
    "All runs of n-grams are without numbers of users (`--count_share 0`), which the papers do not "
    "release, so that every method spends its whole budget on n-grams.",
    "Real and spurious n-grams are distinguished on the data themselves, by an evaluation in memory "
    "that is not private.",
)
_SAMPLE = 10


def main(argv: Sequence[str], data: pathlib.Path) -> int:
    """Runs the experiments.

    Args:
      argv: options.
      data: folder of the data that ship with the repository.
    """
    return run_study(
        argv,
        program="reproduce_papers.py",
        description=__doc__,
        title=TITLE,
        options=OPTIONS,
        parts=PARTS,
        make=functools.partial(_make, data=data),
    )


def _make(values: Values, cache: pathlib.Path, report: Report, *, data: pathlib.Path) -> Study:
    if values["full"] and values["quick"]:
        raise UsageError("full and quick must not be given together.")
    base = RunKeyFile.checked(values["run_key_file"]) if values["run_key_file"] else None

    def key_of(number: int) -> RunKey:
        return base.bound_to(f"experiment {number}") if base else fixed_key(number)

    sources = sources_of(values, data)
    if "best" in values["parts"]:
        sources |= dealt_sources(values, data, cache)
    scale = paper_parts.DEFAULT
    if values["full"] or values["quick"]:
        scale = paper_parts.FULL if values["full"] else paper_parts.QUICK
    sweeps = "titles_tenth" if "titles_tenth" in sources else "titles"
    chosen = paper_parts.all_parts(scale, titles="titles", sweeps=sweeps)
    parts = tuple(part for part in chosen if part.name in values["parts"])
    longest: dict[str, int] = {}
    for run in (run for part in parts for run in part.runs):
        longest[run.corpus] = max(longest.get(run.corpus, 1), run.longest)
    corpora = Corpora(sources, cache, key_of(0), longest)
    return study_of(
        parts,
        sources,
        measure=lambda run, run_key: measure(run, corpora, run_key),
        key_of=key_of,
        keys=base.sub_key("experiments").hex() if base else "numbers",
        keys_note=SECRET_KEYS if base else FIXED_KEYS,
    )


def study_of(parts, sources, **settings) -> Study:
    """Returns the study of some parts; other settings are the fields of `Study`."""
    return Study(
        title=TITLE,
        paragraphs=_PARAGRAPHS,
        sources=sources,
        parts=tuple(parts),
        makers=paper_tables.MAKERS,
        drawers=paper_figures.DRAWERS,
        claims={
            "dpne_figure_4_anonymity": printed.DPNE_FIGURE_4_CLAIM,
            "dpsu_table_2": printed.DPSU_SIZE_CLAIM,
        },
        **settings,
    )


def sources_of(values: Values, data: pathlib.Path) -> dict[str, Source]:
    """Returns the data by name: "msnbc", "titles", and "titles_tenth" for sweeps unless all is full.

    The sample that ships with the repository is not cut down further.
    """
    visits = ReadOptions(input_format="sequences")
    titles = values["titles"]
    path = titles or str(data / TITLES_FILE)
    name = os.path.basename(path)
    note = f"{name}, tokenizer words; not the papers' data"
    declared_public = bool(values.get("public_data"))
    title = f"titles ({name})" if titles else "titles (the sample in the repository)"
    texts = Source(
        path=path,
        title=title,
        note=note,
        reading=ReadOptions(),
        tokenizer="words",
        is_public=declared_public or not titles,
    )
    sources = {
        "msnbc": Source(
            path=values["msnbc"] or str(data / MSNBC_FILE),
            title="MSNBC page visits",
            note="one document a user; the data of DPNE, Table 5",
            reading=visits,
            tokenizer="whitespace",
            is_public=declared_public or not values["msnbc"],
        ),
        "titles": texts,
    }
    if titles and not values["full"]:
        sources["titles_tenth"] = Source(
            path=path,
            title=f"a keyed tenth of the users of titles ({name})",
            note="each user is in it with probability 1/10",
            reading=texts.reading,
            tokenizer=texts.tokenizer,
            one_in=_SAMPLE,
            is_public=texts.is_public,
        )
    return sources


def dealt_sources(values: Values, data: pathlib.Path, cache: pathlib.Path) -> dict[str, Source]:
    """Returns public texts dealt to users with one text each, and to users with 2,000 words each."""
    path = values["public_text"] or str(data / TITLES_FILE)
    name = os.path.basename(path)
    cache.mkdir(parents=True, exist_ok=True)
    return {
        kind: Source(
            path=dealing.write_dealt(path, words, cache / f"{kind}.jsonl"),
            title=f"public texts ({name}) dealt to made-up users of {holding}",
            note="the texts are real, the users are made up",
            reading=ReadOptions(),
            tokenizer="words",
            is_public=True,
        )
        for kind, words, holding in (
            (dealing.SHORT, 0, "one text"),
            (dealing.LONG, dealing.WORDS_OF_LONG, f"{dealing.WORDS_OF_LONG:,} words"),
        )
    }
