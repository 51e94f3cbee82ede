"""The program `beam-dpne bayesian`, as far as it differs from the others (`programs`).

It can also write a language model after a complete release (`--arpa FILE`).
"""

import argparse
import contextlib
import io
import os
import tempfile
import uuid
from collections.abc import Sequence

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_dpne.bayesian import arpa
from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.bayesian.public_counts import PublicCounts
from beam_dpne.bayesian.public_counts_files import read_public_counts
from beam_dpne.bayesian.transform import BayesianCounts
from beam_dpne.cli import display, jobs, privacy
from beam_dpne.cli import options_by_command as tables
from beam_dpne.cli.budgets import remark_on_prior
from beam_dpne.cli.plan_checks import check_public
from beam_dpne.cli.runners import BeamOptions
from beam_dpne.elements.coders import array_bytes
from beam_dpne.elements.side_inputs import SetStore
from beam_dpne.errors import ExportError, PublicCountsError, RunError, UsageError
from beam_dpne.exports import language_model
from beam_dpne.exports.source import Source
from beam_dpne.reading.files import TextStream
from beam_dpne.reading.options import codec_of
from beam_dpne.release.files import has_ledger, is_inside, is_local, real_path
from beam_dpne.storage.access import check_access
from beam_dpne.storage.directories import reason

BayesianJob = jobs.Job[BayesianPlan, PublicCounts]


def _public_counts(
    parsed: argparse.Namespace, job: BayesianJob, options: BeamOptions
) -> PublicCounts:
    """Returns the public counts that the plan keeps; checks the path of a language model, too."""
    if not parsed.public:
        raise UsageError(
            "public must be given: --public PATH names a text, a file of counts or a release."
        )
    check_access([parsed.public], [], options.pipeline_options)
    check_public("public", parsed.public, job.files)
    if job.budget is not None:
        remark_on_prior(job.budget, parsed.public)
    public = read_public_counts(
        parsed.public,
        length=job.plan.length,
        tokenizer=job.tokenizer,
        vocabulary_size=job.plan.vocabulary_size,
    )
    jobs.check_in_template(job, "public counts of vocabulary_size", array_bytes(public))
    if job.arpa is not None:
        others = [parsed.public, parsed.run_key_file, *(file.path for file in job.files)]
        _check_model(job.arpa, job, options, [path for path in others if path])
    return public


def _bayesian_counts(job: BayesianJob, folder: str) -> BayesianCounts:
    if job.public is None:
        raise ValueError("public counts must be in a job of probabilities, got none.")
    store = None if job.hands_over else SetStore(folder=folder, limit=jobs.LARGEST_IN_GRAPH)
    return BayesianCounts(public=job.public, store=store, **job.shared_fields)


def _check_model(path: str, job: BayesianJob, options: BeamOptions, others: Sequence[str]) -> None:
    """Raises UsageError unless the language model can be written without harm to another file.

    Args:
      path: path of the language model.
      job: the job after which it is written.
      options: the options of Beam.
      others: files that the run reads.
    """
    if job.hands_over:
        raise UsageError(
            f"arpa must be left out with a template, whose launcher does not wait, got arpa={path}."
        )
    if codec_of(path):
        raise UsageError(f"arpa must be a file without compression, got arpa={path}.")
    for folder in filter(None, (job.output, job.rejects)):
        if is_inside(path, folder):
            raise UsageError(
                f"arpa must be outside the directories of the release and of rejects, got arpa={path}."
            )
    if has_ledger(real_path(path).rpartition("/")[0]):
        raise UsageError(f"arpa must be outside every release, got arpa={path}.")
    if real_path(path) in map(real_path, others):
        raise UsageError(f"arpa must be no file that the run reads, got arpa={path}.")
    if not is_local(path):
        check_access([], [path.rpartition("/")[0]], options.pipeline_options)
    else:
        parent = os.path.dirname(os.path.abspath(path))
        if not path or os.path.isdir(path) or not _can_write(parent):
            raise UsageError(f"arpa must be a file that can be written, got arpa={path!r}.")
    if not FileSystems.exists(path):
        return
    if not job.overwrite:
        raise UsageError(f"arpa must be a new file, got arpa={path}; remove it, or --overwrite.")
    if not _is_model(path):
        raise UsageError(f"arpa must be a new file or a model, got arpa={path}, which is neither.")


def _write_model(job: BayesianJob) -> None:
    """Writes the language model of a complete release, if it is wanted.

    It is written under another name first, so that there is never a part of a model under its name.

    Raises:
      RunError: if it cannot be written; the release is complete all the same.
    """
    path = job.arpa
    if path is None or job.public_path is None:
        return
    source = Source.read(job.output)
    folder, slash, name = path.rpartition("/")
    unfinished = f"{folder}{slash}.{name}.{uuid.uuid4().hex}"
    try:
        with FileSystems.create(unfinished, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            stream = io.TextIOWrapper(file, encoding="utf-8", newline="\n", write_through=True)
            language_model.write_probabilities(
                stream, source, job.public_path, tokenizer=job.tokenizer
            )
            stream.flush()
            stream.detach()
        FileSystems.rename([unfinished], [path])
    except (ExportError, PublicCountsError) as error:
        raise RunError(f"arpa cannot be written, got {path}: {error}") from None
    except (OSError, BeamIOError) as error:
        raise RunError(f"arpa cannot be written, got {path} ({reason(error)}).") from None
    finally:
        # There is no unfinished file after the whole one has been renamed.
        with contextlib.suppress(OSError, BeamIOError):
            FileSystems.delete([unfinished])


def _can_write(folder: str) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _is_model(path: str) -> bool:
    with TextStream(path) as file:
        return file.peek(len(arpa.FIRST_LINE)) == arpa.FIRST_LINE.encode()


BAYESIAN = jobs.Program(
    table=tables.BAYESIAN,
    plan=privacy.bayesian_plan,
    public=_public_counts,
    transform=_bayesian_counts,
    show=display.print_probabilities,
    finish=_write_model,
)
