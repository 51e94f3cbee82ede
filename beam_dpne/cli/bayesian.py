"""`beam-dpne bayesian`: from options to a pipeline, run and reported."""

import argparse
import dataclasses
import time
from collections.abc import Mapping
from typing import Any

import apache_beam as beam

from beam_dpne.bayesian.plan import NO_GUARANTEE, BayesianPlan
from beam_dpne.bayesian.public_counts import PublicCounts
from beam_dpne.bayesian.transform import BayesianCounts
from beam_dpne.cli import display, jobs, language_model, launching, running
from beam_dpne.cli.bayesian_options import BAYESIAN
from beam_dpne.cli.budget import require_budget, warn_of_large_delta
from beam_dpne.cli.options import with_defaults
from beam_dpne.cli.public_data import check_public
from beam_dpne.elements.coders import array_bytes
from beam_dpne.elements.side_inputs import SetStore
from beam_dpne.errors import UsageError
from beam_dpne.release.public import read_public_counts
from beam_dpne.release.publishing import PublishRelease
from beam_dpne.storage.access import check_access


@dataclasses.dataclass(frozen=True, kw_only=True)
class BayesianJob(jobs.Job):
    """Everything that `beam-dpne bayesian` was asked to do, checked.

    Attributes:
      plan: the privacy parameters.
      public: the public counts, no more than the plan keeps.
      arpa: file for a language model, if any.
    """

    plan: BayesianPlan
    public: PublicCounts = dataclasses.field(repr=False)
    arpa: str | None = None


def run_command(given: argparse.Namespace, beam_arguments: list[str]) -> None:
    """Runs `beam-dpne bayesian` and prints the release."""
    options = running.beam_options(beam_arguments)
    job = job_from_options(given, options)
    if job.plan.is_private:
        warn_of_large_delta(job.plan)
    started = time.monotonic()
    ledger = run_job(job, options)
    if ledger is not None:
        with display.published(job.output):
            display.print_probabilities(ledger, job.output, time.monotonic() - started)
        if job.arpa is not None:
            notice = None if job.plan.is_private else NO_GUARANTEE
            language_model.write(job.arpa, job.output, job.public, notice)


def job_from_options(given: argparse.Namespace, options: running.BeamOptions) -> BayesianJob:
    """Checks all options and returns the job; reads the public counts, and heads of the input files.

    Args:
      given: parsed options.
      options: where the job will run.

    Raises:
      UsageError, ValueError, FileNotFoundError: if a parameter is wrong.
    """
    values = with_defaults(given, BAYESIAN)
    require_budget(values, "0.1 to 1 is common here")
    plan = BayesianPlan(**values)
    if not given.public:
        raise UsageError(
            "public must be given: --public PATH, a text, a file of counts or a release."
        )
    settings = jobs.settings_from_options(given, options)
    check_access([given.public], [], options.pipeline_options)
    check_public("public", given.public, settings["files"])
    public = read_public_counts(
        given.public,
        length=plan.length,
        tokenizer=settings["tokenizer"],
        vocabulary_size=plan.vocabulary_size,
    )
    job = BayesianJob(plan=plan, public=public, arpa=given.arpa, **settings)
    jobs.check_in_template(job, "public counts of vocabulary_size", array_bytes(public))
    if job.arpa is not None:
        others = [given.public, given.run_key_file, *(file.path for file in job.files)]
        language_model.check(job.arpa, job, options, [path for path in others if path])
    return job


def run_job(job: BayesianJob, options: running.BeamOptions) -> Mapping[str, Any] | None:
    """Runs the job; returns the ledger of the release, None if only a template was made.

    Raises:
      RunError: if it failed; nothing has been published then.
    """
    return jobs.run_job(job, options, build)


def build(
    pipeline: beam.Pipeline,
    job: BayesianJob,
    folder: str,
    canary: launching.Canary | None = None,
) -> None:
    """Wires reading, counting and publishing.

    Args:
      pipeline: an empty one.
      job: what to do.
      folder: the run's temporary location.
      canary: what the first step leaves for the launcher; None: nothing.
    """
    read = jobs.read_documents(pipeline, job, canary)
    counted = read.documents | "BayesianCounts" >> BayesianCounts(
        plan=job.plan,
        public=job.public,
        tokenizer=job.tokenizer,
        partitions=job.partitions,
        run_key=job.run_key,
        described=job.described,
        store=None if job.hands_over else SetStore(folder=folder, limit=jobs.LARGEST_IN_GRAPH),
    )
    _ = counted | "Publish" >> PublishRelease(plan=job.plan, **jobs.publishing(job, canary, read))
