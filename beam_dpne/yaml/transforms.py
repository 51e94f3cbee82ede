"""The transforms for Beam YAML: from files to rows with a schema, and from rows to rows.

Each is a function from the keys of a flat configuration to a transform. The keys are parameters, whose
types, ranges, defaults and help stand at the fields that hold them (`keys`).
"""

import dataclasses
import keyword
import logging
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import PCollection

from beam_dpne.bayesian import transform as bayesian
from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.bayesian.public_counts import read_public_counts
from beam_dpne.cli.parameters import (
    Input,
    PlanFile,
    PublicCounting,
    Rejecting,
    Running,
    Tokenizing,
    Writing,
)
from beam_dpne.cli.programs import check_rejects
from beam_dpne.documents.transform import DocumentsTransform
from beam_dpne.elements.rows import field_types
from beam_dpne.errors import UsageError
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams import transform as ngrams
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.reading.options import ReadOptions, names_of
from beam_dpne.release import publishing
from beam_dpne.release.reading import absolute, check_outside
from beam_dpne.release.schema import ReleaseNotes
from beam_dpne.set_union import transform as set_union
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.storage.access import RunKeyFile, check_access
from beam_dpne.storage.directories import absolute_path
from beam_dpne.validation import Parameter, Parameters, about_large_delta
from beam_dpne.yaml.keys import Keys, all_of
from beam_dpne.yaml.rows import LedgerText, PrivateRows, ReadRows, directories_of_rejects

_LOGGER = logging.getLogger(__name__)
_PARTITIONS = 8


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
            "refused.",
        ),
    ] = None
    text_is_tokens: Annotated[
        bool,
        Parameter(
            help="Whether each text is a list of tokens, in JSON or Parquet. Then give the private "
            "transform the tokenizer tokens. Texts of the other kind are rejected, and columns of it "
            "are refused.",
        ),
    ] = False


class ReleasePath(NamedTuple):
    """The place of a release, in a row.

    Attributes:
      path: the path of the ledger.
    """

    path: str


beam.coders.registry.register_coder(ReleasePath, beam.coders.RowCoder)


def _private_rows(
    make: type[DocumentsTransform],
    plan: Any,
    fields: ReadOptions,
    tokenizing: Tokenizing,
    running: Running,
    **others: Any,
) -> PrivateRows:
    """Returns a transform of rows from the objects of its keys."""
    if (warning := about_large_delta(plan.delta)) and not plan.public_user_count:
        _LOGGER.warning("%s: %s.", make.__name__, warning)
    own: dict[str, Any] = {"plan": plan, **others}
    transform = make(
        tokenizer=tokenizing.tokenizer or "words",
        partitions=running.partitions or _PARTITIONS,
        run_key=_run_key(running.run_key_file),
        user_field=fields.user_field,
        text_field=fields.text_field,
        **own,
    )
    return PrivateRows(name=make.__name__, transform=transform)


def _private_keys(plan: type) -> Mapping[type, Sequence[str]]:
    """Returns the keys of a private transform of rows."""
    return {
        plan: all_of(plan),
        PlanFile: all_of(PlanFile),
        ReadOptions: ("user_field", "text_field"),
        Tokenizing: ("tokenizer",),
        Running: ("run_key_file", "partitions"),
    }


def _run_key(path: str | None) -> RunKey | None:
    """Returns the run key that a file holds, or None without a file."""
    if path is None:
        return None
    check_access([path], [])
    return RunKeyFile.checked(absolute(path))


@Keys(
    {
        Input: ("input",),
        ReadOptions: all_of(ReadOptions),
        RowFields: all_of(RowFields),
        Rejecting: all_of(Rejecting),
    }
)
def ReadDocuments(
    files: Input, reading: ReadOptions, fields: RowFields, rejecting: Rejecting
) -> beam.PTransform:
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
    if rejecting.rejects is not None:
        check_rejects(rejecting.rejects, None)
    inputs = names_of(files.input)
    check_access(inputs, [rejecting.rejects] if rejecting.rejects else [])
    options = dataclasses.replace(
        reading, fields=tuple(fields.fields or ()), text_is_tokens=fields.text_is_tokens
    )
    for option, name in options.wanted_fields:
        if not name.isidentifier() or name.startswith("_") or keyword.iskeyword(name):
            raise UsageError(
                f"{option} must be a name of letters, digits and _ that begins with a letter, since it "
                f"becomes the field of a row, got {option}={name!r}. Rename the field in the files; in "
                "CSV and TSV without a header line, columns names the fields."
            )
    return ReadRows(
        inputs=[absolute_path(path) for path in inputs],
        options=options,
        strict=rejecting.strict,
        max_rejected=rejecting.max_rejected,
        rejects=rejecting.rejects and absolute(rejecting.rejects),
    )


@Keys(_private_keys(PrivacyPlan))
def PrivateNgrams(*parameters: Any) -> beam.PTransform:
    """Releases n-grams of up to max_length words that many users share.

    Input: rows with a schema, one for each document or record, bounded and in the global window.

    Outputs: `rows` has one row for each released n-gram, with the fields `length`, `ngram` and `score`.
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
    return _private_rows(ngrams.PrivateNgrams, *parameters)


@Keys(_private_keys(SetUnionPlan))
def PrivateSetUnion(*parameters: Any) -> beam.PTransform:
    """Releases items that many users have: words, queries, product names, any strings.

    Input: rows with a schema, bounded and in the global window.

    Outputs: `rows` has one row for each released item, with the fields `item` and `score`. `ledger` has
    one row with the field `ledger`, the public account of the release as JSON.

    Privacy: both outputs together are user-level (epsilon, delta)-differentially private, when one
    user with all rows is added or removed. Nothing else that the pipeline writes is private.
    """
    return _private_rows(set_union.PrivateSetUnion, *parameters)


@Keys({PublicCounting: ("public",), **_private_keys(BayesianPlan)})
def BayesianCounts(
    public: PublicCounting,
    plan: BayesianPlan,
    fields: ReadOptions,
    tokenizing: Tokenizing,
    running: Running,
) -> beam.PTransform:
    """Estimates a probability for every n-gram of a public vocabulary.

    Input: rows with a schema, one for each document or record, bounded and in the global window.

    Outputs: `rows` has one row for each n-gram, with the fields `ngram` and `probability`. `ledger` has
    one row with the field `ledger`, the public account of the release as JSON.

    Privacy: both outputs together are user-level (epsilon, delta)-differentially private, when one
    user with all rows is added or removed. Nothing else that the pipeline writes is private.
    """
    check_access([public.public], [])
    counts = read_public_counts(
        public.public,
        length=plan.length,
        tokenizer=tokenizing.tokenizer or "words",
        vocabulary_size=plan.vocabulary_size,
    )
    given = (plan, fields, tokenizing, running)
    return _private_rows(bayesian.BayesianCounts, *given, public=counts)


@Keys({Writing: all_of(Writing), ReleaseNotes: all_of(ReleaseNotes)})
def WriteRelease(writing: Writing, notes: ReleaseNotes) -> beam.PTransform:
    """Writes a release as files that a ledger lists.

    Input: a mapping of `rows` and `ledger`, the unchanged outputs of a private transform. Rows that
    are not exactly those that the ledger describes are refused while the pipeline runs.

    Output: one row with the field `path`, the path of the ledger, once the release is complete. A
    directory without `ledger.json` is no release.

    Privacy: it writes nothing but its inputs and the notes of the operator.
    """
    check_access([], [writing.output])
    publishing.check_output(writing.output, overwrite=writing.overwrite)
    return _WriteRows(
        publishing.WriteRelease(
            output=absolute(writing.output),
            output_format=writing.output_format,
            overwrite=writing.overwrite,
            notes=notes,
        )
    )


@dataclasses.dataclass(eq=False)
class _WriteRows(beam.PTransform):
    """Writes rows and ledger, and returns the path of the ledger as a row."""

    write: publishing.WriteRelease

    def __post_init__(self):
        super().__init__("WriteRelease")

    def expand(self, outputs: Any) -> PCollection[ReleasePath]:
        """Checks the names and fields of the inputs, and adds the steps."""
        if not isinstance(outputs, Mapping) or set(outputs) != {"rows", "ledger"}:
            raise UsageError(
                "WriteRelease must have the two inputs rows and ledger, which are the outputs of one "
                "private transform, e.g. input: {rows: PrivateNgrams.rows, ledger: "
                "PrivateNgrams.ledger}."
            )
        fields = field_types(outputs["ledger"].element_type)
        if fields and "ledger" not in fields:
            raise UsageError(
                "ledger must have the field ledger, as the output ledger of a private transform does, "
                f"got rows with the fields {', '.join(fields)}."
            )
        for rejects in directories_of_rejects(outputs["rows"].pipeline):
            check_outside("rejects", rejects, self.write.output)
        text = beam.Map(_text_of).with_output_types(str)
        given = {"rows": outputs["rows"], "ledger": outputs["ledger"] | "Ledger" >> text}
        path = beam.Map(ReleasePath).with_output_types(ReleasePath)
        return given | "Release" >> self.write | "Path" >> path


def _text_of(row: LedgerText) -> str:
    return row.ledger
