"""The options that several programs have: for reading, for writing, and for running."""

from beam_dpne.cli.options import (
    FIELD_PATTERN,
    Option,
    addresses,
    field,
    integer,
    names,
    number,
)

_NOTE = r"[^\x00-\x1f\x7f]{1,200}"
_DELIMITER = r"[\x01-\x09\x0b\x0c\x0e-!#-\x7f]|\\t|comma|semicolon|tab|pipe|colon|space"
_NAME = "[A-Za-z_][A-Za-z0-9_]*"
_DOTTED = f"{_NAME}(\\.{_NAME})*"
FUNCTION_PATTERN = f"{_DOTTED}:{_DOTTED}"

READING = (
    Option(
        name="input",
        parse=addresses,
        repeatable=True,
        path="files",
        help="Files to read, by path or glob, or a folder, local or on any Beam file system, e.g. "
        "gs://bucket/notes/*.jsonl.gz. Several: give the option again, or full addresses with commas "
        "between. A folder stands for the files in it, which must have one format; folders within it "
        "and names that begin with . or _ do not count. Gzip, bzip2 and zstd are decompressed by "
        "extension; archives such as .zip are refused. A run whose files are missing is refused before "
        "it starts.",
    ),
    Option(
        name="input_format",
        default="auto",
        choices=("auto", "jsonl", "json", "csv", "tsv", "parquet", "sequences"),
        help="Format of the input. auto goes by the extension, which fits most files. jsonl: one "
        "object a line; json: one array of objects, or lines of them. sequences: each "
        "line is one user of their own, tokens separated by blanks. Under a wrong format the fields "
        "are not found and the run is refused, or its records are rejected.",
    ),
    Option(
        name="user_field",
        default="user",
        form_pattern=FIELD_PATTERN,
        help="Field that names the user of a record, e.g. user_id; all records with one value are "
        "protected together, so a field that does not tell people apart protects something else. "
        "A field that does not exist is refused.",
    ),
    Option(
        name="text_field",
        default="text",
        parse=field,
        repeatable=True,
        help="Field that holds the text of a record, e.g. body. Several: give the option again; each "
        "text is then a document of its user, and one that is null or missing is left out. A field "
        "that does not exist is refused.",
    ),
    Option(
        name="encoding",
        form_pattern="[A-Za-z0-9][A-Za-z0-9_.-]*",
        shown_default="UTF-8; UTF-16 by byte order mark in CSV and TSV with a header, and in JSON",
        help="Encoding of files other than Parquet, by Python's name, e.g. latin-1, cp1252, utf-16-le "
        "or shift_jis. Records that cannot be decoded are rejected; an unknown name is refused, and so "
        "is an encoding in which one text may change how later lines are read, e.g. iso2022_jp. "
        "Without it, a mark of UTF-16 counts only where the file does not begin with a user's record.",
    ),
    Option(
        name="delimiter",
        form_pattern=_DELIMITER,
        shown_default="comma, TSV tab",
        help="Character between the fields of CSV or TSV files: one ASCII character, or comma, "
        "semicolon, tab, pipe, colon or space. A quote, a line end and other formats are refused.",
    ),
    Option(
        name="quoting",
        default="auto",
        choices=("auto", "quoted", "none"),
        help="Whether fields of CSV or TSV files may be enclosed in quotes. auto: those of CSV may, "
        "and in TSV a quote is text like any other; quoted; none. A TSV file whose fields are in "
        "quotes is refused under auto; so are quoted and none for other formats.",
    ),
    Option(
        name="columns",
        parse=names,
        help="Names of all columns, in order and separated by commas, of CSV or TSV files that have "
        "no header line, e.g. user,text. Leave it out for files with one: the header would be read "
        "as a record.",
    ),
    Option(
        name="tokenizer",
        default="words",
        form_pattern=f"words|unicode_words|whitespace|tokens|{FUNCTION_PATTERN}",
        help="How texts become tokens. words (runs of letters, digits, their marks, _ and inner "
        "apostrophes, lower-cased) fits most languages with blanks; unicode_words (Unicode's word "
        "boundaries; extra unicode) fits text without blanks, such as Chinese, Japanese or Thai, where "
        "most characters become tokens by themselves; whitespace; tokens (the text field is a list of "
        "tokens already); or package.module:function over an Arrow string array, which must treat "
        "each text alone, or the guarantee is void. For sequences the default is whitespace. An "
        "unknown name is refused.",
    ),
    Option(
        name="max_record_bytes",
        default=16 * 2**20,
        parse=integer,
        help="A record above this size is rejected, in bytes, 1 to 1073741824; it bounds what a "
        "worker holds at once. The default fits nearly every text.",
    ),
    Option(
        name="rejects",
        path="directory",
        help="Directory of the operator for rejected records, e.g. gs://bucket/rejects: file, position "
        "and reason, without their text. As private as the data, and refused inside a release. "
        "Without it they are only counted.",
    ),
    Option(
        name="max_rejected",
        default=0.05,
        parse=number,
        help="Share of the records that may be rejected, 0 to 1. Above it the run fails before "
        "publishing, and says how many records were rejected for which reason; 1 publishes whatever "
        "is left. Files read in a wrong format or encoding are found this way.",
    ),
    Option(
        name="strict",
        flag=True,
        help="Fail at the first rejected record instead of going on without it; a failed run "
        "publishes nothing.",
    ),
)

WRITING = (
    Option(
        name="output",
        path="directory",
        help="Directory of the release, e.g. gs://bucket/releases/2025-01: ngrams-* files and "
        "ledger.json, written last. A new one for each run; one with files in it is refused.",
    ),
    Option(
        name="output_format",
        default="jsonl",
        choices=("jsonl", "tsv", "parquet"),
        help="Format of the n-gram files, whichever their reader wants; the release is the same.",
    ),
    Option(
        name="overwrite",
        flag=True,
        help="Replace a release that is already in the output directory. The first one stays spent: "
        "whoever has seen both knows what two runs tell.",
    ),
    Option(
        name="title",
        form_pattern=_NOTE,
        help="What the release is, e.g. 'Support phrases, spring 2025', for the ledger, with which it "
        "is published. It changes nothing else. More than 200 characters, or more than one line, are "
        "refused.",
    ),
    Option(
        name="contact",
        form_pattern=_NOTE,
        help="Whom readers of the release may ask, e.g. privacy@example.com, for the ledger, with "
        "which it is published. It changes nothing else. More than 200 characters, or more than one "
        "line, are refused.",
    ),
    Option(
        name="unit",
        form_pattern=_NOTE,
        help="What one user stands for, with its article, e.g. 'a customer': the ledger says that the "
        "guarantee is for each of them, so it must be what one value of user_field stands for. It "
        "changes nothing else. More than 200 characters, or more than one line, are refused.",
    ),
)

FAILURE_LOG = (
    Option(
        name="failure_log",
        help="File for the whole failure of a run, e.g. private/failure.log: the tracebacks of the "
        "launcher and, where the engine hands them on, of its workers, which stderr withholds because "
        "they may quote texts. The engine's own logs then hold what a tokenizer of yours raised, too. "
        "The file is as private as the data, readable by its owner alone, and refused inside a "
        "release. A run that ends well or is interrupted leaves none.",
    ),
    Option(
        name="failure_log_remote",
        flag=True,
        help="Allow failure_log in a bucket, e.g. gs://bucket/private/failure.log, where only the "
        "bucket's own access rules keep it from others. Without it such a path is refused.",
    ),
)

QUIET = Option(
    name="quiet", flag=True, help="No progress and no log lines on stderr; errors still are."
)

RUNNING = (
    Option(
        name="partitions",
        parse=integer,
        help="Parts into which users are divided, at least 1; a worker holds one at a time, so too "
        "few fill its memory. Default: by the size of the input. Does not change the release.",
    ),
    Option(
        name="run_key_file",
        path="file",
        help="File with the run key, 64 hexadecimal digits, e.g. gs://bucket/secret/run.key, which "
        "the launcher and every worker can read. The same key and input give the same "
        "release under the same parameters, tokenizer and way of reading; where any of them, or the "
        "mechanism version, differs, the noise is another one. Keep it as secret as the data. One key "
        "on two different inputs voids the guarantee; so does one key on two tokenizers of your own "
        "with the same name and version. Default: a fresh key.",
    ),
    Option(
        name="side_input_limit",
        default=64 * 2**20,
        parse=integer,
        help="A set above this size, in bytes, released or still open between two rounds, reaches the "
        "workers as a file in the run's temporary location, which each fetches once and maps into "
        "memory; a larger one needs more memory on every worker. That location is as private as the "
        "data. Does not change the release.",
    ),
    Option(
        name="harness_timeout",
        default=120,
        parse=integer,
        help="Seconds after the start of a job on an engine until its workers must have done a "
        "first step; a job whose workers cannot start is cancelled instead of hanging. Raise it where "
        "workers take long to start; 0: no limit.",
    ),
    *FAILURE_LOG,
    QUIET,
)
