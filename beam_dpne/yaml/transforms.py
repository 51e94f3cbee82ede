"""The transforms for Beam YAML: from rows with a schema to rows with a schema, with flat configuration.

Each is a function from the keys of its configuration to a transform. The keys, their types and their
documentation are those of the programs' options (`configuration`), and so are the checks of values.
"""

import argparse
import dataclasses
import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import schema_pb2
from apache_beam.pvalue import PCollection
from apache_beam.typehints.schemas import typing_to_runner_api

from beam_dpne.bayesian import transform as bayesian
from beam_dpne.bayesian.public_counts_files import read_public_counts
from beam_dpne.cli.options import with_defaults
from beam_dpne.cli.plans import check_tokens, read_vocabulary
from beam_dpne.cli.programs import PROGRAMS
from beam_dpne.cli.runners import is_classic_template
from beam_dpne.documents.tokenizers import Tokenizer
from beam_dpne.documents.transform import DocumentsTransform
from beam_dpne.elements.rows import field_types
from beam_dpne.errors import UsageError
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams import transform as ngrams
from beam_dpne.reading.options import ReadOptions, names_of
from beam_dpne.release import publishing
from beam_dpne.release.files import absolute
from beam_dpne.release.ledger import ReleaseNotes
from beam_dpne.release.publishing import check_output
from beam_dpne.set_union import transform as set_union
from beam_dpne.storage.access import check_access
from beam_dpne.storage.run_files import RunKeyFile
from beam_dpne.validation import about_large_delta
from beam_dpne.yaml import configuration
from beam_dpne.yaml.configuration import PARQUET, Keys, in_words_of_yaml
from beam_dpne.yaml.parquet_rows import DocumentsOfFiles

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
      files: how the program reads the Parquet files that the rows come from; None for other rows.
    """

    name: str
    transform: DocumentsTransform
    files: ReadOptions | None

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
        _check_texts(rows, self.files or self.transform, self.transform.tokenizer)
        documents = (
            rows if self.files is None else rows | "Documents" >> DocumentsOfFiles(self.files)
        )
        result: Any = documents | "Release" >> self.transform
        ledger = beam.Map(LedgerText).with_output_types(LedgerText)
        return {"rows": result.rows, "ledger": result.ledger | "Ledger" >> ledger}


def _check_template(options: PipelineOptions, transform: DocumentsTransform) -> None:
    """Raises UsageError for a fresh key in a template, which would be the key of all its runs."""
    if transform.run_key is None and is_classic_template(options):
        raise UsageError(
            "template_location needs run_key_file: a template is run many times, and a fresh key "
            "would be frozen in it."
        )


def _check_texts(
    rows: PCollection, fields: ReadOptions | DocumentsTransform, tokenizer: str | Tokenizer
) -> None:
    """Raises UsageError if the schema has lists for a tokenizer of text, or text for one of lists."""
    types = field_types(rows.element_type)
    for name in names_of(fields.text_field):
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
    tokenizer, texts = values["tokenizer"], values["text_field"]
    if isinstance(texts, list):
        texts = texts[0] if len(texts) == 1 else tuple(texts)
    names = {"user_field": values["user_field"], "text_field": texts}
    files = None
    if values["input_format"] == PARQUET:
        # The documents have the names of the program's documents, whose key has the files' names.
        files = ReadOptions(input_format=PARQUET, text_is_tokens=tokenizer == "tokens", **names)
        names = {"described": files.description}
    if (warning := about_large_delta(fields["plan"].delta)) and not fields[
        "plan"
    ].public_user_count:
        _LOGGER.warning("%s: %s.", name, warning)
    transform = make(
        tokenizer=tokenizer,
        partitions=values["partitions"],
        run_key=_run_key(values["run_key_file"]),
        **names,
        **fields,
    )
    return _PrivateRows(name=name, transform=transform, files=files)


def _run_key(path: str | None) -> RunKey | None:
    """Returns the run key that a file holds, or None without a file."""
    if path is None:
        return None
    check_access([path], [])
    return RunKeyFile.checked(absolute(path))


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
    plan = PROGRAMS["ngrams"].plan(parsed)
    words = None
    if parsed.vocabulary:
        words = read_vocabulary(parsed.vocabulary)
        check_tokens(words, parsed.tokenizer or "words")
    return _private_rows("PrivateNgrams", parsed, ngrams.PrivateNgrams, plan=plan, vocabulary=words)


@_configured(configuration.SET_UNION)
def PrivateSetUnion(parsed: argparse.Namespace) -> beam.PTransform:
    """Releases items that many users have: words, queries, product names, any strings.

    Input: rows with a schema, bounded and in the global window.

    Outputs: `rows` has one row for each released item, with the fields `item` and `score`. `ledger` has
    one row with the field `ledger`, the public account of the release as JSON.

    Privacy: both outputs together are user-level (epsilon, delta)-differentially private, when one
    user with all rows is added or removed. Nothing else that the pipeline writes is private.
    """
    plan = PROGRAMS["set-union"].plan(parsed)
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
    plan = PROGRAMS["bayesian"].plan(parsed)
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
        text = beam.Map(_text_of).with_output_types(str)
        given = {"rows": outputs["rows"], "ledger": outputs["ledger"] | "Ledger" >> text}
        path = beam.Map(ReleasePath).with_output_types(ReleasePath)
        with in_words_of_yaml():
            return given | "Release" >> self.write | "Path" >> path


def _text_of(row: LedgerText) -> str:
    return row.ledger


KEYS: Mapping[str, Keys] = {keys.transform: keys for keys in configuration.ALL}
