"""The differences between `beam-dpne ngrams`, `set-union` and `bayesian`, whose steps `jobs` has.

Each program has its table of options, its plan, its public data, its private transform and its printed
table. That of `bayesian` is in `probabilities`.
"""

import argparse
from typing import Any

from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.bayesian.public_counts import PublicCounts
from beam_dpne.cli import display, jobs, privacy
from beam_dpne.cli import options_by_command as tables
from beam_dpne.cli.runners import beam_options
from beam_dpne.elements.side_inputs import SetStore
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.ngrams.transform import PrivateNgrams
from beam_dpne.set_union.transform import PrivateSetUnion

NgramsJob = jobs.Job[PrivacyPlan, None]
BayesianJob = jobs.Job[BayesianPlan, PublicCounts]


def run_command(parsed: argparse.Namespace, beam_arguments: list[str]) -> None:
    """Runs the program that the parsed options name, and prints the release."""
    program = program_of(parsed.program)
    options = beam_options(beam_arguments, program.table)
    jobs.release(jobs.job_from_options(program, parsed, options), options)


def _private_ngrams(job: NgramsJob, folder: str) -> PrivateNgrams:
    store = SetStore(folder=folder, limit=job.side_input_limit, from_launch=not job.hands_over)
    return PrivateNgrams(store=store, **job.shared_fields)


NGRAMS = jobs.Program(
    table=tables.NGRAMS,
    plan=privacy.plan_from_options,
    public=lambda *_: None,
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
