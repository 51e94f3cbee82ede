"""Made-up users with exact counts in plain Python, by which releases of their texts are judged.

Nothing here but `by_clauses`, a tokenizer of an operator, and the writers of files knows a library.
Each n-gram of the texts is held by many users or by one user alone.
"""

import csv
import dataclasses
import gzip
import json
import pathlib
import re
from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

USERS = 160
GROUPS = ("north", "7")
# Each user writes half of the texts in one of the groups, so that this many hold what a group shares.
MANY = USERS // 2 - 1
# The number of texts in which the first user repeats what nobody else has: many users, where each text
# is a user.
REPEATS = 2 * MANY
TOKEN_LIMIT = 100

STOP_LIST = ("acme", "green tea", "rye bread")
MASKED = {
    "urls": ("https://example.org/page",),
    "emails": ("help@example.org",),
    "mentions": ("@ann",),
    "numbers": ("555", "1234"),
}
# How a word begins that one user alone has.
OWN = "only"
_CLAUSE_END = ";"
# A token with a blank, which only a list of tokens can have.
_TOKEN = "rye bread"

Gram = tuple[str | None, tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class Record:
    """A text of a user."""

    user: int
    text: str
    group: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """How texts become n-grams: the tokenizer, and what is left out.

    Attributes:
      tokenizer: a name of `--tokenizer`, `separator` for items between semicolons, or `own`.
      masks: names of `MASKED`.
      has_stop_list: whether `STOP_LIST` is left out.
      is_grouped: whether n-grams of two groups are two.
      max_length: number of words in the longest n-gram.
    """

    tokenizer: str = "words"
    masks: tuple[str, ...] = ()
    has_stop_list: bool = False
    is_grouped: bool = False
    max_length: int = 1


def records(month: str = "june", first_user: int = 0) -> list[Record]:
    """Returns the texts of all users of a month; two months share all but one phrase."""
    news = {"june": "strawberry ice", "july": "pumpkin soup"}[month]
    found = []
    for user in range(first_user, first_user + USERS):
        home, other = GROUPS[user % 2], GROUPS[1 - user % 2]
        found += [
            Record(user, "Red apple pie, please; thanks, don't mention it", home),
            Record(user, "write to help@example.org or call 555 1234 today; tea", home),
            Record(user, "see https://example.org/page now @ann; green door; tea time", other),
            Record(user, "secret acme plan; green tea; acme", home),
            Record(user, "acme", other),
            Record(user, news, home),
            Record(user, own_word(user), home),
        ]
    chorus = [Record(first_user, "canary zebra; canary", group) for group in GROUPS]
    return [*found, *chorus * (REPEATS // len(GROUPS))]


def own_word(user: int) -> str:
    """Returns a word that this user alone has."""
    letters = "bcdfghjklm"
    return OWN + "".join(letters[int(digit)] for digit in str(user))


def held(texts: Iterable[Record], rules: Rules) -> dict[Gram, int]:
    """Returns the number of users of each (group, n-gram); without groups the group is None."""
    users: dict[Gram, set[int]] = {}
    for record in texts:
        group = record.group if rules.is_grouped else None
        for run in _runs(_tokens(record.text, rules)):
            for length in range(1, rules.max_length + 1):
                for start in range(len(run) - length + 1):
                    gram = (group, tuple(run[start : start + length]))
                    users.setdefault(gram, set()).add(record.user)
    return {gram: len(own) for gram, own in users.items()}


def is_left_out(words: Sequence[str], rules: Rules) -> bool:
    """Whether the rules leave out an n-gram, whoever holds it."""
    marks = [mark for mask in rules.masks for mark in MASKED[mask]]
    if any(mark in word for word in words for mark in marks):
        return True
    return any(_starts(words, phrase) for phrase in _phrases(rules))


def tokens_of(text: str) -> list[str]:
    """Returns the tokens of a text in a file of lists of tokens."""
    tokens = text.split()
    return [*tokens, _TOKEN] if "tea" in tokens else tokens


def by_line(texts: Iterable[Record]) -> list[Record]:
    """Returns one text for each user, as a file has them in which each line is a user."""
    lines: dict[int, list[str]] = {}
    for record in texts:
        lines.setdefault(record.user, []).append(record.text)
    return [Record(user, " ".join(own), "") for user, own in lines.items()]


def by_clauses(texts: pa.Array) -> pa.ListArray:
    """A tokenizer of an operator: lower-case words between blanks, and a border at each semicolon."""
    return pa.array([_clauses(text) for text in texts.to_pylist()], pa.list_(pa.string()))


vars(by_clauses).update(version="1")


def _clauses(text: str) -> list[str | None]:
    tokens: list[str | None] = []
    for clause in text.lower().split(_CLAUSE_END):
        words = clause.split()
        if tokens and words:
            tokens.append(None)
        tokens.extend(words)
    return tokens


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(_CLAUSE_END) if item.strip()]


_SPLIT: dict[str, Callable[[str], Sequence[str | None]]] = {
    "words": lambda text: re.findall(r"\w+(?:'\w+)*", text.lower()),
    "unicode_words": lambda text: re.findall(r"\w+(?:['.]\w+)*", text.lower()),
    "icu_words": lambda text: re.findall(r"\w+(?:['.]\w+)*", text.lower()),
    "whitespace": str.split,
    "own": _clauses,
    "tokens": tokens_of,
    "item": lambda text: [text],
    "separator": _items,
}
_OF_ITEMS = ("tokens", "item", "separator")


def _tokens(text: str, rules: Rules) -> list[str | None]:
    """Returns the tokens of a text, with None in each place over which no n-gram goes."""
    split = _SPLIT[rules.tokenizer]
    marks = [mark for mask in rules.masks for mark in MASKED[mask]]
    tokens: list[str | None] = []
    if rules.tokenizer in _OF_ITEMS:
        for token in split(text):
            has_mark = any(mark in str(token) for mark in marks)
            tokens.append(None if has_mark else token)
    else:
        pieces = re.split("|".join(map(re.escape, marks)), text) if marks else [text]
        for piece in pieces:
            tokens.extend([None, *split(piece)])
    left_out = set()
    for phrase in _phrases(rules):
        for start in _starts(tokens, phrase):
            left_out.update(range(start, start + len(phrase)))
    return [None if place in left_out else token for place, token in enumerate(tokens)]


def _phrases(rules: Rules) -> list[Sequence[str | None]]:
    if not rules.has_stop_list:
        return []
    if rules.tokenizer in _OF_ITEMS:
        return [[entry] for entry in STOP_LIST]
    return [_SPLIT[rules.tokenizer](entry) for entry in STOP_LIST]


def _starts(tokens: Sequence[str | None], phrase: Sequence[str | None]) -> list[int]:
    """Returns where a phrase begins in tokens."""
    size = len(phrase)
    starts = range(len(tokens) - size + 1)
    return [start for start in starts if list(tokens[start : start + size]) == list(phrase)]


def _runs(tokens: Sequence[str | None]) -> list[list[str]]:
    """Returns the longest runs of tokens without a border."""
    runs: list[list[str]] = [[]]
    for token in tokens:
        if token is None:
            runs.append([])
        else:
            runs[-1].append(token)
    return runs


def by_record(texts: Iterable[Record]) -> list[Record]:
    """Returns the texts, each of a user of its own."""
    return [dataclasses.replace(each, user=number) for number, each in enumerate(texts)]


# The fields of files of these texts: the user, who is also a number in a tenant, text and group.
FIELDS = ("id", "tenant", "number", "said", "place")


def write_files(
    folder: pathlib.Path, texts: Sequence[Record], kind: str, *, as_tokens: bool
) -> list[pathlib.Path]:
    """Writes texts as files of a kind of `FILES`, over which the texts of each user are spread."""
    folder.mkdir(parents=True, exist_ok=True)
    names = FILES[kind]
    paths = [folder / name for name in names]
    for place, path in enumerate(paths):
        _write(path, texts[place :: len(paths)], kind, as_tokens=as_tokens)
    return paths


FILES = {
    "jsonl": ("a.jsonl",),
    "two files": ("a.jsonl", "b.jsonl.gz"),
    "mixed": ("a.csv", "b.jsonl", "c.parquet", "d.tsv"),
    "headless": ("a.csv",),
    "json": ("a.json",),
    "parquet": ("a.parquet", "b.parquet"),
    "nested": ("a.jsonl", "b.parquet"),
    "sequences": ("a.txt", "b.txt"),
}
TAKE_TOKENS = ("jsonl", "two files", "json", "parquet", "nested")
# Texts of "nested" files are turns of chats, beside those of a machine.
NESTED = {"user_field": "by.id", "text_field": "turns[].said", "where": "turns.role=user"}


def _chat(record: dict[str, object]) -> dict[str, object]:
    """Returns a record as a chat with one turn of its user, and one of a machine."""
    of_machine = "beep beep boop"
    said = of_machine if isinstance(record["said"], str) else of_machine.split()
    turns = [{"role": "user", "said": record["said"]}, {"role": "machine", "said": said}]
    by = {name: record[name] for name in ("id", "tenant", "number")}
    return {"by": by, "turns": turns, "place": record["place"]}


def _write(path: pathlib.Path, texts: Sequence[Record], kind: str, *, as_tokens: bool) -> None:
    if kind == "sequences":
        path.write_text("".join(f"{record.text}\n" for record in texts))
        return
    rows = [
        (
            *(each.user, f"t{each.user % 2}", each.user // 2),
            *(tokens_of(each.text) if as_tokens else each.text, each.group),
        )
        for each in texts
    ]
    objects: list[dict[str, object]] = [dict(zip(FIELDS, row, strict=True)) for row in rows]
    if kind == "nested":
        objects = [_chat(each) for each in objects]
    lines = "".join(f"{json.dumps(each)}\n" for each in objects)
    match path.suffix:
        case ".jsonl":
            path.write_text(lines)
        case ".gz":
            path.write_bytes(gzip.compress(lines.encode(), mtime=0))
        case ".json":
            path.write_text(json.dumps(objects))
        case ".parquet":
            pq.write_table(pa.Table.from_pylist(objects), path)
        case ".tsv":
            path.write_text("".join("\t".join(map(str, row)) + "\n" for row in [FIELDS, *rows]))
        case ".csv":
            with path.open("w", newline="") as file:
                writer = csv.writer(file, delimiter=";" if kind == "headless" else ",")
                writer.writerows(rows if kind == "headless" else [FIELDS, *rows])
