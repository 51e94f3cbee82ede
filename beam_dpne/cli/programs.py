"""`beam-dpne ngrams`, `set-union` and `bayesian`: their private transforms, on the steps of `jobs`."""

from collections.abc import Mapping
from typing import Any

from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.cli import display, jobs, parameters
from beam_dpne.cli.budgets import remark_on_prior
from beam_dpne.cli.parsing import Made
from beam_dpne.cli.runners import BeamOptions, beam_options
from beam_dpne.documents.tokenizers import Tokenizer
from beam_dpne.elements.coders import SetStore
from beam_dpne.errors import UsageError
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.ngrams.transform import PrivateNgrams
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.set_union.transform import PrivateSetUnion
from beam_dpne.storage.access import check_access


def run(
    made: Made, beam_arguments: list[str], tokenizer: Tokenizer | None = None
) -> Mapping[str, Any] | None:
    """Releases what the parameters ask for, and prints it.

    Args:
      made: the groups of parameters of the command.
      beam_arguments: options of Beam.
      tokenizer: replaces the one that the parameters name.

    Returns:
      The ledger of the release, or None if only a template was written.
    """
    options = beam_options(beam_arguments, made.names)
    if BayesianPlan in made:
        return _bayesian(made, options)
    if SetUnionPlan in made:
        job = jobs.checked_job(made, made[SetUnionPlan], options, tokenizer)
        return jobs.release(
            job, lambda _: PrivateSetUnion(**job.shared_fields), display.print_items
        )
    job = jobs.checked_job(made, made[PrivacyPlan], options, tokenizer)
    limit = made[parameters.Running].side_input_limit

    def private(folder: str) -> PrivateNgrams:
        store = SetStore(folder=folder, limit=limit, from_launch=not options.hands_over)
        return PrivateNgrams(store=store, **job.shared_fields)

    return jobs.release(job, private, display.print_release)


def _bayesian(made: Made, options: BeamOptions) -> Mapping[str, Any] | None:
    # Its libraries take time to load, which the other programs do without.
    from beam_dpne.bayesian.public_counts_files import read_public_counts, same_file
    from beam_dpne.bayesian.transform import BayesianCounts
    from beam_dpne.elements.coders import array_bytes

    plan, path = made[BayesianPlan], made[parameters.PublicCounting].public
    job = jobs.checked_job(made, plan, options)
    check_access([path], [], options.pipeline_options)
    for file in job.files:
        if same_file(path, file.path):
            raise UsageError(
                f"public must not be private data, got public={path}, which is the same as an input, "
                f"{file.path}. Give data that anybody may see."
            )
    budget = made[parameters.Budgeting].budget
    if budget is not None:
        remark_on_prior(budget, path)
    public = read_public_counts(
        path,
        length=plan.length,
        tokenizer=job.tokenizer,
        vocabulary_size=plan.vocabulary_size,
    )
    jobs.check_in_template(options, "public counts of vocabulary_size", array_bytes(public))

    def private(folder: str) -> BayesianCounts:
        store = None
        if not options.hands_over:
            store = SetStore(folder=folder, limit=jobs.LARGEST_IN_GRAPH)
        return BayesianCounts(public=public, store=store, **job.shared_fields)

    return jobs.release(job, private, display.print_probabilities)
