"""The differences between `beam-dpne ngrams`, `set-union` and `bayesian`, whose steps `jobs` has.

Each program has its table of options, its plan, its public data, its private transform and its printed
table. `bayesian` can also write a language model after a complete release (`--arpa FILE`).
"""

import argparse
import contextlib
import io
import os
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_dpne.bayesian import arpa
from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.bayesian.public_counts import PublicCounts
from beam_dpne.bayesian.public_counts_files import read_public_counts, same_file
from beam_dpne.bayesian.transform import BayesianCounts
from beam_dpne.cli import display, jobs, privacy
from beam_dpne.cli import options_by_command as tables
from beam_dpne.cli.budgets import remark_on_prior
from beam_dpne.cli.plans import check_tokens, read_vocabulary
from beam_dpne.cli.runners import BeamOptions, beam_options
from beam_dpne.elements.coders import array_bytes
from beam_dpne.elements.side_inputs import SetStore
from beam_dpne.errors import ExportError, PublicCountsError, RunError, UsageError
from beam_dpne.exports import language_model
from beam_dpne.exports.source import Source
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.ngrams.transform import PrivateNgrams
from beam_dpne.reading import InputFile
from beam_dpne.reading.files import TextStream
from beam_dpne.reading.options import codec_of
from beam_dpne.release.files import has_ledger, is_inside, is_local, real_path
from beam_dpne.set_union.transform import PrivateSetUnion
from beam_dpne.storage.access import check_access
from beam_dpne.storage.directories import reason

# A set of words also holds the end position, the number and the score of each word.
_BYTES_BESIDE_A_WORD = 20

NgramsJob = jobs.Job[PrivacyPlan, Sequence[str]]
BayesianJob = jobs.Job[BayesianPlan, PublicCounts]


def run_command(parsed: argparse.Namespace, beam_arguments: list[str]) -> None:
    """Runs the program that the parsed options name, and prints the release."""
    options = beam_options(beam_arguments)
    jobs.release(jobs.job_from_options(PROGRAMS[parsed.program], parsed, options), options)


def _public_words(
    parsed: argparse.Namespace, job: NgramsJob, _: BeamOptions
) -> Sequence[str] | None:
    """Returns the public vocabulary, or None if the run finds its words in the data."""
    if not parsed.vocabulary:
        return None
    words = read_vocabulary(parsed.vocabulary)
    _check_public("vocabulary", parsed.vocabulary, job.files)
    # The tokenizer of the MSNBC program turns numbers into names, so it cannot read a name.
    if parsed.tokenizer is not None or isinstance(job.tokenizer, str):
        check_tokens(words, job.tokenizer)
    size = sum(len(word.encode()) + _BYTES_BESIDE_A_WORD for word in words)
    jobs.check_in_template(job, "vocabulary", size)
    return words


def _private_ngrams(job: NgramsJob, folder: str) -> PrivateNgrams:
    store = SetStore(folder=folder, limit=job.side_input_limit, from_launch=not job.hands_over)
    return PrivateNgrams(vocabulary=job.public, store=store, **_shared_fields(job))


def _public_counts(
    parsed: argparse.Namespace, job: BayesianJob, options: BeamOptions
) -> PublicCounts:
    """Returns the public counts that the plan keeps; checks the path of a language model, too."""
    if not parsed.public:
        raise UsageError(
            "public must be given: --public PATH names a text, a file of counts or a release."
        )
    check_access([parsed.public], [], options.pipeline_options)
    _check_public("public", parsed.public, job.files)
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
    return BayesianCounts(public=job.public, store=store, **_shared_fields(job))


def _shared_fields(job: jobs.Job[Any, Any]) -> dict[str, Any]:
    """Returns the fields that the private transforms share."""
    return {
        "plan": job.plan,
        "tokenizer": job.tokenizer,
        "partitions": job.partitions,
        "workers": job.workers,
        "run_key": job.run_key,
        "described": job.described,
    }


def _check_public(name: str, path: str, files: Sequence[InputFile]) -> None:
    """Raises UsageError if a public file is one of the private ones, or has the same text."""
    for file in files:
        if same_file(path, file.path):
            raise UsageError(
                f"{name} must not be private data, got {name}={path}, which is the same as an input, "
                f"{file.path}. Give data that anybody may see."
            )


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
    transform=lambda job, _: PrivateSetUnion(**_shared_fields(job)),
    show=display.print_items,
)
BAYESIAN = jobs.Program(
    table=tables.BAYESIAN,
    plan=privacy.bayesian_plan,
    public=_public_counts,
    transform=_bayesian_counts,
    show=display.print_probabilities,
    finish=_write_model,
)
PROGRAMS: Mapping[str, jobs.Program[Any, Any]] = {
    "ngrams": NGRAMS,
    "set-union": SET_UNION,
    "bayesian": BAYESIAN,
}
