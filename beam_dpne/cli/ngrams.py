"""`beam-dpne ngrams`: from options to a pipeline, run and reported."""

import argparse
import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import apache_beam as beam

from beam_dpne.cli import display, jobs, launching, running
from beam_dpne.cli.budget import warn_of_large_delta
from beam_dpne.cli.options import RUNNING, with_defaults
from beam_dpne.cli.plans import check_tokens, plan_from_options, read_vocabulary
from beam_dpne.cli.public_data import check_public
from beam_dpne.documents import tokenizers
from beam_dpne.elements.side_inputs import SetStore
from beam_dpne.errors import UsageError
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.ngrams.transform import PrivateNgrams
from beam_dpne.release.publishing import PublishRelease

# Of its place, score and end, in a released set.
_BYTES_BESIDE_A_WORD = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class NgramsJob(jobs.Job):
    """Everything that `beam-dpne ngrams` was asked to do, checked.

    Attributes:
      plan: the privacy parameters.
      vocabulary: public words, if they are given instead of found.
      side_input_limit: size in bytes of a released set above which it travels as a file.
    """

    plan: PrivacyPlan
    vocabulary: Sequence[str] | None
    side_input_limit: int


def run_command(given: argparse.Namespace, beam_arguments: list[str]) -> None:
    """Runs `beam-dpne ngrams` and prints the release."""
    options = running.beam_options(beam_arguments)
    job = job_from_options(given, options)
    warn_of_large_delta(job.plan)
    started = time.monotonic()
    ledger = run_job(job, options)
    if ledger is not None:
        with display.published(job.output):
            display.print_release(ledger, job.output, time.monotonic() - started)


def job_from_options(
    given: argparse.Namespace,
    options: running.BeamOptions,
    tokenizer: tokenizers.Tokenizer | None = None,
) -> NgramsJob:
    """Checks all options and returns the job; reads no data beyond the heads of the input files.

    Args:
      given: parsed options.
      options: where the job will run.
      tokenizer: instead of the option.

    Raises:
      UsageError, ValueError, FileNotFoundError: if a parameter is wrong.
    """
    plan = plan_from_options(given)
    vocabulary = given.vocabulary and read_vocabulary(given.vocabulary)
    if plan.has_public_vocabulary and not vocabulary:
        raise UsageError(
            "vocabulary must name a file with vocabulary_policy='public', got none: --vocabulary FILE."
        )
    if vocabulary and not plan.has_public_vocabulary:
        raise UsageError(
            "vocabulary must be left out with another vocabulary_policy than 'public', got "
            f"vocabulary_policy={plan.vocabulary_policy!r}; leave out one of the two."
        )
    limit = with_defaults(given, RUNNING)["side_input_limit"]
    jobs.require_at_least(1, "side_input_limit", limit)
    job = NgramsJob(
        plan=plan,
        vocabulary=vocabulary,
        side_input_limit=limit,
        **jobs.settings_from_options(given, options, tokenizer),
    )
    if vocabulary:
        check_public("vocabulary", given.vocabulary, job.files)
        if tokenizer is None:
            check_tokens(vocabulary, job.tokenizer)
    size = sum(len(word.encode()) + _BYTES_BESIDE_A_WORD for word in vocabulary or ())
    jobs.check_in_template(job, "vocabulary", size)
    return job


def run_job(job: NgramsJob, options: running.BeamOptions) -> Mapping[str, Any] | None:
    """Runs the job; returns the ledger of the release, None if only a template was made.

    Raises:
      RunError: if it failed; nothing has been published then.
    """
    return jobs.run_job(job, options, build, job.plan.max_length)


def build(
    pipeline: beam.Pipeline,
    job: NgramsJob,
    folder: str,
    canary: launching.Canary | None = None,
) -> None:
    """Wires reading, extraction and publishing.

    Args:
      pipeline: an empty one.
      job: what to do.
      folder: the run's temporary location.
      canary: what the first step leaves for the launcher; None: nothing.
    """
    read = jobs.read_documents(pipeline, job, canary)
    ngrams = read.documents | "PrivateNgrams" >> PrivateNgrams(
        plan=job.plan,
        vocabulary=job.vocabulary,
        tokenizer=job.tokenizer,
        partitions=job.partitions,
        run_key=job.run_key,
        described=job.described,
        store=SetStore(folder=folder, limit=job.side_input_limit, from_launch=not job.hands_over),
    )
    _ = ngrams | "Publish" >> PublishRelease(plan=job.plan, **jobs.publishing(job, canary, read))
