"""The participants of a series of releases: who has taken part, as keyed digests in a private folder.

In a series each user takes part in so many releases at most. A user takes part in a release if she has
a document with a token in its input, and took part in fewer releases before it. So her part follows
from her own records alone.

The folder is as secret as the data. `participants.json` holds the key of the series, and each release
has 16 files of digests, by their first four bits, and then one file that lists them. That list is
written last, and everything is stored before a release publishes anything: a release with a list
has taken place, whatever has become of it, and one without has published nothing. A digest is 128
bits of keyed BLAKE2b of the user's id, as the run sees it. In a series it is also that by which the run
tells users apart, so that a release and its list cannot disagree.

Folders on a disk are locked while a run is at work. Object stores have no locks, and need none. A try
writes its digests under names of its own, and then makes two objects that nothing replaces: the list of
its number in the private folder, and the mark of its number in the folder of the series. Each is made
only if there is none, by a precondition of the store, and names the try. Suppose that two tries of one
number both published. Then both have made or found the list and the mark as their own. With one private
folder there is one list, and with copies of it one mark, which names one of them. So one number is one
try, whose digests nobody has changed, and whom a try leaves out follows from lists that were whole when
it took its number. Nobody can tell if both folders are copied.

The list also has a keyed digest of the users' texts. A try that is killed may have left files of rows
that somebody has seen, so that another try with the same noise must have the same texts.
"""

import dataclasses
import functools
import hashlib
import os
import re
import stat
from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa

from beam_dpne.documents.blocks import changes, distinct_users, partitions_of, user_order
from beam_dpne.documents.state_files import KEY_NAME, as_budget_error, decoded, what_is_at
from beam_dpne.elements.arrays import group_places, hash_words
from beam_dpne.elements.batches import DocumentBlock
from beam_dpne.errors import BudgetError, ReleaseError
from beam_dpne.mechanism.randomness import RunKey, encrypt_blocks, keyed_bits, one_way_hashes
from beam_dpne.storage.directories import Directory, directory_at
from beam_dpne.storage.paths import is_local

_MARK = ".recorded"
_RANGES = 16
# A digest, shifted by this number, keeps its first four bits.
_SPARE_BITS = 60
_LIST = re.compile(r"(\d{4,})\.json")
_MARKED = re.compile(r"(\d{4,})\.recorded")
_DIGESTS = re.compile(r"(\d{4,})-[0-9a-f]{12}(-[0-9a-f]{12})?-[0-9a-f]\.digests")
_LEFT_BEHIND = re.compile(r"\..*\.tmp-[0-9a-f]{32}")
_OWNER_ALONE = 0o700
_OTHERS = 0o077
_RESTORE = (
    "Restore the newest copy of the folder. Without it nobody knows who took part, so that the series "
    "has no further release: make a new series, whose budget adds to that of this one."
)


class SeriesPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The public facts of a series, and the place of one release in it.

    Attributes:
      id: Random name of the series, hexadecimal.
      number: Number of the release in the series, from 1.
      releases: Number of releases that the series has at most.
      releases_per_user: Number of them in which one user takes part at most.
      epsilon: ε of the whole series.
      delta: δ of the whole series.
    """

    id: str
    number: int
    releases: int
    releases_per_user: int
    epsilon: float
    delta: float


class _KeyFile(msgspec.Struct, kw_only=True, tag_field="schema", tag="beam_dpne/participants/1"):
    """The content of `participants.json`."""

    what: str = (
        "AS SECRET AS THE DATA. Who has taken part in the releases of a series, as keyed digests, and "
        "the key. Keep the newest copy only: a series with an older one is refused."
    )
    series: str
    key: str


class _ListFile(
    msgspec.Struct, kw_only=True, tag_field="schema", tag="beam_dpne/participants-list/2"
):
    """The list of the files of one release.

    Attributes:
      series: Name of the series.
      name: Name of the release's file in the folder of the series.
      commitment: Commitment to the key of the digests: under another one nobody would be found again.
      texts: The digest of the participants' texts, 32 hexadecimal digits.
      sha256: SHA-256 of each file of digests by its name, in the order of their ranges.
    """

    series: str
    name: str
    commitment: str
    texts: str
    sha256: dict[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Participants:
    """The private folder of a series, whose key was read.

    Attributes:
      path: The folder.
      series: Name of the series.
      key: Secret of the series.
    """

    path: str
    series: str
    key: RunKey = dataclasses.field(repr=False)

    def recorded(self) -> dict[int, str]:
        """Returns the releases whose participants are recorded: their numbers, and the names of files.

        Raises:
          BudgetError: A list cannot be read, or is of another series.
        """
        directory = self._directory()
        with as_budget_error(f"the participants in {self.path} cannot be read"):
            numbers = [int(found[1]) for found in map(_LIST.fullmatch, directory.names()) if found]
        return {number: self._list(number).name for number in sorted(numbers)}

    def has_list(self, number: int) -> bool:
        """Whether the participants of a release are recorded."""
        return self._directory().has(_list_name(number))

    def name(self, number: int) -> str:
        """Returns the name of the file of a release whose participants are recorded."""
        return self._list(number).name

    def texts(self, number: int) -> str:
        """Returns the digest of the texts of a release whose participants are recorded."""
        return self._list(number).texts

    def write(self, number: int, name: str, users: Sequence[np.ndarray], texts: str) -> None:
        """Records the participants of a release.

        Args:
          number: Number of the release.
          name: Name of its file in the folder of the series.
          users: (n, 2) uint64 each, the digests of those who take part; they may be repeated.
          texts: The digest of their texts.

        Raises:
          BudgetError: They cannot be written, or another run has recorded those of this number.
        """
        directory = self._directory()
        with as_budget_error(f"the participants cannot be written into {self.path}"):
            if not directory.has(KEY_NAME):
                raise BudgetError(f"{self.path} has no {KEY_NAME} any more. {_RESTORE}")
            names = directory.names()
            # What a killed run has left of the files that it was writing.
            directory.remove(each for each in names if _LEFT_BEHIND.fullmatch(each))
            # Another try of this number may be at work; those of earlier ones have lost it.
            listed = {file for each in self._lists_before(number) for file in each.sha256}
            earlier = [each for each in map(_DIGESTS.fullmatch, names) if each]
            lost = {each[0] for each in earlier if int(each[1]) < number} - listed
            directory.remove(sorted(lost))
            sha256: dict[str, str] = {}
            # A few of the many digests at a time, so that little more is in memory than those.
            users = [distinct_users(each) for each in users]
            for part in range(_RANGES):
                data = _in_range(users, part).astype("<u8").tobytes()
                content = hashlib.sha256(data).hexdigest()
                # Other digests have another name, so that they replace none that a list has.
                file = f"{name}-{content[:12]}-{part:x}.digests"
                directory.put(file, data)
                sha256[file] = content
            own = _ListFile(
                series=self.series,
                name=name,
                commitment=self.key.commitment(),
                texts=texts,
                sha256=sha256,
            )
            _put_once(directory, _list_name(number), msgspec.json.encode(own), _taken(number))

    def _read(self, listed: _ListFile, part: int) -> np.ndarray:
        """Returns the participants of a release in one range of digests: (n, 2) uint64, sorted.

        Raises:
          BudgetError: The file is missing or damaged.
        """
        file, sha256 = [*listed.sha256.items()][part]
        told = f"{listed.name}-*-{part:x}.digests in {self.path}"  # A hash of users is left out.
        with as_budget_error(f"{told} cannot be read"):
            data = self._directory().read(file)
        if data is None or hashlib.sha256(data).hexdigest() != sha256:
            raise BudgetError(f"{told} is missing or damaged. {_RESTORE}")
        return np.frombuffer(data, "<u8").reshape(-1, 2)

    def used_up(self, number: int, most: int) -> np.ndarray:
        """Returns the users who took part so many times before a release: (n, 2) uint64, sorted.

        Each column is contiguous, as a search in it needs.

        Raises:
          BudgetError: A file is missing or damaged.
        """
        found: list[np.ndarray] = []
        lists = self._lists_before(number)
        for part in range(_RANGES):
            earlier = [self._read(each, part) for each in lists]
            users, times = _counted(np.concatenate([np.zeros((0, 2), np.uint64), *earlier]))
            found.append(users[times >= most])
        columns = np.empty((sum(map(len, found)), 2), np.uint64, order="F")
        return np.concatenate(found, out=columns)

    def _lists_before(self, number: int) -> list[_ListFile]:
        """Returns the lists of all earlier releases."""
        return [self._list(each) for each in range(1, number)]

    def _list(self, number: int) -> _ListFile:
        file = _list_name(number)
        with as_budget_error(f"{file} in {self.path} cannot be read"):
            data = self._directory().read(file) or b""
        listed = decoded(data, _ListFile, f"{file} in {self.path}")
        if listed.series != self.series:
            raise BudgetError(f"{file} in {self.path} is of another series. {_RESTORE}")
        if len(listed.sha256) != _RANGES:
            raise BudgetError(f"{file} in {self.path} is damaged. {_RESTORE}")
        if listed.commitment != self.key.commitment():
            raise BudgetError(
                f"{KEY_NAME} in {self.path} has another key than the digests of {file}. {_RESTORE}"
            )
        return listed

    def _directory(self) -> Directory:
        return directory_at(self.path, is_private=True)


def create_participants(path: str, series: str) -> None:
    """Makes the private folder of a new series, which on a disk only its owner can use.

    Who can use an object store is decided by the rights of its bucket.

    Raises:
      BudgetError: There is something at the path, or the folder cannot be made.
    """
    taken = f"`participants` must be a new folder, got {path}"
    with as_budget_error(taken):
        if is_local(path):
            os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
            os.mkdir(path, _OWNER_ALONE)
        directory = directory_at(path, is_private=True)
        if directory.names():
            raise BudgetError(f"{taken}, which has files.")
        file = _KeyFile(series=series, key=os.urandom(32).hex())
        _put_once(directory, KEY_NAME, msgspec.json.encode(file), f"{taken}, which has a key.")


def open_participants(path: str, series: str) -> Participants:
    """Returns the private folder of a series.

    Raises:
      BudgetError: There is none, it is damaged or of another series, or others than its owner can use
        it.
    """
    with as_budget_error(f"`participants` must be the private folder of the series, got {path}"):
        is_there = is_local(path) and os.path.exists(path)
        mode = os.stat(path).st_mode if is_there else _OWNER_ALONE
        data = directory_at(path).read(KEY_NAME)
    if data is None and (what := what_is_at(path)):
        raise BudgetError(
            f"`participants` must be the private folder of the series, got {path}, which is {what}."
        )
    if os.name == "posix" and stat.S_IMODE(mode) & _OTHERS:
        raise BudgetError(
            f"`participants` must be a folder that its owner alone can use, got {path}: run chmod -R "
            f"go= {path}."
        )
    if data is None:
        raise BudgetError(
            f"`participants` must be the private folder of the series, got {path}, which has no "
            f"{KEY_NAME}. {_RESTORE}"
        )
    file = decoded(data, _KeyFile, f"{KEY_NAME} in {path}")
    with as_budget_error(f"{KEY_NAME} in {path} is damaged"):
        key = RunKey.from_hex(file.key)
    if file.series != series:
        raise BudgetError(
            f"`participants` must be the private folder of the series, got {path}, which is that of "
            "another one."
        )
    return Participants(path=path, series=series, key=key)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Participation:
    """Who may take part in one release of a series, and the record of those who do.

    It holds paths; the key and the digests are read by the process that needs them, and are in no job's
    graph.

    Attributes:
      place: The place of the release in the series.
      path: The folder of the series.
      participants: The private folder.
      name: Name of the release's file in the folder of the series.
    """

    place: SeriesPlace
    path: str
    participants: str
    name: str

    @functools.cached_property
    def folder(self) -> Participants:
        """The private folder, which is opened once."""
        return open_participants(self.participants, self.place.id)

    @functools.cached_property
    def used_up(self) -> np.ndarray:
        """The users who have taken part as often as they may: (n, 2) uint64, sorted."""
        return self.folder.used_up(self.place.number, self.place.releases_per_user)

    def __reduce__(self):
        return _participation, (self.place, self.path, self.participants, self.name)

    def open(self) -> None:
        """Reads the key and the digests, which processes that are forked later then share."""
        _ = self.folder, self.used_up

    def digests(self, users: pa.Array) -> np.ndarray:
        """Returns the digest of each user's id: (n, 2) uint64."""
        ids = users.cast(pa.binary()).to_pylist()
        return one_way_hashes(self.folder.key.sub_key("participant"), ids)

    def digests_of_texts(self, block: DocumentBlock, partitions: int) -> dict[int, np.ndarray]:
        """Returns keyed digests of the documents of each partition of users that has any: (2,) uint64.

        They are of documents with their users, and no order changes them. Each is the sum of the
        digests of its documents, so that those of several blocks add up. Modulo 2^64 a document is
        ∑ h(w_j)·a_j over its words w_j, with a keyed hash h and odd keyed numbers a_j, and its digest
        is that number with the user's digest, encrypted. With powers of one number as a_j, some texts
        would have one digest under each key.
        """
        key = self.folder.key
        words = hash_words(key.sub_key("texts: words"), block.words)[:, 0]
        lengths = np.diff(block.offsets)
        filled = np.flatnonzero(lengths)
        longest = np.arange(lengths.max(initial=0), dtype=np.uint64)
        factors = keyed_bits(key.sub_key("texts: places"), 0, longest)[:, 0] | np.uint64(1)
        # (t,) int64: the place of each token in its document.
        places = np.arange(block.codes.size) - np.repeat(block.offsets[:-1], lengths)
        terms = words[block.codes] * factors[places]
        documents = block.users[filled]
        documents[:, 1] ^= np.add.reduceat(terms, block.offsets[:-1][filled])
        digests = encrypt_blocks(key.sub_key("texts: documents"), documents)
        partition = partitions_of(documents, partitions)
        return {
            number: digests[own].sum(axis=0, dtype=np.uint64)
            for number, own in group_places(partition, partitions)
        }

    def may_take_part(self, digests: np.ndarray) -> np.ndarray:
        """Returns which users have taken part fewer times than they may: (n,) bool."""
        return ~_are_among(digests, self.used_up)

    def record(self, users: Sequence[np.ndarray], texts: Sequence[np.ndarray]) -> None:
        """Records the participants, before the release publishes anything.

        Args:
          users: The digests of those who take part, (n, 2) uint64 each; they may be repeated.
          texts: Digests that add up to that of their texts, (2,) uint64 each.

        A worker may do this twice, or two at once, also one that an engine has given up: of one input
        they write the same bytes; of a changed one the later writes other files beside those that the
        list has, and fails. Nothing is published before one has done all of it. A worker of a
        try that has lost its number finds no note, or another try's list, and fails.

        Raises:
          BudgetError: They cannot be written, another run has recorded those of this number, or an
            earlier try of the release has other participants or texts.
        """
        number = self.place.number
        total = np.sum([np.zeros(2, np.uint64), *texts], axis=0, dtype=np.uint64)
        digest = total.astype("<u8").tobytes().hex()
        if not directory_at(self.path).has(f"{self.name}.json"):
            raise BudgetError(
                f"the note of this run must be in the series {self.path} until it is published, but "
                "another run has removed it, or it was never there. Use the newest copies of both "
                "folders, and no others."
            )
        if not self.folder.has_list(number):
            self.folder.write(number, self.name, users, digest)
        elif self.folder.name(number) != self.name:
            raise BudgetError(_taken(number))
        elif self.folder.texts(number) != digest:
            raise BudgetError(
                f"`input` must be that of the first try of release {number} of the series, "
                "which had this run key, but other users take part or their texts are others. Take a "
                "fresh run key: then this is the next release of the series."
            )
        mark_recorded(self.path, number, self.name)


def _participation(place: SeriesPlace, path: str, participants: str, name: str) -> Participation:
    return Participation(place=place, path=path, participants=participants, name=name)


def mark_recorded(path: str, number: int, name: str) -> None:
    """Notes in the folder of a series that the participants of a release are recorded.

    So a copy of the private folder from before that is known to be too old, and of two runs of one
    number that are given two copies one is refused.

    Raises:
      BudgetError: The mark cannot be written, or another run has marked this number.
    """
    with as_budget_error(f"the series {path} cannot be written"):
        _put_once(
            directory_at(path),
            f"{number:04}{_MARK}",
            name.encode(),
            f"release {number} of the series {path} must be that of this run, but another run has "
            "taken it, with a copy of the private folder. Use the newest copies of both folders alone.",
        )


def marked(path: str) -> dict[int, str]:
    """Returns the releases of a series that are noted as recorded: their numbers, and names of files.

    Raises:
      BudgetError: The folder cannot be read.
    """
    with as_budget_error(f"the series {path} cannot be read"):
        directory = directory_at(path)
        found = [each for each in map(_MARKED.fullmatch, directory.names()) if each]
        return {int(each[1]): (directory.read(each[0]) or b"").decode() for each in found}


def _put_once(directory: Directory, file: str, data: bytes, refusal: str) -> None:
    """Writes a file that nothing replaces; one with these bytes, which this run has written, is left.

    On a disk the caller has the lock of the folder, and on an object store the write has the
    precondition that there is no such object.

    Raises:
      BudgetError: The file has other bytes; the message is `refusal`.
    """
    try:
        directory.replace(file, data, seen=None)
    except ReleaseError:
        raise BudgetError(refusal) from None


def _taken(number: int) -> str:
    return f"another run has taken release {number} of the series meanwhile. Start this one again."


def _list_name(number: int) -> str:
    return f"{number:04}.json"


def _in_range(users: Sequence[np.ndarray], part: int) -> np.ndarray:
    """Returns those digests once, and sorted, that have the first bits of a range: (n, 2) uint64."""
    inside = [each[each[:, 0] >> np.uint64(_SPARE_BITS) == part] for each in users]
    distinct, _ = _counted(np.concatenate([np.zeros((0, 2), np.uint64), *inside]))
    return distinct


def _counted(digests: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the distinct digests, sorted, and how often each is there."""
    ordered = digests[user_order(digests)]
    starts = np.flatnonzero(changes(ordered))
    return ordered[starts], np.diff(np.append(starts, len(ordered)))


def _are_among(digests: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Returns which digests are among the known ones, which are sorted: (n,) bool."""
    found = np.zeros(len(digests), bool)
    # In this order neighbours are looked for in neighbouring places, which the processor has at hand.
    waiting = np.argsort(digests[:, 0])
    place = np.searchsorted(known[:, 0], digests[waiting, 0])
    # Two digests with the same first half are very rare, so that this is done twice.
    while waiting.size:
        inside = place < len(known)
        inside[inside] = known[place[inside], 0] == digests[waiting[inside], 0]
        waiting, place = waiting[inside], place[inside]
        found[waiting] |= known[place, 1] == digests[waiting, 1]
        place += 1
    return found
