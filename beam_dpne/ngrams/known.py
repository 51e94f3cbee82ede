"""KnownNgrams: public lists of n-grams, which need less evidence than others.

A list is a constant of the mechanism, so it must not follow from the private data, unless it is a
release, whose own guarantee then counts as well. How lists are used is in `valid` and `spurious`.
"""

import collections
import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.documents.blocks import with_group, without_groups
from beam_dpne.documents.left_out import refuse_left_out
from beam_dpne.documents.masks import left_out_by
from beam_dpne.documents.tokenizers import Tokenizer, resolve_tokenizer, tokenize, tokenizer_name
from beam_dpne.elements.arrays import byte_order, byte_ranks, merge_words, used_words
from beam_dpne.elements.rows import join_tokens, split_ngram
from beam_dpne.errors import InputError, UsageError
from beam_dpne.ngrams import known_lists
from beam_dpne.ngrams.elements import GROUPED_ROOT, ROOT, GramSet, known_candidates
from beam_dpne.ngrams.known_lists import TABLES, codes_of_texts, distinct_rows
from beam_dpne.ngrams.parameters import KNOWN_MIN_COUNT, KnownLists
from beam_dpne.reading.copies import refuse_input
from beam_dpne.reading.files import InputFile, line_blocks, sha256_of
from beam_dpne.reading.options import ReadOptions, extension_of, names_of
from beam_dpne.release.reading import has_ledger, is_release, read_release
from beam_dpne.set_union.elements import KnownItems
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
        """
        texts = pa.array([join_tokens(words) for words in ngrams], pa.string())
        known = cls.of_codes(*codes_of_texts(texts))
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
        if tokenizer_name(tokenizer) == "tokens":
            raise InputError(f"known must be a table or a release with tokens, got {path}.")
        lines = (pa.array(block, pa.string()) for block in line_blocks(path))
        words, codes = known_lists.codes_of_documents(lines, tokenizer)
        grams = known_lists.count_codes(codes, len(words), max_length, min_count)
        described = {"kind": "text", "sha256": sha256_of(path), "min_count": min_count}
        return cls.of_codes(words, grams).possible(tokenizer, described)

    @classmethod
    def from_table(
        cls, path: str, *, min_count: int = 1, tokenizer: str | Tokenizer = "words"
    ) -> "KnownNgrams":
        """Returns the n-grams of a table with a column `ngram`, as releases and exports write it.

        A column `group` has their groups. A table with a column `item` has words.

        Args:
          path: a file in CSV, TSV, JSON lines or Parquet, by its extension.
          min_count: the least number in the column `count`, if there is one.
          tokenizer: that of the run; n-grams with words that it cannot make are left out.

        Raises:
          InputError: if the file cannot be read, or has no such column.
        """
        known = cls.of_codes(*codes_of_texts(*known_lists.read_table(path, min_count)))
        described = {"kind": "table", "sha256": sha256_of(path), "min_count": min_count}
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
        release = read_release(path)
        if release.program == "bayesian":
            raise InputError(f"known must be a release of ngrams or set-union, got {path}.")
        guarantee = release.ledger["guarantee"]
        described = {name: guarantee[name] for name in ("epsilon", "delta")}
        described |= {
            "kind": "release",
            "sha256": release.ledger_sha256,
            "same_people": same_people,
        }
        known = cls.of_codes(*codes_of_texts(*known_lists.texts_of(release.table())))
        # What a tokenizer makes within a text it may not make of a word alone.
        if release.ledger["tokenizer"] == tokenizer_name(tokenizer):
            return known.possible(tokenizer, described)
        return known.makeable(tokenizer, described)

    @classmethod
    def joined(cls, lists: Sequence["KnownNgrams"]) -> "KnownNgrams":
        """Returns the n-grams of several lists together."""
        if len(lists) == 1:
            return lists[0]
        words, places = merge_words(own.words for own in lists)
        starts = itertools.accumulate((len(own.words) for own in lists), initial=0)
        grams = [
            places[start + rows]
            for start, own in zip(starts, lists, strict=False)
            for rows in own.grams
        ]
        described = tuple(each for own in lists for each in own.lists)
        return dataclasses.replace(cls.of_codes(words, grams), lists=described)

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
        return None if rules is None else [rules.of_rows(plain, rows) for rows in self.grams]

    def _selected(self, kept: Sequence[np.ndarray]) -> "KnownNgrams":
        """Returns some of the n-grams, which are marked for each length."""
        if all(each.all() for each in kept):
            return self
        return type(self).of_codes(
            self.words, [rows[own] for rows, own in zip(self.grams, kept, strict=True)]
        )

    def covers(self, ngrams: Sequence[str], groups: Sequence[str] | None = None) -> np.ndarray:
        """Returns which n-grams of a release its run knew, as `root` says: (n,) bool.

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
        words, _ = merge_words([without_groups(self.words)])
        return KnownItems(words=words, sha256=self.sha256, section=self.section)

    def root(self, max_length: int, *, is_grouped: bool = False) -> GramSet | None:
        """Returns the root of a run that knows those of up to so many words; None if there are none.

        In a run with groups, those without a group are known in each group, but for single words: which
        groups there are is not known before. In one without, groups do not count.
        """
        plain = without_groups(self.words)
        grams = list(self.grams[:max_length])
        if not is_grouped and plain != self.words:
            words, places = merge_words([plain])
            return self.of_codes(words, [places[rows] for rows in grams]).root(max_length)
        if is_grouped and grams:
            has_group = pc.call_function("not_equal", [plain, self.words])
            grams[0] = grams[0][has_group.to_numpy(zero_copy_only=False)[grams[0][:, 0]]]
        if not sum(map(len, grams)):
            return None
        single, *longer = grams
        return dataclasses.replace(
            GROUPED_ROOT if is_grouped else ROOT,
            words=self.words,
            candidates=known_candidates(
                single.reshape(-1).astype(np.int64) if len(single) else None, longer
            ),
        )


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
        raise UsageError("known_same_people needs a release among the lists of known, got none.")
    for path, is_released in zip(paths, released, strict=True):
        if is_released:
            lists.append(
                KnownNgrams.from_release(path, same_people=same_people, tokenizer=tokenizer)
            )
            continue
        if same_people and has_ledger(split(path)[0]):
            raise UsageError(
                "known must name the directory of a release if known_same_people is given, so that its "
                f"budget counts, got a file in one: {path}."
            )
        refuse_input("known", path, inputs, reading, known_lists.plain_texts(path))
        how: dict[str, Any] = {"tokenizer": tokenizer, "min_count": asked.known_min_count}
        if extension_of(path) in TABLES:
            lists.append(KnownNgrams.from_table(path, **how))
        else:
            lists.append(KnownNgrams.from_text(path, max_length=max_length, **how))
    return KnownNgrams.joined(lists)


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
    if told != own:
        raise UsageError(
            f"known must be the lists of the run, whose ledger has the SHA-256 {told}, got {own}."
        )
    return found
