"""`beam-dpne ngrams`, `set-union` and `bayesian`: what each adds to the shape in `jobs`."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from beam_dpne import reading
from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.bayesian.public_counts import PublicCounts
from beam_dpne.bayesian.transform import BayesianCounts
from beam_dpne.cli import display, jobs, language_model
from beam_dpne.cli.beam_options import BeamOptions
from beam_dpne.cli.options import with_defaults
from beam_dpne.cli.plans import check_tokens, plan_from_options, read_vocabulary, require_budget
from beam_dpne.cli.tables import BAYESIAN as BAYESIAN_TABLE
from beam_dpne.cli.tables import NGRAMS as NGRAMS_TABLE
from beam_dpne.cli.tables import SET_UNION as SET_UNION_TABLE
from beam_dpne.elements.coders import array_bytes
from beam_dpne.elements.side_inputs import SetStore
from beam_dpne.errors import UsageError
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.ngrams.transform import PrivateNgrams
from beam_dpne.release.public_counts_files import read_public_counts, same_file
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.set_union.transform import PrivateSetUnion
from beam_dpne.storage.access import check_access

# A word of a released set also takes the position where it ends, its number and its score.
_BYTES_BESIDE_A_WORD = 20

NgramsJob = jobs.Job[PrivacyPlan, Sequence[str]]
SetUnionJob = jobs.Job[SetUnionPlan, None]
BayesianJob = jobs.Job[BayesianPlan, PublicCounts]


def run_command(given: argparse.Namespace, beam_arguments: list[str]) -> None:
    """Runs the program that the parsed options name, and prints the release."""
    jobs.run_command(PROGRAMS[given.program], given, beam_arguments)


def _ngrams_plan(given: argparse.Namespace) -> PrivacyPlan:
    plan = plan_from_options(given)
    if plan.has_public_vocabulary and not given.vocabulary:
        raise UsageError(
            "vocabulary must name a file with vocabulary_policy='public', got none: --vocabulary FILE."
        )
    if given.vocabulary and not plan.has_public_vocabulary:
        raise UsageError(
            "vocabulary must be left out with another vocabulary_policy than 'public', got "
            f"vocabulary_policy={plan.vocabulary_policy!r}; leave out one of the two."
        )
    return plan


def _public_words(
    given: argparse.Namespace, job: NgramsJob, _: BeamOptions
) -> Sequence[str] | None:
    """Returns the public vocabulary, if words are given instead of found."""
    if not given.vocabulary:
        return None
    words = read_vocabulary(given.vocabulary)
    _check_public("vocabulary", given.vocabulary, job.files)
    # The tokenizer of the MSNBC program turns numbers into names, so that no name is a token of itself.
    if given.tokenizer is not None or isinstance(job.tokenizer, str):
        check_tokens(words, job.tokenizer)
    size = sum(len(word.encode()) + _BYTES_BESIDE_A_WORD for word in words)
    jobs.check_in_template(job, "vocabulary", size)
    return words


def _private_ngrams(job: NgramsJob, folder: str) -> PrivateNgrams:
    return PrivateNgrams(
        vocabulary=job.public,
        store=SetStore(folder=folder, limit=job.side_input_limit, from_launch=not job.hands_over),
        **_common(job),
    )


def _set_union_plan(given: argparse.Namespace) -> SetUnionPlan:
    values = with_defaults(given, SET_UNION_TABLE["privacy"])
    require_budget(values)
    return SetUnionPlan(**values)


def _private_set_union(job: SetUnionJob, _: str) -> PrivateSetUnion:
    return PrivateSetUnion(**_common(job))


def _bayesian_plan(given: argparse.Namespace) -> BayesianPlan:
    values = with_defaults(given, BAYESIAN_TABLE["privacy"])
    require_budget(values, "0.1 to 1 is common here")
    plan = BayesianPlan(**values)
    if not given.public:
        raise UsageError(
            "public must be given: --public PATH, a text, a file of counts or a release."
        )
    return plan


def _public_counts(
    given: argparse.Namespace, job: BayesianJob, options: BeamOptions
) -> PublicCounts:
    """Returns the public counts, no more than the plan keeps; checks the path of a model, too."""
    check_access([given.public], [], options.pipeline_options)
    _check_public("public", given.public, job.files)
    public = read_public_counts(
        given.public,
        length=job.plan.length,
        tokenizer=job.tokenizer,
        vocabulary_size=job.plan.vocabulary_size,
    )
    jobs.check_in_template(job, "public counts of vocabulary_size", array_bytes(public))
    if job.arpa is not None:
        others = [given.public, given.run_key_file, *(file.path for file in job.files)]
        language_model.check(job.arpa, job, options, [path for path in others if path])
    return public


def _bayesian_counts(job: BayesianJob, folder: str) -> BayesianCounts:
    if job.public is None:
        raise ValueError("public counts must be in a job of probabilities, got none.")
    store = SetStore(folder=folder, limit=jobs.LARGEST_IN_GRAPH)
    return BayesianCounts(
        public=job.public, store=None if job.hands_over else store, **_common(job)
    )


def _write_model(job: BayesianJob) -> None:
    if job.arpa is not None and job.public is not None:
        language_model.write(job.arpa, job.output, job.public)


def _common(job: jobs.Job[Any, Any]) -> dict[str, Any]:
    """Returns the fields that the private transforms share."""
    return {
        "plan": job.plan,
        "tokenizer": job.tokenizer,
        "partitions": job.partitions,
        "run_key": job.run_key,
        "described": job.described,
    }


def _check_public(name: str, path: str, files: Sequence[reading.InputFile]) -> None:
    """Raises UsageError if a public file is one of the private ones, or has the same text."""
    for file in files:
        if same_file(path, file.path):
            raise UsageError(
                f"{name} must not be private data, got {name}={path}, which is the same as an input, "
                f"{file.path}. Give data that anybody may see."
            )


NGRAMS = jobs.Program(
    table=NGRAMS_TABLE,
    plan=_ngrams_plan,
    public=_public_words,
    transform=_private_ngrams,
    show=display.print_release,
    max_length=lambda plan: plan.max_length,
)
SET_UNION = jobs.Program(
    table=SET_UNION_TABLE,
    plan=_set_union_plan,
    public=lambda *_: None,
    transform=_private_set_union,
    show=display.print_items,
)
BAYESIAN = jobs.Program(
    table=BAYESIAN_TABLE,
    plan=_bayesian_plan,
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
