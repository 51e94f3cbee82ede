"""KnownNgrams: public lists of n-grams, which need less evidence than others.

A list is a constant of the mechanism, so it must not follow from the private data, unless it is a
release, whose own guarantee then counts as well. What n-grams that are known mean for a run is in the
rooms of the programs.
"""

import collections
import dataclasses
import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.documents.blocks import EncodedTokens, with_group, without_groups
from beam_dpne.documents.tokenizers import Tokenizer, resolve_tokenizer, tokenize, tokenizer_name
from beam_dpne.elements.arrays import byte_order, byte_ranks, used_words
from beam_dpne.elements.dictionaries import merge_words
from beam_dpne.elements.encoding import StoredFile
from beam_dpne.elements.rows import split_ngram
from beam_dpne.errors import UsageError
from beam_dpne.lists.copies import refuse_input
from beam_dpne.lists.counting import codes_of_ngrams, count_ngrams, distinct_rows, rows_of_lengths
from beam_dpne.lists.files import (
    TABLE,
    TEXT,
    kind_of,
    listed_codes,
    read_released,
    read_table,
    read_text,
    release_description,
)
from beam_dpne.lists.left_out import left_out_by, refuse_left_out
from beam_dpne.lists.parameters import KNOWN_MIN_COUNT, KnownLists
from beam_dpne.reading.files import InputFile, sha256_of
from beam_dpne.reading.options import ReadOptions, names_of
from beam_dpne.release.places import has_ledger, is_release
from beam_dpne.storage.directories import check_access
from beam_dpne.storage.paths import split

if TYPE_CHECKING:
    from beam_dpne.storage.directories import PipelineOptions

_MEANING = (
    "These lists were known before the run, and their n-grams needed less evidence. A list is text, "
    "table, release or given (by a program). sha256 is that of the file, of the release's ledger, or "
    "of the given n-grams; ngrams is the number of n-grams that the run knew from it, of which a set "
    "union knows the words, and left_out the number of those that its tokenizer cannot make. The "
    "guarantee holds if no list was made from the private data, other than as a release. The budget "
    "of a release with same_people adds to that of this one; a release about other people takes "
    "nothing from the users of this one."
)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class KnownItems:
    """Items that are likely by what is public, as `KnownNgrams.items` gives them.

    Attributes:
      words: (n,) Arrow strings, distinct.
      sha256: their digest, to which the run key is bound.
      section: what the ledger says of their lists.
      stored: the file that holds them, if they were too large for an element (`spill`).
    """

    words: pa.Array
    sha256: str
    section: Mapping[str, Any]
    stored: StoredFile | None = None

    def __len__(self) -> int:
        return len(self.words)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class KnownNgrams:
    """N-grams that are likely, by what is public: texts, tables and releases.

    Attributes:
      words: (w,) Arrow strings, distinct, sorted by their bytes.
      grams: for each length from 1 on, (n, length) int32 row numbers of `words`, sorted and distinct.
      lists: what the ledger says of each list.

    Example:
      >>> known = KnownNgrams.of([("new", "york"), ("york",)])
      >>> len(known), known.words.to_pylist()
      (2, ['new', 'york'])
    """

    words: pa.Array
    grams: tuple[np.ndarray, ...]
    lists: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def of(
        cls, ngrams: Iterable[Sequence[str]], *, tokenizer: str | Tokenizer = "tokens"
    ) -> "KnownNgrams":
        """Returns given n-grams, each a sequence of its words as the tokenizer makes them.

        Args:
          ngrams: the n-grams.
          tokenizer: that of the run; n-grams with words that it cannot make, or that its rules leave
            out, are left out. By default all are taken as they are.

        Raises:
          ValueError: if an n-gram has no words, or words that are no text.
        """
        known = cls._of_encoded(codes_of_ngrams(ngrams))
        return known.makeable(tokenizer, {"kind": "given", "sha256": known.sha256})

    @classmethod
    def from_text(
        cls,
        path: str,
        *,
        max_length: int = 5,
        min_count: int = KNOWN_MIN_COUNT,
        tokenizer: str | Tokenizer = "words",
    ) -> "KnownNgrams":
        """Returns the n-grams that stand several times in a public text, one document a line.

        Args:
          path: the file, local or on any Beam file system; decompressed by its extension.
          max_length: the longest n-grams.
          min_count: the least number of times.
          tokenizer: that of the run.

        Raises:
          InputError: if the file cannot be read, or the tokenizer takes no lines.
        """
        words, codes = read_text("known", path, tokenizer)
        counted = count_ngrams(codes, len(words), max_length, min_count)
        described = {"kind": TEXT, "sha256": sha256_of(path), "min_count": min_count}
        return cls.of_codes(words, [each.rows for each in counted]).possible(tokenizer, described)

    @classmethod
    def from_table(
        cls, path: str, *, min_count: int = 1, tokenizer: str | Tokenizer = "words"
    ) -> "KnownNgrams":
        """Returns the n-grams of a table with a column `ngram`, as releases and exports write it.

        A column `group` has their groups. A table with a column `item` has words. A file of counts,
        with lines `ngram<TAB>count`, is a table of n-grams and counts.

        Args:
          path: a file in CSV, TSV, JSON lines or Parquet, by its extension, or a file of counts.
          min_count: the least number in the column `count`, if there is one.
          tokenizer: that of the run; n-grams with words that it cannot make are left out.

        Raises:
          InputError: if the file cannot be read, or has no such column.
        """
        listed = read_table("known", path).at_least(min_count)
        known = cls._of_encoded(listed_codes("known", listed))
        described = {"kind": TABLE, "sha256": sha256_of(path), "min_count": min_count}
        return known.makeable(tokenizer, described)

    @classmethod
    def from_release(
        cls, path: str, *, same_people: bool = False, tokenizer: str | Tokenizer = "words"
    ) -> "KnownNgrams":
        """Returns the n-grams or items of a release, whose files are checked against its ledger.

        Args:
          path: its directory.
          same_people: whether it is about users of the run, so that the budgets of both add up.
          tokenizer: that of the run; n-grams with words that it cannot make are left out.

        Raises:
          ReleaseError: if the release is incomplete or damaged.
          InputError: if it has probabilities.
        """
        release, listed = read_released("known", path)
        described = release_description(release, same_people=same_people)
        known = cls._of_encoded(listed_codes("known", listed))
        # What a tokenizer makes within a text it may not make of a word alone.
        if release.tokenizer == tokenizer_name(tokenizer):
            return known.possible(tokenizer, described)
        return known.makeable(tokenizer, described)

    @classmethod
    def joined(cls, lists: Sequence["KnownNgrams"]) -> "KnownNgrams":
        """Returns the n-grams of several lists together."""
        if len(lists) == 1:
            return lists[0]
        merged = merge_words(own.words for own in lists)
        places = merged.codes([np.arange(len(own.words)) for own in lists])
        grams = [each[rows] for each, own in zip(places, lists, strict=True) for rows in own.grams]
        described = tuple(each for own in lists for each in own.lists)
        return dataclasses.replace(cls.of_codes(merged.words, grams), lists=described)

    @classmethod
    def _of_encoded(cls, ngrams: EncodedTokens) -> "KnownNgrams":
        return cls.of_codes(ngrams.words, rows_of_lengths(ngrams))

    @classmethod
    def of_codes(cls, words: pa.Array, grams: Sequence[np.ndarray]) -> "KnownNgrams":
        """Returns n-grams given by codes of distinct words: any arrays of rows of one length."""
        flat = np.concatenate([np.zeros(0, np.int32), *(each.reshape(-1) for each in grams)])
        used, codes = used_words(len(words), flat)
        words = words.take(pa.array(used))
        ranked = byte_ranks(words).astype(np.int32)[codes]
        parts = np.split(ranked, np.cumsum([each.size for each in grams])[:-1])
        of_length: dict[int, list[np.ndarray]] = collections.defaultdict(list)
        for each, part in zip(grams, parts, strict=False):
            of_length[each.shape[1]].append(part.reshape(each.shape))
        rows = [
            distinct_rows(np.concatenate([np.zeros((0, length), np.int32), *of_length[length]]))
            for length in range(1, 1 + max(of_length, default=0))
        ]
        return cls(words=words.take(pa.array(byte_order(words))), grams=tuple(rows))

    def __len__(self) -> int:
        return sum(map(len, self.grams))

    @functools.cached_property
    def sha256(self) -> str:
        """SHA-256 of the n-grams, to which the run key is bound."""
        texts = self.words.cast(pa.large_binary())
        ends = pc.call_function("binary_length", [texts]).to_numpy(zero_copy_only=False)
        # The sizes first, so that lists which are cut otherwise have other digests.
        digest = hashlib.sha256(repr([len(texts), *(each.shape for each in self.grams)]).encode())
        digest.update(ends.tobytes())
        digest.update(b"".join(texts.to_pylist()))
        for each in self.grams:
            digest.update(each.tobytes())
        return digest.hexdigest()

    @property
    def section(self) -> dict[str, Any]:
        """What the ledger says of the lists; empty without any."""
        return {"meaning": _MEANING, "lists": [dict(each) for each in self.lists]}

    def makeable(self, tokenizer: str | Tokenizer, of_list: Mapping[str, Any]) -> "KnownNgrams":
        """Returns the n-grams all of whose words a tokenizer makes of each word alone.

        Args:
          tokenizer: that of the run.
          of_list: what the ledger says of the list, but for the numbers of its n-grams.
        """
        made = np.ones(len(self.words), bool)
        # These take words as they are, unless rules leave them out.
        if tokenizer_name(tokenizer) not in ("tokens", "item"):
            plain = without_groups(self.words)
            tokens = tokenize(resolve_tokenizer(tokenizer), plain)
            pairs = zip(tokens.to_pylist(), plain.to_pylist(), strict=True)
            made = np.array([own == [word] for own, word in pairs], bool)
        kept = [np.all(made[rows], axis=1) for rows in self.grams]
        return self._selected(kept).possible(tokenizer, of_list, before=len(self))

    def possible(
        self, tokenizer: str | Tokenizer, of_list: Mapping[str, Any], *, before: int | None = None
    ) -> "KnownNgrams":
        """Returns the n-grams that the rules of a tokenizer do not leave out, with their description.

        Args:
          tokenizer: that of the run.
          of_list: as in `makeable`.
          before: the number of n-grams of the list, if some of them were left out before.
        """
        left_out = self._left_out(tokenizer)
        own = self if left_out is None else self._selected([~each for each in left_out])
        size = len(self) if before is None else before
        described = {**of_list, "left_out": size - len(own), "ngrams": len(own)}
        return dataclasses.replace(own, lists=(described,))

    def check_left_out(self, tokenizer: str | Tokenizer) -> None:
        """Checks that a tokenizer's rules leave no n-gram out; raises ValueError.

        Nobody holds such n-grams, so that noise alone would release some.
        """
        refuse_left_out(self._left_out(tokenizer) or ())

    def _left_out(self, tokenizer: str | Tokenizer) -> list[np.ndarray] | None:
        """Marks the n-grams of each length that rules leave out; None without rules."""
        rules = left_out_by(tokenizer)
        plain = without_groups(self.words)
        return None if rules is None else [rules.of_list(plain, rows) for rows in self.grams]

    def _selected(self, kept: Sequence[np.ndarray]) -> "KnownNgrams":
        """Returns some of the n-grams, which are marked for each length."""
        if all(each.all() for each in kept):
            return self
        return type(self).of_codes(
            self.words, [rows[own] for rows, own in zip(self.grams, kept, strict=True)]
        )

    def covers(self, ngrams: Sequence[str], groups: Sequence[str] | None = None) -> np.ndarray:
        """Returns which n-grams of a release its run knew: (n,) bool.

        Those that are listed without a group are known in each group, but for single words.

        Args:
          ngrams: as the rows of a release write them.
          groups: the group of each row; None without groups.
        """
        rows = [split_ngram(text) for text in ngrams]
        words = self.words
        named = rows
        if groups is None:
            words = without_groups(words)
        else:
            named = with_group(pa.array(groups), pa.array(rows, pa.list_(pa.string()))).to_pylist()
        names = words.to_pylist()
        own = {tuple(names[code] for code in row) for each in self.grams for row in each.tolist()}
        pairs = zip(rows, map(tuple, named), strict=True)
        return np.array([name in own or (len(row) > 1 and row in own) for row, name in pairs], bool)

    @property
    def items(self) -> KnownItems:
        """Its distinct words, without groups, as `PrivateSetUnion` takes them."""
        words = pc.call_function("unique", [without_groups(self.words)])
        return KnownItems(words=words, sha256=self.sha256, section=self.section)


def read_known(
    asked: KnownLists,
    max_length: int,
    tokenizer: str | Tokenizer,
    inputs: Sequence[InputFile] = (),
    *,
    options: "PipelineOptions | None" = None,
    reading: ReadOptions | None = None,
) -> KnownNgrams:
    """Returns the n-grams of all lists that parameters name.

    Args:
      asked: the parameters.
      max_length: the longest n-grams of the run.
      tokenizer: that of the run.
      inputs: the files of the run, none of which may be a list.
      options: those of the pipeline, for access to storage.
      reading: how these files are read, so that copies of them in other forms are noticed.

    Raises:
      UsageError: if a list is a file of the input, or has the same content as one; or if a release is
        said to be about the same people, and no list is one, or a list is a file of one.
      AccessError, InputError, ReleaseError, FileNotFoundError: if a list cannot be read.
    """
    paths = names_of(asked.known or ())
    lists = []
    check_access(paths, [], options)
    released = [is_release("known", path) for path in paths]
    same_people = asked.known_same_people
    if same_people and not any(released):
        raise UsageError("`known_same_people` needs a release among the lists of known, got none.")
    for path, is_released in zip(paths, released, strict=True):
        if is_released:
            lists.append(
                KnownNgrams.from_release(path, same_people=same_people, tokenizer=tokenizer)
            )
            continue
        if same_people and has_ledger(split(path)[0]):
            raise UsageError(
                "`known` must name the directory of a release if `known_same_people` is given, so "
                f"that its budget counts, got a file in one: {path}."
            )
        refuse_input("known", path, inputs, reading)
        lists.append(_read_file(path, max_length, asked.known_min_count, tokenizer))
    return KnownNgrams.joined(lists)


def _read_file(
    path: str, max_length: int, min_count: int, tokenizer: str | Tokenizer
) -> KnownNgrams:
    if kind_of("known", path) == TEXT:
        return KnownNgrams.from_text(
            path, max_length=max_length, min_count=min_count, tokenizer=tokenizer
        )
    return KnownNgrams.from_table(path, min_count=min_count, tokenizer=tokenizer)


def read_known_again(
    paths: Sequence[str],
    lists: Sequence[Mapping[str, Any]],
    max_length: int,
    tokenizer: str | Tokenizer,
) -> KnownNgrams:
    """Returns the known n-grams of a run that has ended, from its lists.

    Args:
      paths: the lists.
      lists: what the ledger says of them.
      max_length: the longest n-grams of the run.
      tokenizer: that of the run.

    Raises:
      UsageError: if they are not those of the ledger, by their SHA-256.
    """
    least = max((each.get("min_count", 1) for each in lists), default=1)
    asked = KnownLists(known=tuple(paths), known_min_count=least)
    found = read_known(asked, max_length, tokenizer)
    told, own = (sorted(each["sha256"] for each in those) for those in (lists, found.lists))
    if not told:
        raise UsageError("`known` must be left out for a release whose run knew no list.")
    if told != own:
        raise UsageError(
            "`known` must be the lists of the run, whose ledger has the SHA-256 "
            f"{', '.join(told)}, got {', '.join(own)}."
        )
    return found
