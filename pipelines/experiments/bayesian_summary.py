"""The folder of the experiments of private n-gram probabilities: CSV, PNG and one Markdown file."""

import pathlib
from collections.abc import Collection, Sequence

from beam_dpne.bayesian.paper_formulas import NO_GUARANTEE
from beam_dpne.evaluation.headings import Heading, budget_text, caption_text
from beam_dpne.evaluation.secrecy import Secrecy, secrecy_of, table_text
from pipelines.experiments.bayesian_figures import figure_of
from pipelines.experiments.bayesian_parts import Experiment
from pipelines.experiments.bayesian_runs import DELTA
from pipelines.experiments.bayesian_tables import Find, table_of, targets_of
from pipelines.experiments.corpora import Source
from pipelines.experiments.results import place_file, place_marked
from pipelines.experiments.summary import FIXED_KEYS, SUMMARY, markdown_rows, no_release
from pipelines.experiments.tables import Table

TITLE = "# Private n-gram probabilities: experiments"
_INTRODUCTION = (
    "The figures and the table of Ramadan, Withers and Orr, *N-grams Bayesian Differential Privacy*, "
    "run again by `pipelines/reproduce_bayesian.py`, with ours beside them: δ = 1e-7; for every "
    "mechanism each user adds 1 of a trigram at most (C) and 30 trigrams (W), but where W is varied. "
    "KL divergence is from "
    "the distribution of all counts, without any limit."
)
_ZEROS = (
    "A threshold leaves zeros, whose divergence is infinite; the paper does not say what it did. Here "
    "the distribution of every mechanism is mixed with 1 % of the uniform one. *Best floor in "
    "hindsight* is the share that suits each mechanism best, chosen on the private data: no mechanism "
    "could do so."
)
_PAPER = (
    f"The paper's mechanism has {NO_GUARANTEE}. Its curves are no private releases at their ε; the "
    "experiment `counterexample` shows what its noise tells. k-anonymity has no differential privacy "
    "guarantee either."
)


def write_summary(
    folder: pathlib.Path,
    experiments: Sequence[Experiment],
    chosen: Sequence[str],
    find: Find,
    *,
    private: Source,
    redraw: Collection[str],
) -> None:
    """Writes all tables and pictures that there are results for, and the text around them.

    Args:
      folder: of the output; files of an earlier run are replaced.
      experiments: all of them.
      chosen: names of those that were asked for.
      find: results so far.
      private: of the users' texts.
      redraw: names of those whose pictures are drawn; others keep what there is.
    """
    lines = [TITLE, "", f"> **{private.secrecy.notice}**", ""]
    lines += [_INTRODUCTION, "", _ZEROS, "", f"**{_PAPER}**", "", FIXED_KEYS, ""]
    lines += ["| data | |", "|---|---|", f"| {private.title} | {private.note} |"]
    lines += _section(folder, targets_of(experiments, find), private.title, private.secrecy)
    for experiment in experiments:
        if experiment.name not in chosen:
            continue
        if any(find(run) is not None for run in experiment.runs):
            heading = _heading(experiment, private)
            if experiment.name in redraw:
                _draw(folder, experiment, find, heading)
            table = table_of(experiment, find)
            lines += _section(folder, table, experiment.data or private.title, heading.secrecy)
        else:
            lines += ["", f"## {experiment.title}", "", "Not run yet."]
    place_file(folder / SUMMARY, "\n".join(lines) + "\n")


def _heading(experiment: Experiment, private: Source) -> Heading:
    """What its picture says of an experiment; what was made up is no secret."""
    epsilons = [run.epsilon for run in experiment.runs]
    budget = budget_text(epsilons, [None if epsilon is None else DELTA for epsilon in epsilons])
    data = experiment.data or private.title
    keys = {run.key for run in experiment.runs}
    is_public = private.is_public or experiment.data is not None
    return Heading(caption_text(budget, data, no_release(keys)), secrecy_of(is_public=is_public))


def _draw(folder: pathlib.Path, experiment: Experiment, find: Find, heading: Heading) -> None:
    picture = figure_of(experiment, find, heading)
    if picture is not None:
        place_marked(folder, f"{experiment.name}.png", picture, heading.secrecy)


def _section(folder: pathlib.Path, table: Table, data: str, secrecy: Secrecy) -> list[str]:
    columns = {"data": data, "of the paper's mechanism": NO_GUARANTEE}
    text = table_text(table.headings, table.rows, secrecy, columns)
    csv_name = place_marked(folder, f"{table.name}.csv", text, secrecy)
    lines = ["", f"## {table.title}", ""]
    picture = f"{secrecy.prefix}{table.name}.png"
    if (folder / picture).is_file():
        lines += [f"![{table.title}]({picture})", ""]
    lines += markdown_rows(table)
    for note in table.notes:
        lines += ["", note]
    return [*lines, "", f"Table: [{csv_name}]({csv_name})"]
