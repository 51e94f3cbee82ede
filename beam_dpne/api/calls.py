"""The calls that release something from a frame or from files, and give the release back in memory."""

from collections.abc import Callable, Mapping
from typing import Any

from beam_dpne.api.failing import withheld
from beam_dpne.api.keywords import PATHS, asked_of, documentation_of, signature_of
from beam_dpne.jobs import console
from beam_dpne.jobs.inputs import SECRET
from beam_dpne.jobs.parameters import Rejecting
from beam_dpne.jobs.preparing import prepare
from beam_dpne.jobs.running import run_in_memory
from beam_dpne.reading.frames import Frame
from beam_dpne.release.whole import Release


def release_ngrams(frame: Any, /, **keywords: Any) -> Release:
    """Releases n-grams of many users, with user-level (ε, δ)-differential privacy."""
    return withheld(lambda: _released("release_ngrams", "ngrams", frame, keywords))


def release_items(frame: Any, /, **keywords: Any) -> Release:
    """Releases the items that many users share, with user-level (ε, δ)-differential privacy."""
    return withheld(lambda: _released("release_items", "set-union", frame, keywords))


def estimate_probabilities(frame: Any, /, **keywords: Any) -> Release:
    """Estimates a probability for every n-gram of a public vocabulary, (ε, δ)-privately."""
    return withheld(lambda: _released("estimate_probabilities", "bayesian", frame, keywords))


def _released(call: str, program: str, given: object, keywords: Mapping[str, Any]) -> Release:
    paths = given if _are_paths(given) else None
    asked = asked_of(call, program, paths, keywords)
    showing = console.showing(quiet=not asked.progress)
    prepared = prepare(
        asked.made,
        [],
        showing,
        asked.objects.get("tokenizer"),
        frame=Frame(given) if paths is None else None,
        run_key=asked.objects.get("run_key"),
    )
    release, records = run_in_memory(asked.made, prepared, showing)
    for told in records.told(asked.made[Rejecting].rejects, "rejects", quiet=showing.quiet):
        showing.tell(f"{told}. {SECRET}")
    return release


def _are_paths(given: object) -> bool:
    """Whether an input is given by paths, and not as a frame."""
    if isinstance(given, list | tuple):
        return len(given) > 0 and all(isinstance(each, PATHS) for each in given)
    return isinstance(given, PATHS)


_BOTH = """
Args:
  frame: what gives a stream of Arrow (a data frame of pandas or polars, a table or a reader of
    pyarrow, a relation of DuckDB, a table of Ibis), an iterable of record batches, or paths of files,
    as on the command line. It is read once.
"""
_ENDS = """
Returns:
  The release, in memory; `write` publishes it as files. What was released is (ε, δ)-private from the
  moment at which somebody sees it, and its budget is spent then, whether or not it is written.

Raises:
  ValueError: a keyword or the input is wrong. The message quotes no data.
  RunError: the run failed, and nothing was released.
"""


def _document(call: Callable[..., Release], program: str) -> None:
    """Gives a call the signature and the documentation of its keywords."""
    vars(call).update(__signature__=signature_of(program))
    call.__doc__ = f"{call.__doc__}\n{_BOTH}\n{documentation_of(program)}\n{_ENDS}"


_document(release_ngrams, "ngrams")
_document(release_items, "set-union")
_document(estimate_probabilities, "bayesian")
