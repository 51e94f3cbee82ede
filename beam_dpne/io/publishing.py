"""Publishing a release: parts first, the ledger last and in one step; and reading it back.

Nothing of the operator's channel enters here: what is written is a function of the released sets,
the plan and versions. Names are made of content, so a repeated bundle writes the same files again.
"""

import contextlib
import dataclasses
import functools
import hashlib
import logging
import os
import re
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence

import apache_beam as beam
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import AsIter, PValue

from beam_dpne import progress
from beam_dpne.batches import GramSet
from beam_dpne.decoding import ROW_SCHEMA, decode_sets
from beam_dpne.ledger import (
    LEDGER_NAME,
    PART_NAME,
    Part,
    ReleaseError,
    build_ledger,
    is_ledger,
    ledger_bytes,
    ledger_path,
    listed_parts,
    read_ledger,
    reason,
    tokenizer_name,
)
from beam_dpne.ngrams import PrivateNgramsResult, length_facts
from beam_dpne.plan import PrivacyPlan
from beam_dpne.tokenizers import Tokenizer

OUTPUT_FORMATS = ("jsonl", "tsv", "parquet")
SCORE_DECIMALS = 6
_LEAST_NOISE_STDDEV = 1e-3
_HASHED_AT_ONCE = 1 << 20
_TEMPORARY_NAME = re.compile(
    rf"\.({PART_NAME.pattern}|{re.escape(LEDGER_NAME)}|probe)\.tmp-[0-9a-f]{{32}}"
)
_WRITERS = {"jsonl": "jsonl/1", "tsv": "tsv/1", "parquet": f"parquet/1/{pa.__version__}"}
_LedgerFor = Callable[[Sequence[Part]], bytes]
_log = logging.getLogger(__name__)


@dataclasses.dataclass(eq=False, kw_only=True)
class PublishRelease(beam.PTransform):
    """Publishes released sets as files that a ledger lists; the last stage of a pipeline.

    Input: `PrivateNgramsResult`; only its released sets are read, the facts come from them.

    Output: PCollection of one str, the path of the ledger. Under `output` are `ledger.json` and the
    parts `ngrams-<hash of content>-NNNNN-of-NNNNN.<format>` with length (int32), ngram (string, see
    `join_tokens`) and score (float64, units of weight, six decimals), sorted by length, falling
    score, then bytes. A line of jsonl is `{"length":1,"ngram":"a","score":7.5}`; tsv has a header
    line and no quoting.

    Privacy: post-processing of released sets; the ledger adds public numbers only.

    Cost: one worker holds all released sets and the text of one part.

    Attributes:
      output: directory, local or on any Beam file system; created if missing.
      output_format: "jsonl", "tsv" or "parquet".
      plan: of the run, for the ledger.
      tokenizer: of the run, for the ledger: its name, or the function.
      run_key_given: whether the run key was given instead of fresh, for the ledger.
      overwrite: replaces a release that is already there: it stays whole until the new ledger takes
        the place of its own, then its parts are deleted; other files never are.
      rows_per_part: the rows of all lengths, one after the other, are cut into parts of this size.

    Raises:
      ValueError: on a bad field, or noise below 0.001, where six decimals would not do.
      ReleaseError: when the pipeline runs, if another release is there and overwrite is off, or the
        output cannot be written; what was there stays as it was.

    Example:
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import PrivacyPlan, PrivateNgrams
      >>> plan = PrivacyPlan(epsilon=10, delta=1e-4, max_length=2, max_contributions=2)
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...         texts = [(f"u{i}", "Good morning") for i in range(200)]
      ...         documents = pipeline | beam.Create(texts)
      ...         _ = documents | PrivateNgrams(plan=plan) | PublishRelease(
      ...             output=folder, output_format="tsv", plan=plan, tokenizer="words",
      ...             run_key_given=False)
      ...     read_release(folder).column("ngram").to_pylist()[-1]
      'good morning'

    References: algorithms.md 3, R5.
    """

    output: str
    output_format: str
    plan: PrivacyPlan
    tokenizer: str | Tokenizer
    run_key_given: bool
    overwrite: bool = False
    rows_per_part: int = 1_000_000

    def __post_init__(self):
        super().__init__()
        if not self.output:
            raise ValueError("output must be the path of a directory, got output=''.")
        if self.output_format not in OUTPUT_FORMATS:
            raise ValueError(
                f"output_format must be one of {', '.join(OUTPUT_FORMATS)}, "
                f"got output_format={self.output_format!r}."
            )
        if self.rows_per_part < 1:
            raise ValueError(
                f"rows_per_part must be at least 1, got rows_per_part={self.rows_per_part}."
            )
        least = min(length.noise_stddev for length in self.plan.lengths)
        if least < _LEAST_NOISE_STDDEV:
            raise ValueError(
                f"noise_stddev must be at least {_LEAST_NOISE_STDDEV}, got {least}: rounded scores "
                f"could meet the threshold. Lower epsilon={self.plan.epsilon}."
            )

    def expand(self, input_or_inputs: PrivateNgramsResult) -> PValue:
        """Brings the sets to one worker, which publishes them."""
        *shorter, longest = input_or_inputs.released
        others = shorter or [longest | "None" >> beam.Filter(lambda _: False)]
        beside = AsIter(others | "Shorter" >> beam.Flatten())
        return longest | "Publish" >> beam.Map(
            _publish_sets,
            beside,
            output=self.output,
            output_format=self.output_format,
            plan=self.plan,
            tokenizer=tokenizer_name(self.tokenizer),
            run_key_given=self.run_key_given,
            overwrite=self.overwrite,
            rows_per_part=self.rows_per_part,
        ).with_output_types(str)


def check_output(output: str, *, overwrite: bool) -> None:
    """Checks, before a run, that a release can be published; writes nothing that stays.

    Args:
      output: directory of the release; may be missing.
      overwrite: whether a release, or other files, may be there already.

    Raises:
      ReleaseError: if it is a file, is not empty, or cannot be written.
    """
    if not output:
        raise ReleaseError("output must be the path of a directory, got output=''.")
    directory = _directory_at(output)
    with _translated(f"output must be a directory that can be written, got output={output}"):
        names = directory.names()
        _check_replaceable(directory.read(LEDGER_NAME), output)
        if names and not overwrite:
            what = "is a release already" if LEDGER_NAME in names else "is not empty"
            raise ReleaseError(
                f"output must be an empty or new directory, got output={output}, which {what}. "
                "Choose another directory, or --overwrite, which deletes only files of a release."
            )
        directory.probe()


def read_release(path: str) -> pa.Table:
    """Reads the rows of a release, following its ledger and checking every part.

    Args:
      path: of the release's directory, or of its `ledger.json`; local or on any Beam file system.

    Returns:
      Columns length (int32), ngram (string) and score (float64), in the order of the release.

    Raises:
      ReleaseError: if the release is incomplete or damaged.
    """
    ledger = read_ledger(path)
    folder = _directory_at(ledger_path(path)[: -len(LEDGER_NAME)] or os.curdir)
    tables = [_read_part(folder, Part(**part)) for part in ledger["parts"]]
    return pa.concat_tables(tables)


def _read_part(directory: "_Directory", part: Part) -> pa.Table:
    with _translated(f"Part {part.name} of the release cannot be read"):
        data = directory.read(part.name)
        if data is None:
            raise ReleaseError(f"The release is incomplete: part {part.name} is missing.")
        if (len(data), hashlib.sha256(data).hexdigest()) != (part.bytes, part.sha256):
            raise ReleaseError(f"The release is damaged: part {part.name} has another SHA-256.")
        rows = _PARSE[part.name.rpartition(".")[2]](data)
        if len(rows) != part.rows:
            raise ReleaseError(f"The release is damaged: part {part.name} has other rows.")
    return rows


def _publish_sets(longest: GramSet, shorter: Iterable[GramSet], **settings) -> str:
    """Entry of the stage: all released sets are here, as one element and one side input."""
    progress.enter("publish", None)
    return publish_release([*shorter, longest], **settings)


def publish_release(
    released: Sequence[GramSet],
    *,
    output: str,
    output_format: str,
    plan: PrivacyPlan,
    tokenizer: str | Tokenizer,
    run_key_given: bool,
    overwrite: bool = False,
    rows_per_part: int = 1_000_000,
) -> str:
    """Publishes released sets, S_1, …, S_T in any order, as files that a ledger lists.

    The other arguments are the fields of `PublishRelease`, which does this in a pipeline.

    Returns:
      The path of the ledger.

    Raises:
      ReleaseError: if another release is there and overwrite is off, or the output cannot be
        written; what was there stays as it was.
    """
    facts = [length_facts(grams) for grams in released]
    parts = functools.partial(_render, _rows(released), output_format, rows_per_part)

    def ledger_for(listed: Sequence[Part]) -> bytes:
        return ledger_bytes(
            build_ledger(
                plan=plan,
                facts=facts,
                parts=listed,
                run_key_given=run_key_given,
                tokenizer=tokenizer,
            )
        )

    directory = _directory_at(output)
    with _translated(f"The release cannot be published in {output}"), directory.held():
        current = directory.read(LEDGER_NAME)
        _check_replaceable(current, output)
        if current is None or overwrite:
            _replace(directory, parts(), ledger_for, overwrite=overwrite)
        elif current != ledger_for([part for part, _ in parts()]):
            raise ReleaseError(
                f"{output} is a release already; choose another directory or --overwrite."
            )
    return directory.path_of(LEDGER_NAME)


def _replace(
    directory: "_Directory",
    parts: Iterable[tuple[Part, bytes]],
    ledger_for: _LedgerFor,
    *,
    overwrite: bool,
) -> None:
    """Places the parts, then the ledger, then deletes what the new ledger has made obsolete."""
    placed: list[Part] = []
    try:
        for part, data in parts:
            placed.append(part)
            directory.place(part.name, data)
        directory.place(LEDGER_NAME, ledger_for(placed))
    except BaseException:
        with contextlib.suppress(Exception):
            listed = listed_parts(directory.read(LEDGER_NAME))
            withdrawn = {part.name for part in placed} - listed
            directory.remove(withdrawn.intersection(directory.names()))
        raise
    names = set(directory.names())
    obsolete = {name for name in names if _TEMPORARY_NAME.fullmatch(name)}
    if overwrite:
        obsolete |= {name for name in names if PART_NAME.fullmatch(name)}
    directory.remove(obsolete - {part.name for part in placed})


def _check_replaceable(ledger: bytes | None, output: str) -> None:
    if ledger is not None and not is_ledger(ledger):
        raise ReleaseError(
            f"output has a {LEDGER_NAME} that beam_dpne did not write, got output={output}. "
            "Choose another directory."
        )


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    """Makes one clear sentence of what goes wrong, without what a library may quote."""
    try:
        yield
    except ReleaseError:
        raise
    except Exception as error:
        raise ReleaseError(f"{what}: {reason(error)}.") from None


def _rows(released: Sequence[GramSet]) -> pa.Table:
    """All rows in the order of a release, scores rounded."""
    rows = pa.Table.from_batches(list(decode_sets(released)), ROW_SCHEMA)
    scores = np.round(rows.column("score").to_numpy(), SCORE_DECIMALS)
    return rows.set_column(2, ROW_SCHEMA.field("score"), pa.array(scores))


def _render(rows: pa.Table, output_format: str, rows_per_part: int) -> Iterator[tuple[Part, bytes]]:
    """Yields the files one after the other; a release without rows has one without rows."""
    digest = _content_hash(rows, output_format, rows_per_part)
    count = max(1, -(-len(rows) // rows_per_part))
    for place in range(count):
        piece = rows.slice(place * rows_per_part, rows_per_part)
        data = _WRITE[output_format](piece)
        name = f"ngrams-{digest}-{place:05}-of-{count:05}.{output_format}"
        yield Part(name, len(piece), hashlib.sha256(data).hexdigest(), len(data)), data


def _content_hash(rows: pa.Table, output_format: str, rows_per_part: int) -> str:
    """Sixteen digits, of cut and writer's version too, so that equal names mean equal bytes."""
    cut = min(rows_per_part, len(rows))
    digest = hashlib.sha256(f"{_WRITERS[output_format]} {len(rows)} {cut}\n".encode())
    for name in ("length", "score"):
        digest.update(rows.column(name).to_numpy())
    for start in range(0, len(rows), _HASHED_AT_ONCE):
        ngrams = rows.column("ngram").slice(start, _HASHED_AT_ONCE).to_pylist()
        digest.update("".join(f"{ngram}\n" for ngram in ngrams).encode())
    return digest.hexdigest()[:16]


class _Row(msgspec.Struct, gc=False):
    length: int
    ngram: str
    score: float


def _write_jsonl(rows: pa.Table) -> bytes:
    return msgspec.json.Encoder().encode_lines(
        map(_Row, *(column.to_pylist() for column in rows.columns))
    )


def _write_tsv(rows: pa.Table) -> bytes:
    columns = zip(*(column.to_pylist() for column in rows.columns), strict=True)
    lines = [f"{length}\t{ngram}\t{score!r}\n" for length, ngram, score in columns]
    return "".join(["\t".join(ROW_SCHEMA.names) + "\n", *lines]).encode()


def _write_parquet(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pyarrow.parquet.write_table(rows.combine_chunks(), sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def _parse_jsonl(data: bytes) -> pa.Table:
    rows = msgspec.json.Decoder(_Row).decode_lines(data)
    columns = [[getattr(row, name) for row in rows] for name in ROW_SCHEMA.names]
    return pa.table(columns, schema=ROW_SCHEMA)


def _parse_tsv(data: bytes) -> pa.Table:
    return pyarrow.csv.read_csv(
        pa.BufferReader(data),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter="\t", quote_char=False, escape_char=False, newlines_in_values=False
        ),
        convert_options=pyarrow.csv.ConvertOptions(column_types=ROW_SCHEMA),
    )


def _parse_parquet(data: bytes) -> pa.Table:
    return pyarrow.parquet.read_table(pa.BufferReader(data)).cast(ROW_SCHEMA)


_WRITE = {"jsonl": _write_jsonl, "tsv": _write_tsv, "parquet": _write_parquet}
_PARSE = {"jsonl": _parse_jsonl, "tsv": _parse_tsv, "parquet": _parse_parquet}


@contextlib.contextmanager
def _logged(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        _log.warning("%s: %s.", what, reason(error))


class _Directory:
    """A directory of an object store: an object appears at once and whole, when it is closed."""

    def __init__(self, path: str) -> None:
        self.path = path

    def path_of(self, name: str) -> str:
        return FileSystems.join(self.path, name)

    def held(self) -> contextlib.AbstractContextManager[object]:
        """Makes the directory for one attempt to publish in it."""
        return contextlib.nullcontext()

    def names(self) -> list[str]:
        found = FileSystems.match([self.path_of("*")])[0].metadata_list
        return [re.split(r"[/\\]", file.path)[-1] for file in found]

    def read(self, name: str) -> bytes | None:
        """Returns a file's bytes; None if there is no such file."""
        path = self.path_of(name)
        if not FileSystems.exists(path):
            return None
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            return file.read()

    def place(self, name: str, data: bytes) -> None:
        """Puts a file there, whole or not at all; one that is there already is left alone."""
        if self.read(name) != data:
            self._write(name, data)

    def remove(self, names: Iterable[str]) -> None:
        """Deletes files; one that stays is told to the operator and does not fail the run."""
        for name in names:
            with _logged(f"{self.path_of(name)} could not be deleted"):
                self._delete(name)

    def probe(self) -> None:
        """Raises if no file can be made here."""
        name = f".probe.tmp-{uuid.uuid4().hex}"
        self._write(name, b"?")
        self._delete(name)

    def _write(self, name: str, data: bytes) -> None:
        with FileSystems.create(
            self.path_of(name), compression_type=CompressionTypes.UNCOMPRESSED
        ) as file:
            file.write(data)

    def _delete(self, name: str) -> None:
        FileSystems.delete([self.path_of(name)])


class _LocalDirectory(_Directory):
    """A local directory: files are written under a name of their own and renamed into place.

    Names are given to the operating system as they are, because Beam's local file system takes them
    for globs when it lists and deletes.
    """

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Makes the directory, and locks out other attempts; if this one fails, unmakes it."""
        missing = self._missing()
        try:
            os.makedirs(self.path, exist_ok=True)
            with self._locked():
                yield
        except BaseException:
            for path in missing:
                with contextlib.suppress(OSError):
                    os.rmdir(path)
            raise

    def names(self) -> list[str]:
        return os.listdir(self.path) if self.path not in self._missing() else []

    def probe(self) -> None:
        nearest = os.path.dirname(self._missing()[-1]) if self._missing() else self.path
        with tempfile.TemporaryFile(dir=nearest, buffering=0) as file:
            file.write(b"?")

    def _missing(self) -> list[str]:
        """The directory and those above it that do not exist, innermost first."""
        missing, path = [], self.path
        while not _is_there(path):
            missing.append(path)
            path = os.path.dirname(path)
        return missing

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Attempts of one machine come one after the other; elsewhere names and renames suffice."""
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(ImportError, OSError):
                import fcntl

                handle = os.open(self.path, os.O_RDONLY)
                stack.callback(os.close, handle)
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def _write(self, name: str, data: bytes) -> None:
        temporary = self.path_of(f".{name}.tmp-{uuid.uuid4().hex}")
        try:
            with FileSystems.create(
                temporary, compression_type=CompressionTypes.UNCOMPRESSED
            ) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path_of(name))
        except BaseException:
            with contextlib.suppress(OSError):
                os.remove(temporary)
            raise

    def _delete(self, name: str) -> None:
        os.remove(self.path_of(name))


def _is_there(path: str) -> bool:
    """Unlike os.path.lexists, raises where nothing can be told."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    return True


def _directory_at(path: str) -> _Directory:
    if FileSystems.get_scheme(path) is None:
        return _LocalDirectory(os.path.abspath(path))
    return _Directory(path)
