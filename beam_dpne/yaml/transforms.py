"""The transforms for Beam YAML: from files to rows with a schema, and from rows to rows.

Each is a function from the keys of a flat configuration to a transform. The keys, their types and their
documentation are those of the programs' options (`configuration`), and so are the checks of values.
"""

import argparse
import dataclasses
import inspect
import keyword
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import schema_pb2
from apache_beam.pvalue import PCollection
from apache_beam.typehints.schemas import typing_to_runner_api

from beam_dpne.bayesian import transform as bayesian
from beam_dpne.bayesian.public_counts_files import read_public_counts
from beam_dpne.cli.failures import check_outside_releases
from beam_dpne.cli.jobs import check_rejects
from beam_dpne.cli.options import with_defaults
from beam_dpne.cli.privacy import PLANS
from beam_dpne.cli.runners import is_classic_template
from beam_dpne.documents.batch import BatchDocuments
from beam_dpne.documents.columns import TEXT, USER
from beam_dpne.documents.row_types import check_element_type
from beam_dpne.documents.transform import DocumentsTransform
from beam_dpne.elements.rows import field_types
from beam_dpne.errors import UsageError
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams import transform as ngrams
from beam_dpne.reading.options import ReadOptions, names_of
from beam_dpne.reading.rejects import check_max_rejected
from beam_dpne.release import publishing
from beam_dpne.release.files import absolute
from beam_dpne.release.notes import ReleaseNotes
from beam_dpne.release.publishing import check_output
from beam_dpne.set_union import transform as set_union
from beam_dpne.storage.access import check_access
from beam_dpne.storage.directories import absolute_path
from beam_dpne.storage.run_files import RunKeyFile
from beam_dpne.validation import about_large_delta
from beam_dpne.yaml import configuration
from beam_dpne.yaml.configuration import Keys, in_words_of_yaml
from beam_dpne.yaml.reading import (
    ReadRows,
    batches_behind,
    described_rows,
    directories_of_rejects,
    readers_before,
)

_LOGGER = logging.getLogger(__name__)


class LedgerText(NamedTuple):
    """The ledger of a release, in a row.

    Attributes:
      ledger: the ledger as JSON, with the number and the SHA-256 of the rows instead of files.
    """

    ledger: str


class ReleasePath(NamedTuple):
    """The place of a release, in a row.

    Attributes:
      path: the path of the ledger.
    """

    path: str


for _row_type in (LedgerText, ReleasePath):
    beam.coders.registry.register_coder(_row_type, beam.coders.RowCoder)


def _configured(keys: Keys) -> Callable[[Callable[[argparse.Namespace], Any]], Callable[..., Any]]:
    """Returns a decorator that makes a function of parsed options a function of YAML's keys.

    Beam reads the schema of the configuration from the signature, and its documentation from the
    docstring, to which the section on the keys is added.
    """

    def decorate(build: Callable[[argparse.Namespace], beam.PTransform]) -> Callable[..., Any]:
        def construct(**config: Any) -> beam.PTransform:
            parsed = keys.parse(config)
            with in_words_of_yaml():
                return build(parsed)

        construct.__name__ = construct.__qualname__ = build.__name__
        about, _, example = inspect.cleandoc(build.__doc__ or "").partition("\nExample:\n")
        sections = [about, keys.arguments, *([f"Example:\n{example}"] if example else [])]
        construct.__doc__ = "\n\n".join(section.rstrip() for section in sections)
        construct.__signature__ = keys.signature  # pyright: ignore[reportFunctionMemberAccess]
        return construct

    return decorate


@dataclasses.dataclass(eq=False, kw_only=True)
class _PrivateRows(beam.PTransform):
    """Applies a private transform to rows, and returns rows.

    Attributes:
      name: name of the YAML transform.
      transform: the private transform of documents.
    """

    name: str
    transform: DocumentsTransform

    def __post_init__(self):
        super().__init__(self.name)

    def expand(self, rows: PCollection) -> dict[str, PCollection]:
        """Checks the rows and the options of the pipeline, and adds the steps."""
        if not isinstance(rows, PCollection):
            raise UsageError(f"{self.name} must have one input, whose rows are the documents.")
        with in_words_of_yaml():
            return self._outputs(rows)

    def _outputs(self, rows: PCollection) -> dict[str, PCollection]:
        _check_template(rows.pipeline.options, self.transform)
        _check_texts(rows, self.transform)
        result: Any = self._released(rows)
        ledger = beam.Map(LedgerText).with_output_types(LedgerText)
        return {"rows": result.rows, "ledger": result.ledger | "Ledger" >> ledger}

    def _released(self, rows: PCollection) -> Any:
        """Returns the result for rows, whose batches are used if they come straight from files.

        Documents that are exactly those of the program have its description, and so its noise under
        one run key. Of rows that went through other steps, or of which other fields are the documents,
        the description also says how the files were read, since other options may give other documents.
        """
        read, transform = batches_behind(rows), self.transform
        # Batches, which are checked while they are read only, have the fields of the rows.
        check_element_type(rows.element_type, transform.user_field, names_of(transform.text_field))
        readers = readers_before(rows)
        names = transform.user_field, names_of(transform.text_field)
        for reader in readers:
            reader.check_user(transform.user_field)
        if read is not None and names == (
            read.description.user_field,
            read.description.text_fields,
        ):
            batch = BatchDocuments(user_field=transform.user_field, text_field=transform.text_field)
            as_program = dataclasses.replace(
                transform, user_field=USER, text_field=TEXT, described=read.description
            )
            return read.records | "Documents" >> batch | "Release" >> as_program
        if readers:
            transform = dataclasses.replace(
                transform, described=described_rows(transform.row_description, readers)
            )
        return (rows if read is None else read.records) | "Release" >> transform


def _check_template(options: PipelineOptions, transform: DocumentsTransform) -> None:
    """Raises UsageError for a fresh key in a template, which would be the key of all its runs."""
    if transform.run_key is None and is_classic_template(options):
        raise UsageError(
            "template_location needs run_key_file: a template is run many times, and a fresh key "
            "would be frozen in it."
        )


def _check_texts(rows: PCollection, transform: DocumentsTransform) -> None:
    """Raises UsageError if the schema has lists for a tokenizer of text, or text for one of lists."""
    types, tokenizer = field_types(rows.element_type), transform.tokenizer
    for name in names_of(transform.text_field):
        kind = typing_to_runner_api(types[name]) if name in types else schema_pb2.FieldType()
        is_list = kind.WhichOneof("type_info") in ("array_type", "iterable_type")
        if is_list and tokenizer != "tokens":
            raise UsageError(
                f"text_field must name a field of text, got text_field={name!r}, which holds lists. "
                "The tokenizer for lists of tokens is tokens."
            )
        if kind.atomic_type == schema_pb2.STRING and tokenizer == "tokens":
            raise UsageError(
                f"text_field must name a field of lists with the tokenizer tokens, got "
                f"text_field={name!r}, which holds text. Choose another tokenizer, e.g. words."
            )


def _private_rows(
    name: str, parsed: argparse.Namespace, make: Callable[..., DocumentsTransform], **fields: Any
) -> _PrivateRows:
    """Returns a transform of rows from the parsed options.

    Args:
      name: name of the YAML transform.
      parsed: the parsed options.
      make: the class of the inner transform.
      fields: its fields that only this program has, and its plan.
    """
    values = with_defaults(parsed, KEYS[name].options)
    texts = _one_or_several(values["text_field"])
    if (warning := about_large_delta(fields["plan"].delta)) and not fields[
        "plan"
    ].public_user_count:
        _LOGGER.warning("%s: %s.", name, warning)
    transform = make(
        tokenizer=values["tokenizer"],
        partitions=values["partitions"],
        run_key=_run_key(values["run_key_file"]),
        user_field=values["user_field"],
        text_field=texts,
        **fields,
    )
    return _PrivateRows(name=name, transform=transform)


def _one_or_several(texts: str | Sequence[str]) -> str | tuple[str, ...]:
    """Returns one name as it is, and several as a tuple."""
    found = names_of(texts)
    return found[0] if len(found) == 1 else found


def _run_key(path: str | None) -> RunKey | None:
    """Returns the run key that a file holds, or None without a file."""
    if path is None:
        return None
    check_access([path], [])
    return RunKeyFile.checked(absolute(path))


@_configured(configuration.READ)
def ReadDocuments(parsed: argparse.Namespace) -> beam.PTransform:
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
    values = with_defaults(parsed, configuration.READ.options)
    if not values["input"]:
        raise UsageError("input must be given: it names a file, a glob or a folder.")
    check_max_rejected(values["max_rejected"])
    if values["rejects"] is not None:
        check_rejects(values["rejects"], None)
    check_access(values["input"], [values["rejects"]] if values["rejects"] else [])
    reading = {field.name for field in dataclasses.fields(ReadOptions)} & values.keys()
    given = {name: values[name] for name in reading}
    given |= {
        "fields": tuple(values["fields"] or ()),
        "text_field": _one_or_several(values["text_field"]),
    }
    options = ReadOptions(**given)
    for option, name in options.wanted_fields:
        if not name.isidentifier() or name.startswith("_") or keyword.iskeyword(name):
            raise UsageError(
                f"{option} must be a name of letters, digits and _ that begins with a letter, since it "
                f"becomes the field of a row, got {option}={name!r}. Rename the field in the files; in "
                "CSV and TSV without a header line, columns names the fields."
            )
    return ReadRows(
        inputs=[absolute_path(path) for path in values["input"]],
        options=options,
        strict=values["strict"],
        max_rejected=values["max_rejected"],
        rejects=values["rejects"] and absolute(values["rejects"]),
    )


@_configured(configuration.NGRAMS)
def PrivateNgrams(parsed: argparse.Namespace) -> beam.PTransform:
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
    plan = PLANS["ngrams"](parsed)
    return _private_rows("PrivateNgrams", parsed, ngrams.PrivateNgrams, plan=plan)


@_configured(configuration.SET_UNION)
def PrivateSetUnion(parsed: argparse.Namespace) -> beam.PTransform:
    """Releases items that many users have: words, queries, product names, any strings.

    Input: rows with a schema, bounded and in the global window.

    Outputs: `rows` has one row for each released item, with the fields `item` and `score`. `ledger` has
    one row with the field `ledger`, the public account of the release as JSON.

    Privacy: both outputs together are user-level (epsilon, delta)-differentially private, when one
    user with all rows is added or removed. Nothing else that the pipeline writes is private.
    """
    plan = PLANS["set-union"](parsed)
    return _private_rows("PrivateSetUnion", parsed, set_union.PrivateSetUnion, plan=plan)


@_configured(configuration.BAYESIAN)
def BayesianCounts(parsed: argparse.Namespace) -> beam.PTransform:
    """Estimates a probability for every n-gram of a public vocabulary.

    Input: rows with a schema, one for each document or record, bounded and in the global window.

    Outputs: `rows` has one row for each n-gram, with the fields `ngram` and `probability`. `ledger` has
    one row with the field `ledger`, the public account of the release as JSON.

    Privacy: both outputs together are user-level (epsilon, delta)-differentially private, when one
    user with all rows is added or removed. Nothing else that the pipeline writes is private.
    """
    plan = PLANS["bayesian"](parsed)
    if not parsed.public:
        raise UsageError("public must be given: it names a text, a file of counts or a release.")
    check_access([parsed.public], [])
    public = read_public_counts(
        parsed.public,
        length=plan.length,
        tokenizer=parsed.tokenizer or "words",
        vocabulary_size=plan.vocabulary_size,
    )
    return _private_rows(
        "BayesianCounts", parsed, bayesian.BayesianCounts, plan=plan, public=public
    )


@_configured(configuration.RELEASE)
def WriteRelease(parsed: argparse.Namespace) -> beam.PTransform:
    """Writes a release as files that a ledger lists.

    Input: a mapping of `rows` and `ledger`, the unchanged outputs of a private transform. Rows that
    are not exactly those that the ledger describes are refused while the pipeline runs.

    Output: one row with the field `path`, the path of the ledger, once the release is complete. A
    directory without `ledger.json` is no release.

    Privacy: it writes nothing but its inputs and the notes of the operator.
    """
    if not parsed.output:
        raise UsageError("output must be given: it names the directory of the release.")
    values = with_defaults(parsed, configuration.RELEASE.options)
    notes = ReleaseNotes(
        **{field.name: values[field.name] for field in dataclasses.fields(ReleaseNotes)}
    )
    check_access([], [values["output"]])
    check_output(values["output"], overwrite=values["overwrite"])
    return _WriteRows(
        publishing.WriteRelease(
            output=absolute(values["output"]),
            output_format=values["output_format"],
            overwrite=values["overwrite"],
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
            check_outside_releases("rejects", rejects, self.write.output)
        text = beam.Map(_text_of).with_output_types(str)
        given = {"rows": outputs["rows"], "ledger": outputs["ledger"] | "Ledger" >> text}
        path = beam.Map(ReleasePath).with_output_types(ReleasePath)
        with in_words_of_yaml():
            return given | "Release" >> self.write | "Path" >> path


def _text_of(row: LedgerText) -> str:
    return row.ledger


KEYS: Mapping[str, Keys] = {keys.transform: keys for keys in configuration.ALL}
