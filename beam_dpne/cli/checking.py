"""`beam-dpne check`: what a run would read, in exact numbers that are for the operator alone."""

import collections

import numpy as np
import pyarrow.compute as pc

from beam_dpne.cli import display, parameters, runners
from beam_dpne.cli.commands import Made
from beam_dpne.cli.inputs import read_inputs, reading_of, tokenizer_name, with_rules
from beam_dpne.errors import UsageError
from beam_dpne.evaluation.corpus import Corpus, read_corpus
from beam_dpne.evaluation.reports import MARK
from beam_dpne.reading.options import format_of, names_of
from beam_dpne.storage.directories import check_access

_FEW_USERS = 1000
_WORD = r"^[\p{L}\p{M}'’_\x{1f}-]+$"


def check(made: Made, beam_arguments: list[str]) -> None:
    """Reads the input as a run does, and prints what is in it and what may be wrong.

    Raises:
      UsageError, InputError, FileNotFoundError: a run would be refused for the same reason.
    """
    runners.beam_options(beam_arguments, made.names)
    if parameters.Input not in made:
        raise UsageError("input must be given.")
    inputs, name = names_of(made[parameters.Input].input), tokenizer_name(made)
    check_access(inputs, [])
    files, reading = read_inputs(reading_of(made), inputs, name, quiet=False)
    quiet = made[parameters.Quiet].quiet
    with display.progress_line(sum(file.size for file in files), quiet=quiet):
        corpus = read_corpus(files, reading, with_rules(made[parameters.Tokenizing], name))
    kinds = collections.Counter(format_of(file.path, reading.input_format) for file in files)
    fields = ", ".join(f"{option} {field}" for option, field in reading.wanted_fields)
    display.print_line(
        f"{MARK}. Correct how the files are read by it, and choose no parameter of the plan by it."
    )
    listed = ", ".join(f"{kind}: {count:,}" for kind, count in kinds.items())
    size = sum(file.size for file in files) / 1e6
    display.print_line(f"Files of {listed}; {size:,.1f} MB. Fields: {fields}. Tokenizer: {name}.")
    row = {"users": len(corpus.users), "documents": int(corpus.documents.sum())}
    noun = "items" if name in ("item", "tokens") else "words"
    row |= {noun: corpus.tokens, f"distinct_{noun}": len(corpus.words)}
    row |= {"rejected_records": corpus.rejected}
    display.print_table("Input", [row])
    for problem in problems(corpus, made[parameters.Rejecting].max_rejected, name):
        display.print_line(f"· {problem}")


def problems(corpus: Corpus, max_rejected: float, tokenizer: str) -> list[str]:
    """Returns what may be wrong with an input; it names no user and no word."""
    found, users = [], len(corpus.users)
    documents = corpus.documents
    if corpus.rejected:
        share = corpus.rejected / (corpus.rejected + documents.sum())
        fate = "so that a run fails" if share > max_rejected else "which --rejects DIR lists"
        reasons = ", ".join(sorted(corpus.rejected_reasons))
        found.append(f"About {share:.2%} of the records are rejected, {fate}: {reasons}.")
    if users < _FEW_USERS:
        found.append("The users are few; beam-dpne plan shows how many of them an n-gram needs.")
    most = documents.max() / documents.sum()
    if most > 0.1:
        found.append(f"One user has {most:.0%} of the documents. Does the user field name people?")
    if documents.max() == 1 and users > 1:
        found.append("Each user has one document. Does the user field hold numbers of records?")
    are_words = pc.call_function(
        "match_substring_regex", [corpus.words], pc.MatchSubstringOptions(_WORD)
    )
    times = np.bincount(corpus.codes[corpus.codes >= 0], minlength=len(corpus.words))
    strange = times[~np.asarray(are_words.to_numpy(zero_copy_only=False), bool)].sum() / times.sum()
    if tokenizer not in ("item", "tokens") and strange > 0.3:
        found.append(f"{strange:.0%} of the words are not letters alone, as numbers and codes are.")
    return found or ["Nothing looks wrong."]
