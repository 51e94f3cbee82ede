"""`--arpa FILE`: the language model of a complete release, which is written whole or not at all."""

import contextlib
import io
import os
import tempfile
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_dpne.bayesian import arpa
from beam_dpne.bayesian.public_counts import PublicCounts
from beam_dpne.cli.beam_options import BeamOptions
from beam_dpne.cli.jobs import Job
from beam_dpne.errors import RunError, UsageError
from beam_dpne.reading.files import TextStream
from beam_dpne.reading.options import codec_of
from beam_dpne.release.files import has_ledger, is_inside, is_local, read_release, real_path
from beam_dpne.storage.access import check_access
from beam_dpne.storage.directories import reason


def check(path: str, job: Job[Any, Any], options: BeamOptions, others: Sequence[str]) -> None:
    """Raises UsageError unless the model can be written after the run, and harms no other file.

    Args:
      path: of the model.
      job: the run after which it is written.
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
        raise UsageError(f"arpa must be a file of its own, got arpa={path}, which the run reads.")
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


def write(path: str, output: str, public: PublicCounts) -> None:
    """Writes the language model of a release.

    Args:
      path: path of the model; a file there is replaced when the new model is whole.
      output: directory of the release.
      public: the public counts of the run.

    Raises:
      RunError: if it cannot be written; the release is complete all the same.
    """
    rows = read_release(output)
    ngrams, found = rows["ngram"].to_pylist(), rows["probability"].to_pylist()
    probability = dict(zip(ngrams, found, strict=True))
    joint = np.array([probability[text] for text in public.texts().to_pylist()])
    folder, slash, name = path.rpartition("/")
    unfinished = f"{folder}{slash}.{name}.{uuid.uuid4().hex}"
    try:
        with FileSystems.create(unfinished, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            stream = io.TextIOWrapper(file, encoding="utf-8", newline="\n", write_through=True)
            arpa.write_arpa(stream, joint, public.grams, public.words)
            stream.flush()
            stream.detach()
        FileSystems.rename([unfinished], [path])
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
