"""Paths to fields within fields, and conditions on what stands beside a text.

`conversation.content` is the field content of each member of the list conversation. Each text that a
path leads to is a document of its own, so that no n-gram goes from one text to the next. A condition
such as `conversation.role=user` holds for the member that has the text, or, if its path parts from that
of the text further up, for what is around both. `mapping.*.text` is the field text of each value of the
object mapping, whose keys are no names of fields but ids.
"""

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from beam_dpne.reading.columns import field_values
from beam_dpne.reading.ids import id_text
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.rejects import NOT_OBJECT
from beam_dpne.validation import comma_separated

_OPENED = "[]"
# Stands for every key of an object.
_EVERY = "*"
# What follows the last member of a list; a member may be None.
_END = object()


class Condition(NamedTuple):
    """A field must have one of some values, which are compared as text.

    Attributes:
      path: Path of the field, from where the condition stands.
      values: The values.
    """

    path: str
    values: frozenset[str]


@functools.cache
def ways(path: str) -> tuple[tuple[str, str], ...]:
    """Returns how a path may begin: the name of a field, and the path that is left from there.

    The longest name is the first, since the name of a field may have dots of its own.

    >>> ways("a.b")
    (('a.b', ''), ('a', 'b'))
    >>> ways("a[].b[]")
    (('a[].b[]', ''), ('a[].b', '[]'), ('a[]', 'b[]'), ('a', 'b[]'))
    """
    found = []
    cuts = [place for place, sign in enumerate(path) if sign == "."]
    for cut in (len(path), *reversed(cuts)):
        name = path[:cut]
        left = path[cut + 1 :]
        found.append((name, left))
        bare = name
        while bare.endswith(_OPENED):
            bare = bare.removesuffix(_OPENED)
        if bare != name:
            # On the way each list is opened in any case.
            found.append((bare, left or name.removeprefix(bare)))
    return tuple(found)


def step(names: Mapping[str, Any], path: str) -> tuple[str, str] | None:
    """Returns the first of `ways` whose field is there, or None."""
    return next((way for way in ways(path) if way[0] in names), None)


def below_every(path: str) -> str | None:
    """Returns the path that is left behind a `*` for every key; None if it does not begin so.

    >>> below_every("*.message.text"), below_every("*"), below_every("*[]"), below_every("text")
    ('message.text', '', '[]', None)
    """
    if not path.startswith(_EVERY):
        return None
    left = path.removeprefix(_EVERY)
    return left.removeprefix(".") if not left or left.startswith((".", _OPENED)) else None


def conditions_of(where: Sequence[str]) -> list[Condition]:
    """Returns the conditions that texts such as "role=user,assistant" stand for."""
    parts = (each.partition("=") for each in where)
    return [Condition(path, frozenset(comma_separated(values))) for path, _, values in parts]


def finder_of(options: ReadOptions, given: Mapping[str, str | None]) -> "Finder | None":
    """Returns what finds the fields of JSON; None if all are plain fields of the records themselves.

    Args:
      options: How the file is read.
      given: Fields of all records of the file, which its path has.
    """
    names = [name for _, name in options.wanted_fields if name not in given]
    plain = [name for name in names if "." not in name and not name.endswith(_OPENED)]
    return Finder(options, given) if options.needs_paths(plain) else None


class Finder:
    """Finds the wanted fields of records by their paths."""

    def __init__(self, options: ReadOptions, given: Mapping[str, str | None]) -> None:
        """Keeps what is looked for.

        Args:
          options: How the file is read.
          given: Fields of all records of the file, which its path has.
        """
        self._options = options
        self._given = given
        self._conditions = conditions_of(options.conditions)

    def rows(self, record: object) -> tuple[list[Sequence[Any]], str]:
        """Returns a row of the wanted fields for each text of a record, and why there is none or "".

        A record whose lists are empty, or whose texts all fail a condition, has neither.
        """
        if not isinstance(record, dict):
            return [], NOT_OBJECT
        whole = {**self._given, **record}
        texts = self.texts(whole)
        if texts is None:
            return [], ""
        wanted = self._options.wanted_fields
        flat = {name: value_at(whole, name) for option, name in wanted if option != "text_field"}
        found = list[Sequence[Any]]()
        for row in texts:
            flat.update(zip(self._options.text_fields, row, strict=True))
            values, reason = field_values(flat, self._options)
            if reason:
                return [], reason
            found.append(values)
        return found, ""

    def texts(self, record: Mapping[str, Any]) -> list[list[Any]] | None:
        """Returns rows with one text of each text field: at least one row, whose texts may be None.

        The first row has the first text of each field, and so on. None is returned for a record that
        lacks no field, but has no text: a list has no members, or conditions leave out all of them.
        """
        walk = _Walk()
        columns = list[list[Any]]()
        for name in self._options.text_fields:
            found = walk.values(record, name, self._conditions)
            columns.append([text for text in found if text is not None])
        rows = [list(row) for row in itertools.zip_longest(*columns)]
        if rows:
            return rows
        return None if walk.may_be_empty else [[None] * len(columns)]


def value_at(record: Mapping[str, Any], path: str) -> Any:
    """Returns the value at the end of a path through objects, and None if there is none.

    A list on the way has no single value. It is returned itself, which no user and no group may be.
    """
    value: Any = record
    left = path
    while left and isinstance(value, dict):
        way = step(value, left)
        if way is None:
            return None
        name, left = way
        value = value[name]
    return value if not left or isinstance(value, list) else None


def has(record: Mapping[str, Any], path: str) -> bool:
    """Whether a path leads to a field of a record."""
    return any(True for _ in _Walk().values(record, path, []))


class _Walk:
    """One walk through a record along paths.

    Attributes:
      may_be_empty: Whether a list without members was met, or a condition has left out something.
    """

    def __init__(self) -> None:
        self.may_be_empty = False

    def values(self, value: Any, path: str, conditions: Sequence[Condition]) -> Iterator[Any]:
        """Yields what a path leads to where the conditions hold; each list on the way is opened."""
        if _is_map(value):
            value = dict(value)
        if not path:
            yield value
        elif isinstance(value, list):
            self.may_be_empty = self.may_be_empty or not value
            is_end = path.startswith(_OPENED)
            left = path.removeprefix(_OPENED) if is_end else path
            for member in value if is_end else _members(value):
                yield from self.values(member, left, conditions)
        elif path.startswith(_OPENED):
            # What may be a list of texts may be one text, too.
            yield value
        elif isinstance(value, dict):
            way = step(value, path)
            below = below_every(path)
            if way is None and below is not None:
                yield from self._every(value, below, conditions)
                return
            inner = list[Condition]()
            for condition in conditions:
                along = step(value, condition.path)
                if way is not None and along is not None and along[0] == way[0] and along[1]:
                    inner.append(Condition(along[1], condition.values))
                elif not self._holds(value, condition):
                    self.may_be_empty = True
                    return
            if way is not None:
                yield from self.values(value[way[0]], way[1], inner)

    def _every(
        self, value: dict[str, Any], below: str, conditions: Sequence[Condition]
    ) -> Iterator[Any]:
        """Yields what a path leads to in each value of an object, whatever its key is."""
        self.may_be_empty = self.may_be_empty or not value
        inner = list[Condition]()
        for condition in conditions:
            left = below_every(condition.path)
            if left:
                inner.append(Condition(left, condition.values))
            elif not self._holds(value, condition):
                self.may_be_empty = True
                return
        for each in value.values():
            yield from self.values(each, below, inner)

    def _holds(self, value: dict[str, Any], condition: Condition) -> bool:
        found = self.values(value, condition.path, [])
        return any(as_text(each) in condition.values for each in _members(list(found)))


def _is_map(value: Any) -> bool:
    """Whether a value is a map of Parquet, which is a list of pairs of a key and a value."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], tuple)


def _members(value: list[Any]) -> Iterator[Any]:
    """Yields the members of a list, and instead of lists among them theirs, however deep they are."""
    open_lists = [iter(value)]
    while open_lists:
        member = next(open_lists[-1], _END)
        if member is _END:
            open_lists.pop()
        elif isinstance(member, list) and not _is_map(member):
            open_lists.append(iter(member))
        else:
            yield member


def as_text(value: Any) -> str | None:
    """Returns a value as a condition names it; None for null, a list and an object.

    It is the text of an id wherever the value could be one.

    >>> as_text(True), as_text(7.0), as_text(7.5), as_text("user"), as_text(b"user")
    ('true', '7', '7.5', 'user', 'user')
    """
    if value is None or isinstance(value, list | dict):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    text = id_text(value)
    return str(value) if text is None else text


def has_ids_as_keys(value: Mapping[str, Any]) -> bool:
    """Whether all values of an object are objects with the same fields, so that its keys are no names.

    >>> has_ids_as_keys({"4f2": {"text": "a"}, "9c1": {"text": "b"}})
    True
    """
    fields = {frozenset(each) if isinstance(each, dict) else None for each in value.values()}
    return len(value) > 1 and len(fields) == 1 and None not in fields


def paths_in(record: Any, levels: int = 4) -> set[str]:
    """Returns the paths of all fields of a record, as far as some levels.

    >>> sorted(paths_in({"user": "a", "turns": [{"text": "b"}, {"role": "c"}]}))
    ['turns', 'turns.role', 'turns.text', 'user']
    """
    found = set[str]()
    if isinstance(record, list):
        return found.union(*(paths_in(member, levels) for member in record))
    if isinstance(record, dict) and has_ids_as_keys(record):
        within = found.union(*(paths_in(member, levels) for member in record.values()))
        return {_EVERY, *(f"{_EVERY}.{inner}" for inner in within)}
    if isinstance(record, dict) and levels:
        for name, value in record.items():
            found.add(name)
            found.update(f"{name}.{inner}" for inner in paths_in(value, levels - 1))
    return found
