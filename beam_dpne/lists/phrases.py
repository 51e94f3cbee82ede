"""PhraseList: a public list of phrases or items whose users are counted.

The list is a constant of the mechanism, so it must not follow from the private data, unless it is a
release, whose own guarantee then counts as well. Each phrase of it gets a number, whether or not
anybody has it.
"""

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from beam_dpne.documents.blocks import with_group
from beam_dpne.documents.tokenizers import Tokenizer, resolve_tokenizer, tokenize, tokenizer_name
from beam_dpne.elements.arrays import places_in
from beam_dpne.elements.batches import NO_GRAM, UserBatch
from beam_dpne.elements.encoding import StoredFile
from beam_dpne.elements.rows import join_tokens, split_ngram
from beam_dpne.errors import InputError, UsageError
from beam_dpne.lists.copies import refuse_input, refuse_texts
from beam_dpne.lists.counting import codes_of_ngrams, padded_rows
from beam_dpne.lists.files import (
    RELEASE,
    TABLE,
    TEXT,
    Listed,
    foreign_escapes,
    kind_of,
    listed_in,
    read_released,
    read_table,
    release_description,
    texts_of_table,
)
from beam_dpne.lists.finding import find_rows
from beam_dpne.lists.left_out import left_out_by
from beam_dpne.lists.parameters import CountedPhrases, ListedPhrases
from beam_dpne.reading.columns import group_fault
from beam_dpne.reading.files import InputFile, line_blocks, sha256_of
from beam_dpne.reading.options import ReadOptions
from beam_dpne.storage.directories import check_access
from beam_dpne.validation import first_names, told_value

if TYPE_CHECKING:
    from beam_dpne.storage.directories import PipelineOptions

_MEANING = (
    "Every phrase of this public list has a row, whether or not anybody has it. The list is text, "
    "table, release or given (by a program). sha256 is that of the file, of the release's ledger, or "
    "of the given phrases; left_out is the number of those that the tokenizer cannot make of a text, "
    "or makes equal to another one, and of rows without a phrase or a group that can be used. The "
    "guarantee holds if the list was not made from the private data, other than as a release. The "
    "budget of a release with same_people adds to that of this one."
)
_LARGEST_LENGTH = 100
_MOST_SHOWN = 5
# These take words as they are.
_AS_THEY_ARE = ("tokens", "item")


class _Entry(NamedTuple):
    """A phrase as it is listed.

    Attributes:
      text: how it is written in the list.
      tokens: its words; None in place of what the tokenizer leaves out.
      group: its group; None without groups.
    """

    text: str
    tokens: Sequence[str | None]
    group: str | None = None


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class PhraseList:
    """Distinct phrases, sorted by the bytes of their groups and then of their texts.

    Attributes:
      texts: (K,) Arrow strings, each phrase as `join_tokens` writes it.
      groups: (K,) Arrow strings, the group in which each is counted; None without groups.
      words: the distinct words, Arrow strings; with groups each has its group in front of it.
      length: the number of words of the longest phrase.
      word_ids: (K · length,) int32, the words of each phrase as indices into `words`, −1 after them.
      section: what the ledger says of the list.
      stored: the file that holds them, if they were too large for an element (`spill`).

    Example:
      >>> phrases = PhraseList.of([("new", "york"), ("york",)])
      >>> phrases.texts.to_pylist(), len(phrases)
      (['new york', 'york'], 2)
    """

    texts: pa.Array
    groups: pa.Array | None
    words: pa.Array
    length: int
    word_ids: np.ndarray
    section: Mapping[str, Any]
    stored: StoredFile | None = None

    def __len__(self) -> int:
        return len(self.texts)

    @classmethod
    def of(
        cls, phrases: Iterable[Sequence[str]], groups: Sequence[str] | None = None
    ) -> "PhraseList":
        """Returns given phrases, each a sequence of its words as the tokenizer makes them.

        Args:
          phrases: distinct phrases.
          groups: public groups, in each of which every phrase is counted; None without groups.

        Raises:
          ValueError: if there are no phrases, or one has no words, or is repeated.
        """
        entries = [_Entry(join_tokens(tokens), tuple(tokens)) for tokens in phrases]
        return _with_section(
            _made(_usable(_in_groups(entries, groups), told_value, leaves_out=False)), None, 0
        )

    @property
    def sha256(self) -> str:
        """SHA-256 of phrases and groups, to which the run key is bound."""
        digest = hashlib.sha256(f"{len(self)} {self.groups is not None}\n".encode())
        for column in (self.texts, self.groups):
            if column is not None:
                digest.update("".join(f"{text}\n" for text in column.to_pylist()).encode())
        return digest.hexdigest()

    def held_by(self, batch: UserBatch) -> tuple[np.ndarray, np.ndarray]:
        """Returns the number of the user and the row of each phrase in texts, also repeated ones.

        Raises:
          ValueError: if the batch's positions are not of length 0.
        """
        if batch.length or batch.words is None:
            raise ValueError(f"Positions must be of length 0, got length {batch.length}.")
        # Each word's place in the list; the entry at the end is for the −1 that ends a document.
        known = np.append(places_in(batch.words, self.words), np.int32(NO_GRAM))
        starts, rows = find_rows(known[batch.ids], self.word_ids.reshape(-1, self.length))
        return np.searchsorted(batch.offsets, starts, side="right") - 1, rows


class _Found(NamedTuple):
    """What a list has, before anything is left out.

    Attributes:
      entries: the phrases.
      described: what the ledger says of a list that is stored, but for its sizes; None of another.
      place: the list in words, for messages.
      unusable: how many rows have no phrase, or no group that can be used.
    """

    entries: list[_Entry]
    described: Mapping[str, Any] | None
    place: str
    unusable: int = 0


def read_phrases(
    source: ListedPhrases | Sequence[str] | pa.Table,
    asked: CountedPhrases,
    tokenizer: str | Tokenizer,
    *,
    is_grouped: bool,
    most: int,
    inputs: Sequence[InputFile] = (),
    options: "PipelineOptions | None" = None,
    reading: ReadOptions | None = None,
) -> PhraseList:
    """Returns the phrases of a list.

    Args:
      source: where the list is, or the phrases themselves, which are read as lines, or a table of them,
        which is read as one of a file.
      asked: in which groups they are counted, and what is done with those of no text.
      tokenizer: that of the run, with its rules. It splits lines and the phrases of a table; those of a
        release that was made with it are taken as they are.
      is_grouped: whether the documents of the run have groups.
      most: the largest number of phrases, in all groups together.
      inputs: the files of the run, which the list must not be.
      options: those of the pipeline, for access to storage.
      reading: how these files are read, so that copies of them in other forms are noticed.

    Raises:
      UsageError: if the list is a file of the input, or has the same content as one, if the tokenizer
        cannot make a phrase, or a row names none, and none is to be left out, or groups are missing or
        not looked at.
      AccessError, InputError, ReleaseError, FileNotFoundError: if the list cannot be read.
    """
    if isinstance(source, ListedPhrases):
        check_access([source.phrases], [], options)
        found = _read(source, tokenizer, inputs, reading)
    elif isinstance(source, pa.Table):
        refuse_texts("phrases", list(texts_of_table(source)), inputs, reading)
        table = listed_in("phrases", source)
        entries = _as_listed(table, tokenizer, as_they_are=False)
        found = _Found(entries, None, "the table", table.unusable)
    else:
        refuse_texts("phrases", source, inputs, reading)
        lines = _of_lines(source, tokenizer, "phrases in memory")
        found = _Found(lines, None, "the list")
    leaves_out = asked.unmakeable == "leave_out"
    if found.unusable and not leaves_out:
        raise UsageError(
            "`phrases` must have a phrase in each row, and a group that can be used if there is a "
            f"column group, got {found.unusable} other rows in {found.place}. Correct the table, or "
            "set `unmakeable=leave_out`."
        )
    entries = _grouped(found.entries, asked, is_grouped=is_grouped)
    told = repr if isinstance(source, ListedPhrases) else told_value
    kept = _usable(entries, told, leaves_out=leaves_out)
    if not kept:
        raise UsageError(
            f"`phrases` must be a list of at least one phrase, got none of {found.place}."
        )
    if len(kept) > most:
        raise UsageError(
            f"`phrases` must be at most `max_phrases={most}`, got {len(kept)} of {found.place} in all "
            "groups."
        )
    left_out = found.unusable + len(entries) - len(kept)
    return _with_section(_made(kept), found.described, left_out)


def _read(
    source: ListedPhrases,
    tokenizer: str | Tokenizer,
    inputs: Sequence[InputFile],
    reading: ReadOptions | None,
) -> _Found:
    """Returns what a list has that is stored; see `read_phrases`."""
    path = source.phrases
    kind = kind_of("phrases", path)
    if source.phrases_same_people and kind != RELEASE:
        raise UsageError(f"`phrases_same_people` needs a release as phrases, got {path}.")
    if kind == RELEASE:
        release, listed = read_released("phrases", path)
        described = release_description(release, same_people=source.phrases_same_people)
        is_same = release.tokenizer == tokenizer_name(tokenizer)
        return _Found(_as_listed(listed, tokenizer, as_they_are=is_same), described, path)
    refuse_input("phrases", path, inputs, reading)
    described = {"kind": TEXT if kind == TEXT else TABLE, "sha256": sha256_of(path)}
    if kind == TEXT:
        lines = itertools.chain.from_iterable(line_blocks(path))
        return _Found(_of_lines(lines, tokenizer, f"the text {path}"), described, path)
    table = read_table("phrases", path)
    entries = _as_listed(table, tokenizer, as_they_are=False)
    return _Found(entries, described, path, table.unusable)


def _of_lines(lines: Iterable[str], tokenizer: str | Tokenizer, place: str) -> list[_Entry]:
    """Returns the phrases of lines, one each; lines of white space are passed over."""
    if tokenizer_name(tokenizer) == "tokens":
        raise InputError(
            f"`phrases` must be a table or a release with `tokenizer='tokens'`, got {place}, whose "
            "lines do not say where such tokens end."
        )
    texts = [line for line in lines if line.strip()]
    return [_Entry(*each) for each in zip(texts, _tokens_of(texts, tokenizer), strict=True)]


def _as_listed(listed: Listed, tokenizer: str | Tokenizer, *, as_they_are: bool) -> list[_Entry]:
    """Returns the phrases of a table or a release, split by the tokenizer unless taken as they are."""
    texts = listed.texts.to_pylist()
    try:
        words: list[Sequence[str | None]] = [split_ngram(text) for text in texts]
    except ValueError:
        raise foreign_escapes("phrases") from None
    if as_they_are or tokenizer_name(tokenizer) in _AS_THEY_ARE:
        words = _without_left_out(words, tokenizer)
    else:
        words = _tokens_of([" ".join(map(str, each)) for each in words], tokenizer)
    groups = [None] * len(texts) if listed.groups is None else listed.groups.to_pylist()
    return [_Entry(*each) for each in zip(texts, words, groups, strict=True)]


def _tokens_of(texts: Sequence[str], tokenizer: str | Tokenizer) -> list[Sequence[str | None]]:
    function = resolve_tokenizer(tokenizer)
    return tokenize(function, pa.array(texts, pa.string())).to_pylist()


def _without_left_out(
    words: list[Sequence[str | None]], tokenizer: str | Tokenizer
) -> list[Sequence[str | None]]:
    """Puts None in place of phrases that the rules of a tokenizer leave out of every text."""
    rules = left_out_by(tokenizer)
    if rules is None or not words:
        return words
    encoded = codes_of_ngrams([[str(word) for word in each] for each in words])
    is_left_out = rules.of_list(encoded.words, padded_rows(encoded)).tolist()
    return [[None] if left else each for each, left in zip(words, is_left_out, strict=True)]


def _grouped(entries: list[_Entry], asked: CountedPhrases, *, is_grouped: bool) -> list[_Entry]:
    """Returns the phrases in their groups; raises UsageError if they do not fit the input."""
    has_groups = any(each.group is not None for each in entries)
    if not is_grouped:
        if asked.groups:
            raise UsageError(
                "`groups` must be given with `group_field`, which names the field of groups."
            )
        if has_groups:
            raise UsageError(
                "`group_field` must be given with a list of phrases that has a column group, in whose "
                "groups they are counted. To count them among all users, take a list without it."
            )
        return entries
    if has_groups == bool(asked.groups):
        raise UsageError(
            "`group_field` needs `groups`, or a table of phrases with a column group, and not both: "
            "the groups of a count are public and cannot be found in the data."
        )
    return entries if has_groups else _in_groups(entries, asked.groups)


def _in_groups(entries: list[_Entry], groups: Sequence[str] | None) -> list[_Entry]:
    """Returns each phrase once in each group, or as it is without groups."""
    if groups is None:
        return entries
    for group in groups:
        if fault := group_fault(group):
            raise UsageError(f"`groups` must be names of groups, got {group!r}: {fault}.")
        if groups.count(group) > 1:
            raise UsageError(f"`groups` must be distinct, got {group} twice.")
    return [each._replace(group=group) for group in groups for each in entries]


def _usable(entries: list[_Entry], told: Callable[[str], str], *, leaves_out: bool) -> list[_Entry]:
    """Returns the phrases that a text can have, each once.

    Args:
      entries: the phrases.
      told: returns a phrase as an error has it; one in memory may be a text of the input.
      leaves_out: whether others are left out.

    Raises:
      UsageError: if there are others, and they are not to be left out.
    """
    seen: set[tuple[str | None, tuple[str | None, ...]]] = set()
    kept = []
    faults = []
    for each in entries:
        tokens = tuple(each.tokens)
        if not tokens or None in tokens:
            faults.append(f"{told(each.text)} (no text has it after tokenizing)")
        elif len(tokens) > _LARGEST_LENGTH:
            faults.append(f"{told(each.text)} (more than {_LARGEST_LENGTH} words)")
        elif (each.group, tokens) in seen:
            faults.append(f"{told(each.text)} (equal to another one after tokenizing)")
        else:
            seen.add((each.group, tokens))
            kept.append(each)
    if faults and not leaves_out:
        raise UsageError(
            "`phrases` must be distinct phrases that the tokenizer makes of texts, got "
            f"{first_names(faults, _MOST_SHOWN)}. Correct the list, or set `unmakeable=leave_out`."
        )
    return kept


def _made(entries: Sequence[_Entry]) -> PhraseList:
    """Returns a list of usable phrases, sorted, of which the ledger says nothing yet."""
    if not entries:
        raise ValueError("`phrases` must be at least one, got none.")
    rows = [
        (each.group or "", join_tokens([str(t) for t in each.tokens]), each) for each in entries
    ]
    rows.sort(key=lambda row: (row[0].encode(), row[1].encode()))
    ordered = [each for _, _, each in rows]
    tokens = pa.array([list(each.tokens) for each in ordered], pa.list_(pa.string()))
    groups = None
    if ordered[0].group is not None:
        groups = pa.array([each.group for each in ordered], pa.string())
        tokens = with_group(groups, tokens)
    encoded = codes_of_ngrams(tokens.to_pylist())
    padded = padded_rows(encoded)
    return PhraseList(
        texts=pa.array([text for _, text, _ in rows], pa.string()),
        groups=groups,
        words=encoded.words,
        length=padded.shape[1],
        word_ids=padded.reshape(-1).astype(np.int32),
        section={},
    )


def _with_section(
    own: PhraseList, described: Mapping[str, Any] | None, left_out: int
) -> PhraseList:
    described = described or {"kind": "given", "sha256": own.sha256}
    listed = {**described, "left_out": left_out, "phrases": len(own)}
    return dataclasses.replace(own, section={"meaning": _MEANING, "lists": [listed]})
