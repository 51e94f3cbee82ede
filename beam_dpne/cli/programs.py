"""The differences between `beam-dpne ngrams`, `set-union` and `bayesian`, whose steps `jobs` has.

Each program has its table of options, its plan, its public data, its private transform and its printed
table. That of `bayesian` is in `probabilities`.
"""

import argparse
from collections.abc import Sequence
from typing import Any

from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.bayesian.public_counts import PublicCounts
from beam_dpne.cli import display, jobs, privacy
from beam_dpne.cli import options_by_command as tables
from beam_dpne.cli.plan_checks import check_public, check_tokens, read_vocabulary
from beam_dpne.cli.runners import BeamOptions, beam_options
from beam_dpne.elements.side_inputs import SetStore
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.ngrams.transform import PrivateNgrams
from beam_dpne.set_union.transform import PrivateSetUnion

# A set of words also holds the end position, the number and the score of each word.
_BYTES_BESIDE_A_WORD = 20

NgramsJob = jobs.Job[PrivacyPlan, Sequence[str]]
BayesianJob = jobs.Job[BayesianPlan, PublicCounts]


def run_command(parsed: argparse.Namespace, beam_arguments: list[str]) -> None:
    """Runs the program that the parsed options name, and prints the release."""
    program = program_of(parsed.program)
    options = beam_options(beam_arguments, program.table)
    jobs.release(jobs.job_from_options(program, parsed, options), options)


def _public_words(
    parsed: argparse.Namespace, job: NgramsJob, _: BeamOptions
) -> Sequence[str] | None:
    """Returns the public vocabulary, or None if the run finds its words in the data."""
    if not parsed.vocabulary:
        return None
    words = read_vocabulary(parsed.vocabulary)
    check_public("vocabulary", parsed.vocabulary, job.files)
    # The tokenizer of the MSNBC program turns numbers into names, so it cannot read a name.
    if parsed.tokenizer is not None or isinstance(job.tokenizer, str):
        check_tokens(words, job.tokenizer)
    size = sum(len(word.encode()) + _BYTES_BESIDE_A_WORD for word in words)
    jobs.check_in_template(job, "vocabulary", size)
    return words


def _private_ngrams(job: NgramsJob, folder: str) -> PrivateNgrams:
    store = SetStore(folder=folder, limit=job.side_input_limit, from_launch=not job.hands_over)
    return PrivateNgrams(vocabulary=job.public, store=store, **job.shared_fields)


NGRAMS = jobs.Program(
    table=tables.NGRAMS,
    plan=privacy.ngrams_plan,
    public=_public_words,
    transform=_private_ngrams,
    show=display.print_release,
    max_length=lambda plan: plan.max_length,
)
SET_UNION = jobs.Program(
    table=tables.SET_UNION,
    plan=privacy.set_union_plan,
    public=lambda *_: None,
    transform=lambda job, _: PrivateSetUnion(**job.shared_fields),
    show=display.print_items,
)


def program_of(name: str) -> jobs.Program[Any, Any]:
    """Returns the program of a command: "ngrams", "set-union" or "bayesian"."""
    if name == "bayesian":
        # Its libraries take time to load, which the other programs do without.
        from beam_dpne.cli.probabilities import BAYESIAN

        return BAYESIAN
    return {"ngrams": NGRAMS, "set-union": SET_UNION}[name]
