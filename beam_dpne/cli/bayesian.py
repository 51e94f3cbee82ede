"""`beam-dpne bayesian`: from options to a pipeline, run and reported."""

import argparse
import dataclasses
import hashlib
import io as io_text
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_dpne import arpa, io
from beam_dpne.batches import array_bytes
from beam_dpne.bayesian import BayesianCounts
from beam_dpne.bayesian_plan import NO_GUARANTEE, BayesianPlan
from beam_dpne.cli import display, jobs, launching, running
from beam_dpne.cli.bayesian_options import BAYESIAN
from beam_dpne.cli.budget import require_budget
from beam_dpne.cli.errors import RunError, UsageError
from beam_dpne.cli.options import with_defaults
from beam_dpne.io.access import check_access
from beam_dpne.io.files import open_raw
from beam_dpne.io.public import read_public_counts
from beam_dpne.io.publishing import PublishRelease, read_release
from beam_dpne.ledger import reason
from beam_dpne.public_counts import PublicCounts
from beam_dpne.stored import SetStore

_READ_AT_ONCE = 2**22


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
    started = time.monotonic()
    ledger = run_job(job, options)
    if ledger is not None:
        with display.published(job.output):
            display.print_probabilities(ledger, job.output, time.monotonic() - started)
        if job.arpa is not None:
            write_model(job, job.arpa)


def job_from_options(given: argparse.Namespace, options: running.BeamOptions) -> BayesianJob:
    """Checks all options and returns the job; reads the public counts, and heads of the input files.

    Args:
      given: parsed options.
      options: where the job will run.

    Raises:
      UsageError, ValueError, FileNotFoundError: if a parameter is wrong.
    """
    values = with_defaults(given, BAYESIAN)
    require_budget(values)
    plan = BayesianPlan(**values)
    if not given.public:
        raise UsageError(
            "public must be given: --public PATH, a text, a file of counts or a release."
        )
    settings = jobs.settings_from_options(given, options)
    check_access([given.public], [], options.pipeline_options)
    if given.arpa is not None:
        _check_arpa(given.arpa, options, overwrite=settings["overwrite"])
    _refuse_private(given.public, settings["files"])
    public = read_public_counts(
        given.public,
        length=plan.length,
        tokenizer=settings["tokenizer"],
        vocabulary_size=plan.vocabulary_size,
    )
    job = BayesianJob(plan=plan, public=public, arpa=given.arpa, **settings)
    jobs.check_in_template(job, "public counts of vocabulary_size", array_bytes(public))
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
    counted = jobs.read_documents(pipeline, job, canary) | "BayesianCounts" >> BayesianCounts(
        plan=job.plan,
        public=job.public,
        tokenizer=job.tokenizer,
        partitions=job.partitions,
        run_key=job.run_key,
        store=None if job.hands_over else SetStore(folder=folder, limit=jobs.LARGEST_IN_GRAPH),
    )
    _ = counted | "Publish" >> PublishRelease(plan=job.plan, **jobs.publishing(job, canary))


def write_model(job: BayesianJob, path: str) -> None:
    """Writes the language model of a finished run's release.

    Raises:
      RunError: if it cannot be written; the release is complete all the same.
    """
    rows = read_release(job.output)
    ngrams, found = rows["ngram"].to_pylist(), rows["probability"].to_pylist()
    probability = dict(zip(ngrams, found, strict=True))
    joint = np.array([probability[text] for text in job.public.texts().to_pylist()])
    notice = None if job.plan.is_private else NO_GUARANTEE
    try:
        with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            stream = io_text.TextIOWrapper(file, encoding="utf-8", newline="\n", write_through=True)
            arpa.write_arpa(stream, joint, job.public.grams, job.public.words, notice=notice)
            stream.flush()
            stream.detach()
    except (OSError, BeamIOError) as error:
        raise RunError(
            f"arpa cannot be written, got {path} ({reason(error)}). The release in {job.output} is "
            "complete."
        ) from None


def _check_arpa(path: str, options: running.BeamOptions, *, overwrite: bool) -> None:
    """Raises unless the model can be written after the run, without replacing a file unasked."""
    if options.hands_over:
        raise UsageError(
            f"arpa must be left out with a template, whose launcher does not wait, got arpa={path}."
        )
    if FileSystems.get_scheme(path) is not None:
        check_access([], [path.rpartition("/")[0]], options.pipeline_options)
    else:
        parent = os.path.dirname(os.path.abspath(path))
        if os.path.isdir(path) or not os.path.isdir(parent) or not os.access(parent, os.W_OK):
            raise UsageError(f"arpa must be a file that can be written, got arpa={path}.")
    if FileSystems.exists(path) and not overwrite:
        raise UsageError(f"arpa must be a new file, got arpa={path}; remove it, or --overwrite.")


def _refuse_private(public: str, files: Sequence[io.InputFile]) -> None:
    """Raises UsageError if the public counts are one of the private files, or the same as one."""
    for file in files:
        if _is_same(public, file):
            raise UsageError(
                f"public must not be private data, got public={public}, which is the same file as an "
                f"input, {file.path}. Give data that anybody may see."
            )


def _is_same(public: str, file: io.InputFile) -> bool:
    if FileSystems.get_scheme(public) is None:
        if os.path.isdir(public):
            return False
        if os.path.realpath(public) == os.path.realpath(file.path):
            return True
        if not os.path.isfile(public) or os.path.getsize(public) != file.size:
            return False
    elif public == file.path:
        return True
    elif not FileSystems.exists(public) or _size(public) != file.size:
        return False
    return _digest(public) == _digest(file.path)


def _size(path: str) -> int:
    return FileSystems.match([path])[0].metadata_list[0].size_in_bytes


def _digest(path: str) -> bytes:
    digest = hashlib.sha256()
    with open_raw(path) as file:
        while data := file.read(_READ_AT_ONCE):
            digest.update(data)
    return digest.digest()
