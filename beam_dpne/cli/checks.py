"""`beam-dpne check`: prints what a run would read, and what may be wrong with it."""

import collections

from beam_dpne.cli import display
from beam_dpne.evaluation.reports import MARK
from beam_dpne.jobs import console
from beam_dpne.jobs.checking import check_input
from beam_dpne.jobs.made import Made
from beam_dpne.jobs.parameters import Quiet
from beam_dpne.reading.options import format_of


def check(made: Made, beam_arguments: list[str]) -> None:
    """Reads the input as a run does, and prints what is in it and what may be wrong.

    Raises:
      BeamDpneError, ValueError, FileNotFoundError: a run would be refused for the same reason.
    """
    showing = console.showing(quiet=made[Quiet].quiet)
    found = check_input(made, beam_arguments, showing)
    files = found.files
    reading = found.reading
    kinds = collections.Counter(format_of(file.path, reading.input_format) for file in files)
    fields = ", ".join(f"{option} {field}" for option, field in reading.wanted_fields)
    display.print_line(
        f"{MARK}. Correct how the files are read by it, and choose no parameter of the plan by it."
    )
    listed_kinds = ", ".join(f"{kind}: {count:,}" for kind, count in kinds.items())
    size = sum(file.size for file in files) / 1e6
    display.print_line(
        f"Files of {listed_kinds}; {size:,.1f} MB. Fields: {fields}. Tokenizer: {found.tokenizer}."
    )
    corpus = found.corpus
    noun = "items" if found.tokenizer in ("item", "tokens") else "words"
    row = {
        "users": len(corpus.documents),
        "documents": int(corpus.documents.sum()),
        noun: corpus.tokens,
        f"distinct_{noun}": len(found.words.unique()),
        "rejected_records": corpus.rejected,
    }
    display.print_table("Input", [row])
    for problem in found.problems:
        display.print_line(f"· {problem}")
