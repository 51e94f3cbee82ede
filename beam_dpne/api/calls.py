"""The calls: releases of a frame or of files in memory, and what is asked before and after them."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from beam_dpne.accounting.expense import Plan
from beam_dpne.accounting.population import (
    CountedLedger,
    counted_ledger,
    population_of,
    read_counted,
)
from beam_dpne.api.failing import withheld
from beam_dpne.api.keywords import (
    CALLS,
    Asked,
    are_paths,
    asked_of,
    document,
    phrases_of,
    plain,
)
from beam_dpne.api.messages import with_keywords
from beam_dpne.errors import UsageError
from beam_dpne.jobs import console
from beam_dpne.jobs.accounting import Accounted, account_of, accounted
from beam_dpne.jobs.asking import Accounting
from beam_dpne.jobs.checking import Checked, check_input
from beam_dpne.jobs.evaluating import Evaluated, evaluated, judgeable
from beam_dpne.jobs.inputs import SECRET
from beam_dpne.jobs.parameters import Input, Rejecting, Writing
from beam_dpne.jobs.planning import Planned, planned
from beam_dpne.jobs.preparing import prepare
from beam_dpne.jobs.running import run_in_memory
from beam_dpne.jobs.showing import Showing
from beam_dpne.lists.parameters import ListedPhrases
from beam_dpne.reading.frames import Frame
from beam_dpne.reading.options import names_of
from beam_dpne.release.places import LEDGER_NAME
from beam_dpne.release.whole import Release, read_release


def release_ngrams(frame: Any, /, **keywords: Any) -> Release:
    """Releases n-grams of many users, with user-level (ε, δ)-differential privacy."""
    held = Frame(frame)
    frame = None  # A traceback that shows variables must not show it.
    return withheld(lambda: _released("release_ngrams", held, keywords))


def release_items(frame: Any, /, **keywords: Any) -> Release:
    """Releases the items that many users share, with user-level (ε, δ)-differential privacy."""
    held = Frame(frame)
    frame = None  # A traceback that shows variables must not show it.
    return withheld(lambda: _released("release_items", held, keywords))


def estimate_probabilities(frame: Any, /, **keywords: Any) -> Release:
    """Estimates a probability for every n-gram of a public vocabulary, (ε, δ)-privately."""
    held = Frame(frame)
    frame = None  # A traceback that shows variables must not show it.
    return withheld(lambda: _released("estimate_probabilities", held, keywords))


def count_phrases(frame: Any, /, **keywords: Any) -> Release:
    """Counts the users of each phrase of a public list, (ε, δ)-privately."""
    held = Frame(frame)
    frame = None  # A traceback that shows variables must not show it.
    return withheld(lambda: _released("count_phrases", held, keywords))


def check(frame: Any, /, **keywords: Any) -> Checked:
    """Reads an input as a run does, and says what may be wrong with it; it is NOT private.

    It is for the operator, before a run, and prints as text. It releases nothing and spends nothing.
    """
    held = Frame(frame)
    frame = None
    return withheld(lambda: _checked(held, keywords))


def evaluate(release: Any, frame: Any, /, **keywords: Any) -> Evaluated:
    """Compares a release with the private data it came from, for the operator; it is NOT private.

    The rows of each table are in `tables`, by its name, and sentences about them in `notes`. The fields
    and the tokenizer are those of the release, unless they are given.
    """
    held = Frame(frame)
    frame = None
    return withheld(lambda: _evaluated(release, held, keywords))


def plan(plan: Any, /, **keywords: Any) -> Planned:
    """Returns what is known of a plan before a run; it reads no private data.

    `rows` has the numbers of users that an n-gram needs, the rounds of a set union, or, with a number
    of users and public text, the forecast of a release. `plan` is the plan of each of the releases.
    """
    return withheld(lambda: _planned(plan, keywords))


def account(*releases: Any, **keywords: Any) -> Accounted:
    """Adds up what releases of the same users have spent, from their ledgers, and keeps a budget.

    `total` has the (ε, δ) of all together, and `runs` what is said of each.
    """
    return withheld(lambda: _accounted(releases, keywords))


def _released(name: str, held: Frame, keywords: Mapping[str, Any]) -> Release:
    # Groups of parameters for which there is something else.
    without: list[type] = [Writing]
    phrases = phrases_of(keywords.get("phrases"))
    if phrases is not None:
        without.append(ListedPhrases)
        if "phrases_same_people" in keywords:
            raise UsageError(
                "`phrases_same_people` must be given with the path of a release, and not with phrases "
                "in memory."
            )
    asked, frame = _asked(name, held, keywords, {}, without)
    showing = _showing(asked)
    prepared = prepare(
        asked.made,
        [],
        showing,
        asked.objects.get("tokenizer"),
        frame=frame,
        run_key=asked.objects.get("run_key"),
        phrases=phrases,
    )
    release, records = run_in_memory(asked.made, prepared, showing)
    for told in records.told(asked.made[Rejecting].rejects, "rejects", quiet=showing.quiet):
        showing.tell(f"{told}. {SECRET}")
    return release


def _asked(
    name: str,
    held: Frame,
    keywords: Mapping[str, Any],
    fixed: Mapping[str, Any],
    without: Sequence[type] = (),
) -> tuple[Asked, Frame | None]:
    """Returns what a call asks for, and its input if that is a frame."""
    if are_paths(held.given):
        fixed = {**fixed, "input": plain(held.given)}
        return asked_of(CALLS[name], keywords, fixed, without), None
    return asked_of(CALLS[name], keywords, fixed, [*without, Input], held.given), held


def _checked(held: Frame, keywords: Mapping[str, Any]) -> Checked:
    asked, frame = _asked("check", held, keywords, {})
    # What is told is in the result, and so is advice.
    showing = dataclasses.replace(_showing(asked), quiet=False, tell=lambda _: None)
    found = check_input(asked.made, [], showing, asked.objects.get("tokenizer"), frame=frame)
    return dataclasses.replace(
        found,
        about=with_keywords(found.about),
        told=list(map(with_keywords, found.told)),
        problems=list(map(with_keywords, found.problems)),
    )


def _showing(asked: Asked) -> Showing:
    """Returns how a run is shown, which names keywords and no options."""
    showing = console.showing(quiet=not asked.progress)
    return dataclasses.replace(
        showing, names_fields=False, tell=lambda text: showing.tell(with_keywords(text))
    )


def _evaluated(given: object, held: Frame, keywords: Mapping[str, Any]) -> Evaluated:
    release = judgeable(given if isinstance(given, Release) else read_release(_path(given)))
    asked, frame = _asked("evaluate", held, keywords, {"release": release.path})
    inputs = frame or names_of(asked.made[Input].input)
    return evaluated(asked.made, release, inputs, _showing(asked))


def _planned(given: object, keywords: Mapping[str, Any]) -> Planned:
    if not isinstance(given, Plan):
        raise UsageError(
            "`plan` must be a NgramsPlan, SetUnionPlan, PhraseCountsPlan or ProbabilitiesPlan, got "
            f"{type(given).__name__}."
        )
    asked = asked_of(CALLS["plan"], keywords, {"program": given.program})
    return planned(asked.made, given, _showing(asked))


def _accounted(releases: tuple[object, ...], keywords: Mapping[str, Any]) -> Accounted:
    for each in releases:
        if isinstance(each, list | tuple):
            raise UsageError(
                "the releases must be given one by one, got a list of them: account(*releases)."
            )
    in_memory = [each for each in releases if isinstance(each, Release) and each.files is not None]
    if not in_memory:
        ledgers = tuple(
            each.path if isinstance(each, Release) else _path(each) for each in releases
        )
        fixed = {"ledgers": ledgers} if ledgers else {}
        return accounted(asked_of(CALLS["account"], keywords, fixed).made[Accounting])
    asked = asked_of(CALLS["account"], keywords, {}).made[Accounting]
    if asked.budget is not None:
        raise UsageError(
            "`budget` must be given without releases in memory: give it to the call that makes them."
        )
    counted = [_counted(number, each) for number, each in enumerate(releases, 1)]
    return account_of(population_of(counted, same_users=asked.same_users), asked.delta)


def _counted(number: int, release: object) -> CountedLedger:
    if isinstance(release, Release) and release.files is not None:
        return counted_ledger(release.files[LEDGER_NAME], f"release {number} {release.path}")
    return read_counted(release.path if isinstance(release, Release) else _path(release))


def _path(given: object) -> str:
    if not isinstance(given, str | os.PathLike):
        raise UsageError(f"`release` must be a release or a path, got {type(given).__name__}.")
    return os.fspath(given)


_OF_FRAMES = """
Args:
  frame: what gives a stream of Arrow (a data frame of pandas or polars, a table or a reader of
    pyarrow, a relation of DuckDB, a table of Ibis), an iterable of record batches, or paths of files,
    as on the command line. It is read once.
"""
_OF_RELEASES = f"""{_OF_FRAMES}
Returns:
  The release, in memory; `write` publishes it as files. Its budget is spent, whether or not it is
  written.

Raises:
  ValueError: a keyword or the input is wrong. The message quotes no data.
  RunError: the run failed, and nothing was released.
"""

document(release_ngrams, CALLS["release_ngrams"], _OF_RELEASES)
document(release_items, CALLS["release_items"], _OF_RELEASES)
document(estimate_probabilities, CALLS["estimate_probabilities"], _OF_RELEASES)
document(count_phrases, CALLS["count_phrases"], _OF_RELEASES)
document(check, CALLS["check"], _OF_FRAMES)
document(evaluate, CALLS["evaluate"], _OF_FRAMES)
document(plan, CALLS["plan"], "")
document(account, CALLS["account"], "")
