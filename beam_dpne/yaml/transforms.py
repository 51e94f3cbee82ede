"""The transforms for Beam YAML: from files to rows with a schema, and from rows to rows.

Each is a function from the keys of a flat configuration to a transform. The keys are parameters, whose
types, ranges, defaults and help stand at the fields that hold them.
"""

import dataclasses
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, Optional

import apache_beam as beam

from beam_dpne.bayesian import steps as bayesian
from beam_dpne.bayesian.plan import ProbabilitiesPlan
from beam_dpne.documents.run_keys import RunKeyFile
from beam_dpne.documents.steps import DocumentsTransform
from beam_dpne.documents.tokenizers import Tokenizer
from beam_dpne.errors import UsageError
from beam_dpne.jobs.deltas import large_delta_of, refuse_too_large_delta
from beam_dpne.jobs.inputs import with_rules
from beam_dpne.jobs.made import Made, typed_values, with_file
from beam_dpne.jobs.parameters import Input, PlanFile, Rejecting, Running, Tokenizing, Writing
from beam_dpne.jobs.preparing import check_directory
from beam_dpne.lists.known import KnownNgrams, read_known
from beam_dpne.lists.parameters import CountedPhrases, KnownLists, ListedPhrases, PublicCounting
from beam_dpne.lists.phrases import read_phrases
from beam_dpne.lists.public_counts import read_public_counts
from beam_dpne.mechanism.plan import GaussianPlan
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams import steps as ngrams
from beam_dpne.ngrams.plan import NgramsPlan
from beam_dpne.phrase_counts import steps as phrase_counts
from beam_dpne.phrase_counts.plan import PhraseCountsPlan
from beam_dpne.reading.options import Grouping, ReadOptions, names_of
from beam_dpne.release import steps as release
from beam_dpne.release.publishing import check_output
from beam_dpne.release.schema import ReleaseNotes
from beam_dpne.set_union import steps as set_union
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.storage.directories import absolute_path, check_access
from beam_dpne.validation import (
    Parameter,
    Parameters,
    did_you_mean,
    parameters_of,
)
from beam_dpne.yaml.rows import PrivateRows, ReadRows, WriteRows

_LOGGER = logging.getLogger(__name__)
# The name of the transform that has a plan.
_TRANSFORMS = {
    NgramsPlan: "PrivateNgrams",
    SetUnionPlan: "PrivateSetUnion",
    ProbabilitiesPlan: "BayesianCounts",
    PhraseCountsPlan: "CountPhrases",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowFields(Parameters):
    """The fields of the rows of `ReadDocuments` beside the user and the texts."""

    fields: Annotated[
        Sequence[str] | None,
        Parameter(
            help="Further fields of the rows, for steps between reading and the private transform, "
            "e.g. country. A value that is null or missing is null, and every other value is text: "
            "numbers, times and truth values of Parquet files as Arrow writes them, and lists, "
            "objects, numbers and truth values of JSON as JSON. A field that does not exist is "
            "refused."
        ),
    ] = None
    text_is_tokens: Annotated[
        bool,
        Parameter(
            help="Whether each text is a list of tokens, in JSON or Parquet. Then give the private "
            "transform the tokenizer tokens. Texts of the other kind are rejected, and columns of it "
            "are refused."
        ),
    ] = False


# Dataclasses of parameters, each with the names of those that are keys; without names all of them are.
Groups = Mapping[type, Sequence[str]]


def _keys(groups: Groups) -> Callable[[Callable[[Made], beam.PTransform]], Callable[..., Any]]:
    """Makes a function of the groups with their values a function of YAML's keys.

    Beam reads the schema of the configuration from its signature, and the documentation of the keys
    from its docstring.
    """
    known = {
        each.name: each
        for group, names in groups.items()
        for each in parameters_of(group)
        if not names or each.name in names
    }

    def decorate(build: Callable[[Made], beam.PTransform]) -> Callable[..., Any]:
        def construct(**config: Any) -> beam.PTransform:
            return build(_made(build.__name__, groups, known, config))

        construct.__name__ = construct.__qualname__ = build.__name__
        about, heading, example = inspect.cleandoc(build.__doc__ or "").partition("\nExample:\n")
        defaults = {
            name: "It is required" if each.required else f"The default is {each.shown_default}"
            for name, each in known.items()
        }
        helps = [f"  {name}: {each.help} {defaults[name]}." for name, each in known.items()]
        construct.__doc__ = "\n".join([about, "", "Args:", *helps, heading + example])
        signature = inspect.Signature([_python_parameter(each) for each in known.values()])
        construct.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
        return construct

    return decorate


def _python_parameter(parameter: Parameter) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    hint: Any = Sequence[parameter.kind] if parameter.several else parameter.kind
    default = inspect.Parameter.empty if parameter.required else None
    hint = hint if parameter.required else Optional[hint]  # noqa: UP045
    return inspect.Parameter(parameter.name, kind, annotation=hint, default=default)


def _made(
    transform: str, groups: Groups, known: Mapping[str, Parameter], config: Mapping[str, Any]
) -> Made:
    """Returns the groups with the values of YAML, each checked by its definition.

    Keys that are left out, or null, have their defaults. Values of templates arrive as text, and text
    that a command line would take is taken.

    Raises:
      ValueError: a key is unknown, missing or wrong.
    """
    for name in config:
        if name == "budget":
            raise UsageError(
                f"{transform} must be given without budget, since a pipeline of Beam YAML keeps none: "
                "run beam-dpne with it on this machine, or the operators for Airflow."
            )
        if name not in known:
            hint = did_you_mean(str(name), known)
            raise UsageError(
                f"{transform} has no key {name}.{hint} Its keys are {', '.join(known)}."
            )
    plans = [group for group in groups if issubclass(group, GaussianPlan)]
    given = with_file(typed_values(config, known), {transform: plans})
    return Made({transform: list(groups)}, given)


class _Common(NamedTuple):
    """What the keys give that all private transforms have.

    Attributes:
      user_field: the name of the field with the user, or several names.
      text_field: the name of the field with the text, or several names.
      tokenizer: the tokenizer with its rules.
      partitions: the number of parts of the users.
      run_key: the key of a file, or None for a fresh one.
      keys: the keys that name files.
    """

    user_field: str | Sequence[str]
    text_field: str | Sequence[str]
    tokenizer: str | Tokenizer
    partitions: int
    run_key: RunKey | None
    keys: Mapping[str, Any]


def _common(
    made: Made, plan: GaussianPlan, lists: KnownLists | PublicCounting | ListedPhrases
) -> _Common:
    """Checks the groups that all private transforms have, and warns of a large δ."""
    fields = made[ReadOptions]
    tokenizing = made[Tokenizing]
    running = made[Running]
    refuse_too_large_delta(plan)
    if warning := large_delta_of(plan):
        _LOGGER.warning("%s: %s.", _TRANSFORMS[type(plan)], warning)
    run_key = None
    if running.run_key_file is not None:
        check_access([running.run_key_file], [])
        run_key = RunKeyFile.checked(absolute_path(running.run_key_file))
    file_of_key = {"run_key_file": running.run_key_file}
    return _Common(
        user_field=fields.user_field,
        text_field=fields.text_field,
        tokenizer=with_rules(tokenizing, tokenizing.name()),
        partitions=running.partitions or DocumentsTransform.partitions,
        run_key=run_key,
        keys=vars(tokenizing) | vars(lists) | file_of_key,
    )


def _private_keys(plan: type) -> Groups:
    """Returns the keys of a private transform of rows."""
    return {
        plan: (),
        PlanFile: (),
        ReadOptions: ("user_field", "text_field"),
        Tokenizing: (),
        Running: ("run_key_file", "partitions", "series", "participants"),
    }


@_keys({Input: (), ReadOptions: (), Grouping: (), RowFields: (), Rejecting: ()})
def ReadDocuments(made: Made) -> beam.PTransform:
    r"""Reads users' texts from files into rows, by the names of fields.

    Output: one row for each record, with the user as text, the text, or each of several texts, and the
    further fields as text. The fields have their names in the files. A record that cannot be used is
    left out and counted, or fails the run; `rejects` names a directory for their list.

    Privacy: the rows are the private data, and so is the list of rejected records.

    Example:
      >>> import pathlib, tempfile
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne.yaml import ReadDocuments
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = pathlib.Path(folder, "notes.csv")
      ...     _ = path.write_text('text,user,country\n"Hello, you",007,dk\n')
      ...     with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...         rows = pipeline | ReadDocuments(input=str(path), fields=["country"])
      ...         _ = rows | beam.Map(print)
      Row(user='007', text='Hello, you', country='dk')
    """
    rejecting = made[Rejecting]
    fields = made[RowFields]
    if rejecting.rejects is not None:
        check_directory("rejects", rejecting.rejects, None)
    inputs = names_of(made[Input].input)
    check_access(inputs, [rejecting.rejects] if rejecting.rejects else [])
    options = dataclasses.replace(
        made[ReadOptions],
        fields=tuple(fields.fields or ()),
        text_is_tokens=fields.text_is_tokens,
        group_field=made[Grouping].group_field,
    )
    return ReadRows(
        inputs=[absolute_path(path) for path in inputs],
        options=options,
        max_rejected=rejecting.max_rejected,
        rejects=rejecting.rejects and absolute_path(rejecting.rejects),
    )


@_keys({**_private_keys(NgramsPlan), Grouping: (), KnownLists: ()})
def PrivateNgrams(made: Made) -> beam.PTransform:
    """Releases n-grams of up to max_length words that many users share.

    Input: rows with a schema, one for each document or record, bounded and in the global window.

    Outputs: `rows` has one row for each released n-gram, with the fields `length`, with a group_field
    `group`, `ngram`, `score` and, unless count_share is 0, `users`, `users_low` and `users_high`.
    `ledger` has one row with the field `ledger`, the public account of the release as JSON.

    Privacy: both outputs together are user-level (epsilon, delta)-differentially private, when one
    user with all rows is added or removed. Nothing else that the pipeline writes is private.

    Example:
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne.yaml import PrivateNgrams
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     rows = pipeline | beam.Create(
      ...         [beam.Row(user=f"u{i}", text="Good morning") for i in range(200)])
      ...     found = rows | PrivateNgrams(epsilon=10, delta=1e-4, max_length=2,
      ...                                  max_contributions=2, spurious_fraction=1e-9)
      ...     _ = found["rows"] | beam.Filter(lambda row: row.length == 2) | beam.Map(
      ...         lambda row: print(row.ngram))
      good morning
    """
    plan = made[NgramsPlan]
    known = _known(made, plan.max_length)
    common = _common(made, plan, made[KnownLists])
    transform = ngrams.PrivateNgrams(
        plan=plan,
        known=known,
        group_field=made[Grouping].group_field,
        user_field=common.user_field,
        text_field=common.text_field,
        tokenizer=common.tokenizer,
        partitions=common.partitions,
        run_key=common.run_key,
    )
    return PrivateRows(transform=transform, keys=common.keys, made=made)


def _known(made: Made, max_length: int) -> KnownNgrams | None:
    """Returns the n-grams of the lists that keys name; None if they name none."""
    asked = made[KnownLists]
    tokenizing = made[Tokenizing]
    tokenizer = with_rules(tokenizing, tokenizing.name())
    return None if asked.known is None else read_known(asked, max_length, tokenizer)


@_keys({**_private_keys(SetUnionPlan), KnownLists: ()})
def PrivateSetUnion(made: Made) -> beam.PTransform:
    """Releases items that many users have: words, queries, product names, any strings.

    Input: rows with a schema, bounded and in the global window.

    Outputs: `rows` has one row for each released item, with the fields `item`, `score` and, unless
    count_share is 0, `users`, `users_low` and `users_high`. `ledger` has one row with the field
    `ledger`, the public account of the release as JSON.

    Privacy: both outputs together are user-level (epsilon, delta)-differentially private, when one
    user with all rows is added or removed. Nothing else that the pipeline writes is private.
    """
    plan = made[SetUnionPlan]
    known = _known(made, 1)
    common = _common(made, plan, made[KnownLists])
    transform = set_union.PrivateSetUnion(
        plan=plan,
        known=None if known is None else known.items,
        user_field=common.user_field,
        text_field=common.text_field,
        tokenizer=common.tokenizer,
        partitions=common.partitions,
        run_key=common.run_key,
    )
    return PrivateRows(transform=transform, keys=common.keys, made=made)


@_keys({PublicCounting: ("public",), **_private_keys(ProbabilitiesPlan)})
def BayesianCounts(made: Made) -> beam.PTransform:
    """Estimates a probability for every n-gram of a public vocabulary.

    Input: rows with a schema, one for each document or record, bounded and in the global window.

    Outputs: `rows` has one row for each n-gram, with the fields `ngram` and `probability`. `ledger` has
    one row with the field `ledger`, the public account of the release as JSON.

    Privacy: both outputs together are user-level (epsilon, delta)-differentially private, when one
    user with all rows is added or removed. Nothing else that the pipeline writes is private.
    """
    plan = made[ProbabilitiesPlan]
    public = made[PublicCounting]
    tokenizing = made[Tokenizing]
    check_access([public.public], [])
    counts = read_public_counts(
        public.public,
        length=plan.length,
        tokenizer=with_rules(tokenizing, tokenizing.name()),
        vocabulary_size=plan.vocabulary_size,
    )
    common = _common(made, plan, public)
    transform = bayesian.BayesianCounts(
        plan=plan,
        public=counts,
        user_field=common.user_field,
        text_field=common.text_field,
        tokenizer=common.tokenizer,
        partitions=common.partitions,
        run_key=common.run_key,
    )
    return PrivateRows(transform=transform, keys=common.keys, made=made)


@_keys(
    {ListedPhrases: (), CountedPhrases: (), **_private_keys(PhraseCountsPlan), Grouping: ()},
)
def CountPhrases(made: Made) -> beam.PTransform:
    """Counts the users of every phrase of a public list.

    Input: rows with a schema, one for each document or record, bounded and in the global window.

    Outputs: `rows` has one row for each phrase, with a group_field in each group, with the fields
    `group` (if there are groups), `ngram`, `users`, `users_low` and `users_high`. `ledger` has one row
    with the field `ledger`, the public account of the release as JSON.

    Privacy: both outputs together are user-level (epsilon, delta)-differentially private, when one
    user with all rows is added or removed. Nothing else that the pipeline writes is private.
    """
    plan = made[PhraseCountsPlan]
    listed = made[ListedPhrases]
    group_field = made[Grouping].group_field
    tokenizing = made[Tokenizing]
    phrases = read_phrases(
        listed,
        made[CountedPhrases],
        with_rules(tokenizing, tokenizing.name()),
        is_grouped=group_field is not None,
        most=plan.max_phrases,
    )
    common = _common(made, plan, listed)
    transform = phrase_counts.CountPhrases(
        plan=plan,
        phrases=phrases,
        group_field=group_field,
        user_field=common.user_field,
        text_field=common.text_field,
        tokenizer=common.tokenizer,
        partitions=common.partitions,
        run_key=common.run_key,
    )
    return PrivateRows(transform=transform, keys=common.keys, made=made)


@_keys({Writing: (), ReleaseNotes: ()})
def WriteRelease(made: Made) -> beam.PTransform:
    """Writes a release as files that a ledger lists.

    Input: a mapping of `rows` and `ledger`, the unchanged outputs of a private transform. Rows that
    are not exactly those that the ledger describes are refused while the pipeline runs.

    Output: one row with the field `path`, the path of the ledger, once the release is complete. A
    directory without `ledger.json` is no release.

    Privacy: it writes nothing but its inputs and the notes of the operator.
    """
    writing = made[Writing]
    check_access([], [writing.output])
    check_output(writing.output, overwrite=writing.overwrite)
    return WriteRows(
        release.WriteRelease(
            output=absolute_path(writing.output),
            output_format=writing.output_format,
            overwrite=writing.overwrite,
            notes=made[ReleaseNotes],
        )
    )
