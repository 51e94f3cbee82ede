"""Run keys: the file that holds one, and the context to which the key of a run is bound.

Suppose that two runs of one key on one input compute different weights but draw the same noise. Then
the difference of the two releases is exactly the difference of the weights. So the key of a run is
derived from the run key and the context, and two runs whose weights may differ draw independent noise.
The context names the mechanism's version, which stands for all constants and defaults, what of the
plan and of the description of records differs from its default, and the tokenizer with its version. It
names nothing that may differ between equal runs (paths, engines, partitions), and no module of a class
or function of this package.
`DocumentsTransform.run_keys` binds the key of a run to the context, by `RunKey.bound_to`.
"""

import functools
import hashlib
import inspect
import json
import os
import re
import stat
from typing import NamedTuple

from beam_dpne.documents.participants import SeriesPlace
from beam_dpne.documents.tokenizers import Tokenizer, resolve_tokenizer, stated, tokenizer_name
from beam_dpne.errors import RunKeyError
from beam_dpne.mechanism.plan import GaussianPlan
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.reading.options import InputDescription
from beam_dpne.storage.directories import absolute_path, reason
from beam_dpne.storage.paths import is_local, is_pipe, open_file

# It is increased whenever any release under a fixed key would change; tests/golden holds such releases.
# Since version 3, releases of n-grams spend a part of their budget on numbers of users. Since version
# 4, cells of these sums are rounded up, and estimates need more evidence of users with much text. Since
# version 5, candidates have classes and counts, set unions have three rounds, and priors are others.
# Since version 6, keys are bound to what differs from defaults, and each plan reserves a thousandth of
# ε and δ for the imperfections of its noise. Since version 7, what users keep for longer n-grams counts
# distinct ones. Since version 8, numbers of users are measured by classes of users. Since version 9,
# they follow the group where rows have groups, and known lists lose what folding changes. Since version
# 10, `favour long` keeps for longer n-grams what the default keeps. Since version 11, the lead of known
# n-grams follows from shorter ones, and beside known words more is kept for longer n-grams; since
# version 12, each user keeps it by the own words that are known; since version 13, intervals of the
# heaviest n-grams are wider. What changes only runs with a stop list or masks raises the versions of
# these instead (`masks`), which are part of the tokenizer's.
MECHANISM_VERSION = 13
_UNKNOWN = "unknown"
# Bytes of a key file that are read; a key has 64 digits, and white space may follow it.
_LONGEST = 1024
# The digits of a key at the end of what is given for the path of one.
_KEY = re.compile(r"\b[0-9a-fA-F]{64}\s*$")


def key_context(
    plan: GaussianPlan,
    tokenizer: str | Tokenizer,
    *,
    described: InputDescription | None = None,
    rows: InputDescription | None = None,
    public: str = "",
    series: SeriesPlace | None = None,
) -> str:
    """Returns the text that the run key is bound to, as JSON; equal runs have equal texts.

    Args:
      plan: Plan of the run.
      tokenizer: Name of the tokenizer, or the function.
      described: How records became documents; by default `rows`.
      rows: Fields by which the elements of the pipeline are read; by default `user` and `text`.
      public: Digest of the public data that the run uses (a vocabulary or public counts).
      series: Place of the release in a series, in each of which other users take part.
    """
    fields = rows or InputDescription()
    context: dict[str, object] = {
        "mechanism_version": MECHANISM_VERSION,
        "program": plan.program,
        "parameters": plan.key_parameters(),
        "tokenizer": tokenizer_identity(tokenizer),
        "records": _changed(described or fields),
        "rows": _changed(fields),
        "public": public,
    }
    if series is not None:
        context["series"] = {"id": series.id, "number": series.number}
    return json.dumps(context, sort_keys=True, allow_nan=False)


def _changed(described: InputDescription) -> dict[str, object]:
    """Returns what of a description differs from its default."""
    default = InputDescription().to_dict()
    return {
        name: value for name, value in described.to_dict().items() if value != default.get(name)
    }


def tokenizer_identity(tokenizer: str | Tokenizer) -> dict[str, str]:
    """Returns a tokenizer's name and version, which the run key is bound to.

    The version is the tokenizer's attribute `version`, if it has one. Otherwise it is the SHA-256 of
    the source of the module that defines the function, so that runs with a changed tokenizer draw other
    noise. Without source, as in an interactive session, the version is unknown, and the key is bound to
    the name only.

    >>> tokenizer_identity("tokens")
    {'name': 'tokens', 'version': '1'}
    """
    return {"name": tokenizer_name(tokenizer), "version": _version_of(tokenizer)}


def require_identified(tokenizer: str | Tokenizer) -> None:
    """Checks that a tokenizer's identity determines its tokens, as an operator's run key requires.

    A function at the top of a module is identified by the module's source. A partial, a lambda, a
    closure, a method, an object, and a function without source may have state that no name identifies.
    Two of them under one key could draw the same noise for different tokens.

    Raises:
      ValueError: The tokenizer is one of those and has no attribute `version`.
    """
    function = resolve_tokenizer(tokenizer)
    if stated(function, "version") is not None:
        return
    # A function that wraps another one has the other one's name, and seems to be of its module.
    is_named = inspect.isfunction(function) and not hasattr(function, "__wrapped__")
    at_top = is_named and function.__qualname__.isidentifier()
    if not at_top or function.__closure__ or _version_of(tokenizer) == _UNKNOWN:
        raise ValueError(
            "`tokenizer` must be a function at the top of a module, or have an attribute `version` "
            "that changes with its behaviour, if a run key is given, since the key's noise is "
            f"bound to it. Got `tokenizer={tokenizer_name(tokenizer)}`."
        )


def _version_of(tokenizer: str | Tokenizer) -> str:
    """Returns the version of a tokenizer, or "unknown" if it has none and no source."""
    function = resolve_tokenizer(tokenizer)
    version = stated(function, "version")
    if version is not None:
        return str(version)
    try:
        # A callable object is defined by its class.
        definition = function if hasattr(function, "__qualname__") else type(function)
        defined = inspect.getmodule(definition) or function
        file = inspect.getsourcefile(defined) or ""
        source = inspect.getsource(defined)
    except (OSError, TypeError):
        return _UNKNOWN
    # Python 3.13 gives the text of `python -c` for all code that was made of a text.
    if file.startswith("<"):
        return _UNKNOWN
    return hashlib.sha256(source.encode()).hexdigest()


class RunKeyFile(RunKey):
    """A run key that workers read from a file, so that the job graph holds only the file's path.

    Noise of two keys in one release would void the guarantee. So a worker that finds another key
    than the launcher raises an error. For this check the job graph also holds a fingerprint of the
    key, which does not reveal a random key.

    >>> import pathlib, pickle, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "run.key")
    ...     _ = path.write_text("5eed" * 16)
    ...     key = RunKeyFile.checked(str(path))
    ...     print(bytes.fromhex("5eed") in pickle.dumps(key), key == RunKey.from_hex("5eed" * 16))
    False True
    """

    __slots__ = ("_contexts", "_fingerprint", "_path")

    def __init__(self, path: str, fingerprint: str | None, contexts: tuple[str, ...] = ()):
        """Refers to a key without reading it.

        Args:
          path: Path of a file with 64 hexadecimal digits, local or on any Beam file system.
          fingerprint: Fingerprint of the key that must be in the file; None in a template, whose file
            may hold another key at each launch.
          contexts: Texts that the key is bound to, see `RunKey.bound_to`.
        """
        self._path = path
        self._fingerprint = fingerprint
        self._contexts = contexts

    @classmethod
    def checked(cls, path: str, *, pinned: bool = True) -> "RunKeyFile":
        """Reads the file once and returns the key in it.

        Args:
          path: As in the constructor.
          pinned: Whether workers must find the same key.

        Raises:
          ValueError: The file cannot be read or holds no key. The error names the file and never
            quotes it.
        """
        key = _read(path)
        return cls(path, _fingerprint(key) if pinned else None)

    def bound_to(self, context: str) -> "RunKeyFile":
        """Returns the key of one run, which stays in its file and is bound when it is read."""
        return RunKeyFile(self._path, self._fingerprint, (*self._contexts, context))

    def _key(self) -> bytes:
        """Returns the 32 secret bytes, which this process reads from the file once."""
        return _key_in(self._path, self._fingerprint, self._contexts)

    def __reduce__(self):
        return RunKeyFile, (self._path, self._fingerprint, self._contexts)


@functools.lru_cache(maxsize=64)
def _key_in(path: str, fingerprint: str | None, contexts: tuple[str, ...]) -> bytes:
    """Reads a key, compares its fingerprint, and binds it to the contexts in turn."""
    key = _read(path)
    if fingerprint is not None and _fingerprint(key) != fingerprint:
        raise RunKeyError(
            f"`run_key_file` must hold one key during a run, got {path}, where a worker found another "
            "key than the launcher."
        )
    for context in contexts:
        key = key.bound_to(context)
    return key._key()


class RunKeys(NamedTuple):
    """The key of one run, before and after it was bound to the run's context.

    Attributes:
      own: The key that was given, or a fresh one.
      bound: The key from which all randomness of the run follows. Two runs have the same noise if,
        and only if, it is the same.
    """

    own: RunKey
    bound: RunKey


# A commitment, or the file of a key, which is no secret, and from which a worker computes it.
Committed = str | RunKeyFile


def committed(key: RunKey) -> Committed:
    """Returns what a job may hold to state the commitment to a key, and not the key itself.

    The key in a file may be another one at each launch of a template, so its commitment is computed
    where the ledger is made.
    """
    return key if isinstance(key, RunKeyFile) else key.commitment()


def commitment_of(key: Committed) -> str:
    """Returns the commitment that `committed` stands for."""
    return key if isinstance(key, str) else key.commitment()


def _fingerprint(key: RunKey) -> str:
    """Returns 8 bytes derived from a key, which do not reveal a random key."""
    return hashlib.blake2b(key.sub_key("fingerprint"), digest_size=8).hexdigest()


def _read(path: str) -> RunKey:
    """Reads a key; errors quote nothing of the file."""
    if is_pipe(path):
        raise RunKeyError(
            f"`run_key_file` must be a file that can be read several times, got {path}, which is a "
            "pipe or a device; write the key into a file."
        )
    try:
        with open_file(path) as file:
            text = file.read(_LONGEST).decode("ascii")
    except (OSError, ValueError) as error:
        if _KEY.search(path):
            raise RunKeyError(
                "`run_key_file` must name the file of a key, got a key itself: write its digits into a "
                "file, or give a RunKey to a call from Python (RunKey.from_hex)."
            ) from None
        raise RunKeyError(
            f"`run_key_file` cannot be read, got {path} ({reason(error)}). The launcher and "
            "every worker read it, so it must be on storage that they share."
        ) from None
    try:
        key = RunKey.from_hex(text)
    except ValueError as error:
        raise RunKeyError(f"`run_key_file` must hold a run key, got {path}: {error}") from None
    if len(set(text.strip())) == 1:
        raise RunKeyError(
            f"`run_key_file` must hold a random key, got {path}, which has one digit throughout. Make "
            'one: python -c "import secrets; print(secrets.token_hex(32))" > run.key.'
        )
    return key


def can_be_read_by_others(path: str) -> bool:
    """Whether others than its owner can read a local file; of remote files nothing is known.

    A key of somebody else that this process can read by its group is meant for the group.
    """
    if not is_local(path):
        return False
    found = os.stat(absolute_path(path))
    is_own = os.name == "posix" and found.st_uid == os.getuid()
    others = stat.S_IROTH | stat.S_IRGRP if is_own else stat.S_IROTH
    return bool(found.st_mode & others)
