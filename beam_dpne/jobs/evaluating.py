"""An evaluation: a release beside the private data from which it came, for the operator."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.documents.tokenizers import Tokenizer
from beam_dpne.elements.arrays import places_in
from beam_dpne.elements.rows import SEPARATOR
from beam_dpne.errors import AbsentFieldError, UsageError
from beam_dpne.evaluation.corpus import Corpus, index_corpus, read_corpus, released_codes
from beam_dpne.evaluation.judging import (
    Coverage,
    JudgedRows,
    evaluate,
    evaluate_counts,
    families_of,
    rows_of_table,
)
from beam_dpne.evaluation.reports import MARK, tables_of
from beam_dpne.jobs.asking import Evaluating
from beam_dpne.jobs.inputs import as_released, read_inputs, with_rules
from beam_dpne.jobs.made import Made
from beam_dpne.jobs.parameters import Tokenizing
from beam_dpne.jobs.showing import Showing, lines_of
from beam_dpne.lists.known import KnownNgrams, read_known_again
from beam_dpne.reading.files import InputFile
from beam_dpne.reading.frames import Frame
from beam_dpne.reading.options import names_of
from beam_dpne.release.reading import Release

# Numbers k of which an evaluation shows what part is released of the n-grams that k users have.
_BETWEEN_WORDS = pc.MatchSubstringOptions(SEPARATOR)
_LEVELS = (1, 2, 5, 10, 20, 50, 100)


class Evaluated(NamedTuple):
    """What an evaluation found; it is as secret as the data, and prints as text.

    Attributes:
      files: the files of the input.
      corpus: what they hold.
      covered: what the release has of it.
      rows: the rows of the release, by length.
      tables: the rows of each table, by its name.
      notes: sentences that a reader needs to understand them.
    """

    files: Sequence[InputFile]
    corpus: Corpus
    covered: Sequence[Coverage]
    rows: Mapping[int, JudgedRows]
    tables: dict[str, Any]
    notes: list[str]

    def __repr__(self) -> str:
        tables = (line for name in self.tables for line in lines_of(name, self.tables[name]))
        return "\n".join((f"{MARK}.", *tables, *(f"· {note}" for note in self.notes)))


def judgeable(release: Release) -> Release:
    """Returns a release that can be compared with data.

    Raises:
      UsageError: it has probabilities.
    """
    if release.program == "bayesian":
        raise UsageError(
            "`release` must be of beam-dpne ngrams, set-union or count, got "
            f"`release={release.path}`, which has the probabilities of a public vocabulary, and no "
            "n-grams that were found in the data."
        )
    return release


def evaluated(
    made: Made, release: Release, inputs: Sequence[str] | Frame, showing: Showing
) -> Evaluated:
    """Compares a release with private data.

    Args:
      made: the groups of parameters of an evaluation.
      release: the release, which is `judgeable`.
      inputs: paths of the data, or a frame.
      showing: how the operator is told and shown what happens.

    Raises:
      UsageError, ValueError, FileNotFoundError: if a parameter is wrong.
    """
    evaluating = made[Evaluating]
    reading, name = as_released(made, release.ledger)
    try:
        files, reading, _ = read_inputs(reading, inputs, name, showing=showing, shows_fields=True)
    except AbsentFieldError as error:
        raise AbsentFieldError(
            f"{error} Users and texts are those of the release: give the data that it was made from, "
            "or rename the fields of these."
        ) from None
    tokenizer = _released_tokenizer(made[Tokenizing], name, release.text_rules)
    table = _with_lengths(release.rows) if release.program == "count" else release.rows
    longest = release.max_length
    if release.program == "count":
        longest = max(table["length"].to_pylist())
    asked = names_of(evaluating.known or ())
    known = None
    if asked:
        known = read_known_again(asked, release.known_lists, longest, tokenizer)
    with showing.progress(sum(file.size for file in files)):
        corpus = read_corpus(files, reading, tokenizer)
        index = index_corpus(corpus, longest)
        covered = evaluate(index, released_codes(corpus, table), k_anonymity=_LEVELS)
        rows = rows_of_table(index, table)
        counted = evaluate_counts(index, rows, top_k=evaluating.top_k)
    tables = tables_of(covered, counted)
    if release.program == "count":
        # Which phrases have a row was public before.
        tables = {"counts": tables["counts"]}
    if known is not None:
        tables["families"] = _families(known, release, rows)
    return Evaluated(files, corpus, covered, rows, tables, _notes(release, corpus))


def _with_lengths(rows: pa.Table) -> pa.Table:
    """Returns the rows of a list with the number of words of each phrase, and its users as a score."""
    separators = pc.call_function("count_substring", [rows["ngram"]], _BETWEEN_WORDS)
    lengths = pc.call_function("add", [separators, pa.scalar(1, pa.int32())])
    scores = rows["users"].cast(pa.float64())
    return rows.append_column("length", lengths).append_column("score", scores)


def _families(
    known: KnownNgrams, release: Release, rows: Mapping[int, JudgedRows]
) -> list[dict[str, Any]]:
    """Returns how many known and new rows a release has, and how many of them are real."""
    table = release.rows
    if release.program == "set-union":
        is_known = places_in(table["item"].combine_chunks(), known.items.words) >= 0
        return families_of(rows, np.ones(len(table)), is_known)
    groups = table["group"].to_pylist() if release.has_groups else None
    is_known = known.covers(release.texts(table), groups)
    return families_of(rows, table["length"].to_numpy(), is_known)


def _given_or_stated(given: Any, rules: Mapping[str, Any], name: str) -> Any:
    return rules.get(name) if given is None else given


def _released_tokenizer(
    tokenizing: Tokenizing, name: str, rules: Mapping[str, Any]
) -> str | Tokenizer:
    """Returns a tokenizer with the rules of a release, whose list of words the operator gives again."""
    released = dataclasses.replace(
        tokenizing,
        item_separator=_given_or_stated(tokenizing.item_separator, rules, "item_separator"),
        mask=_given_or_stated(tokenizing.mask, rules, "mask"),
        fold=_given_or_stated(tokenizing.fold, rules, "fold"),
        keep=_given_or_stated(tokenizing.keep, rules, "keep"),
    )
    tokenizer = with_rules(released, name)
    if (found := getattr(tokenizer, "rules", {})) != rules:
        wrong = next(key for key in {**rules, **found} if rules.get(key) != found.get(key))
        option = wrong.removesuffix("_sha256")
        raise UsageError(
            f"`{option}` must be that of the release, whose ledger has {wrong} = "
            f"{rules.get(wrong)}, got `{option}={getattr(tokenizing, option)}`."
        )
    return tokenizer


def _notes(release: Release, corpus: Corpus) -> list[str]:
    """Returns the notes that a reader needs to understand the figures."""
    told = release.tokenizer
    notes = [
        f"The data have {corpus.tokens:,} tokens in {corpus.documents.sum():,} documents of "
        f"{len(corpus.users):,} users. All of them count, also what the run left out by its limits."
    ]
    if not release.has_counts:
        notes.append("The release has no numbers of users, so only its scores are compared.")
    if corpus.rejected:
        reasons = ", ".join(sorted(corpus.rejected_reasons))
        notes.append(f"Records that could not be used: {corpus.rejected:,} ({reasons}).")
    if corpus.tokenizer != told:
        notes.append(
            f"The tokenizer is {corpus.tokenizer} and the release's was {told}, so n-grams that look "
            "spurious may be real."
        )
    return notes
