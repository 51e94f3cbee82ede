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
        "gs://bucket/notes/*.jsonl.gz. To read several, give the option again, or give full "
        "addresses with commas between. A folder stands for the files in it, which must have one "
        "format; folders within it and names that begin with . or _ are left out. Gzip, bzip2 and "
        "zstd are decompressed by extension; archives such as .zip are refused. A run whose files "
        "are missing is refused before it starts.",
    ),
    Option(
        name="input_format",
        default="auto",
        choices=("auto", "jsonl", "json", "csv", "tsv", "parquet", "sequences"),
        help="Format of the input. auto chooses by the extension, which fits most files. jsonl has one "
        "object in each line. json is one array of objects, or one object in each line. sequences "
        "has one user in each line, whose tokens are separated by blanks. With a wrong format the "
        "fields are not found and the run is refused, or its records are rejected.",
    ),
    Option(
        name="user_field",
        default="user",
        form_pattern=FIELD_PATTERN,
        help="Field that names the user of a record, e.g. user_id. All records with the same value are "
        "protected together, so the value must identify one person; otherwise the guarantee "
        "protects something else. A field that does not exist is refused.",
    ),
    Option(
        name="text_field",
        default="text",
        parse=field,
        repeatable=True,
        help="Field that holds the text of a record, e.g. body. To read several, give the option "
        "again: each text is then a document of its user, and a text that is null or missing is "
        "left out. A field that does not exist is refused.",
    ),
    Option(
        name="encoding",
        form_pattern="[A-Za-z0-9][A-Za-z0-9_.-]*",
        shown_default="UTF-8; UTF-16 by byte order mark in CSV and TSV with a header, and in JSON",
        help="Encoding of files other than Parquet, by Python's name, e.g. latin-1, cp1252, utf-16-le "
        "or shift_jis. Records that cannot be decoded are rejected. An unknown name is refused, "
        "and so is an encoding in which one text may change how later lines are read, e.g. "
        "iso2022_jp. Without this option, a byte order mark of UTF-16 counts only where the file "
        "does not begin with a user's record.",
    ),
    Option(
        name="delimiter",
        form_pattern=_DELIMITER,
        shown_default="comma, TSV tab",
        help="Character between the fields of CSV or TSV files: one ASCII character, or one of the "
        "names comma, semicolon, tab, pipe, colon and space. A quote and a line end are refused, "
        "and so is this option for other formats.",
    ),
    Option(
        name="quoting",
        default="auto",
        choices=("auto", "quoted", "none"),
        help="Whether the fields of CSV or TSV files may be enclosed in quotes. auto allows quotes in "
        "CSV; in TSV it reads a quote as an ordinary character, and refuses a file whose fields "
        "are enclosed in quotes. quoted allows them in both formats, and none in neither. quoted "
        "and none are refused for other formats.",
    ),
    Option(
        name="columns",
        parse=names,
        help="Names of all columns of CSV or TSV files that have no header line, in order and "
        "separated by commas, e.g. user,text. Leave it out for files with a header line, which "
        "would otherwise be read as a record.",
    ),
    Option(
        name="tokenizer",
        default="words",
        form_pattern=f"words|unicode_words|whitespace|tokens|{FUNCTION_PATTERN}",
        help="How texts become tokens. words fits most languages with blanks: runs of letters, digits, "
        "their marks, _ and inner apostrophes, lower-cased. unicode_words fits text without "
        "blanks, such as Chinese, Japanese or Thai, where most characters become tokens by "
        "themselves; it uses Unicode's word boundaries and needs the extra unicode. whitespace "
        "splits at blanks. tokens means that the text field is a list of tokens already. "
        "package.module:function names a function over an Arrow string array, which must treat "
        "each text alone, or the guarantee is void. The default for sequences is whitespace. An "
        "unknown name is refused.",
    ),
    Option(
        name="max_record_bytes",
        default=16 * 2**20,
        parse=integer,
        help="Size in bytes above which a record is rejected, 1 to 1073741824. It bounds the memory "
        "that a worker needs at once. The default fits nearly every text.",
    ),
    Option(
        name="rejects",
        path="directory",
        help="Directory of the operator for a list of rejected records, e.g. gs://bucket/rejects. The "
        "list has file, position and reason of each, without its text. It is as private as the "
        "data, and refused inside a release. Without this option rejected records are only "
        "counted.",
    ),
    Option(
        name="max_rejected",
        default=0.05,
        parse=number,
        help="Largest share of the records that may be rejected, 0 to 1. Above it the run fails before "
        "publishing, and reports how many records were rejected for which reason. 1 publishes the "
        "release whatever was rejected. This check finds files that are read in a wrong format or "
        "encoding.",
    ),
    Option(
        name="strict",
        flag=True,
        help="Fail at the first rejected record instead of continuing without it. A failed run "
        "publishes nothing.",
    ),
)

WRITING = (
    Option(
        name="output",
        path="directory",
        help="Directory of the release, e.g. gs://bucket/releases/2025-01. It gets ngrams-* files and, "
        "last, ledger.json. Use a new directory for each run; one with files in it is refused.",
    ),
    Option(
        name="output_format",
        default="jsonl",
        choices=("jsonl", "tsv", "parquet"),
        help="Format of the n-gram files. Choose the one that their reader needs; the release is the "
        "same.",
    ),
    Option(
        name="overwrite",
        flag=True,
        help="Replace a release that is already in the output directory. The budget of the first one "
        "stays spent: whoever has seen both releases knows what two runs reveal.",
    ),
    Option(
        name="title",
        form_pattern=_NOTE,
        help="Name of the release, e.g. 'Support phrases, spring 2025'. It is published in the ledger "
        "and changes nothing else. More than 200 characters, or more than one line, are refused.",
    ),
    Option(
        name="contact",
        form_pattern=_NOTE,
        help="Address for questions of readers of the release, e.g. privacy@example.com. It is "
        "published in the ledger and changes nothing else. More than 200 characters, or more than "
        "one line, are refused.",
    ),
    Option(
        name="unit",
        form_pattern=_NOTE,
        help="Name of what one user stands for, with its article, e.g. 'a customer'. The ledger states "
        "that the guarantee is for each of them, so each value of user_field must stand for one. "
        "It changes nothing else. More than 200 characters, or more than one line, are refused.",
    ),
)

FAILURE_LOG = (
    Option(
        name="failure_log",
        help="File for the whole failure of a run, e.g. private/failure.log. It gets the tracebacks of "
        "the launcher and, where the engine hands them on, of its workers; stderr withholds them "
        "because they may quote texts. With this option the engine's logs hold errors of your "
        "tokenizer, too. The file is as private as the data, readable by its owner alone, and "
        "refused inside a release. A run that ends well or is interrupted leaves none.",
    ),
    Option(
        name="failure_log_remote",
        flag=True,
        help="Allow failure_log in a bucket, e.g. gs://bucket/private/failure.log, where only the "
        "bucket's access rules protect it from others. Without this option such a path is "
        "refused.",
    ),
)

QUIET = Option(
    name="quiet",
    flag=True,
    help="Print no progress and no log lines on stderr; errors are still printed.",
)

RUNNING = (
    Option(
        name="partitions",
        shown_default="by the size of the input",
        parse=integer,
        help="Number of parts into which users are divided, at least 1. A worker holds one part at a "
        "time, so too few parts fill its memory. The number does not change the release.",
    ),
    Option(
        name="run_key_file",
        shown_default="a fresh key for each run",
        path="file",
        help="File with the run key, 64 hexadecimal digits, e.g. gs://bucket/secret/run.key, which the "
        "launcher and every worker can read. The same key and input give the same release under "
        "the same parameters, tokenizer and way of reading. If one of these or the mechanism "
        "version differs, the noise is independent. Keep the key as secret as the data. Using one "
        "key on two different inputs voids the guarantee, and so does using it with two of your "
        "tokenizers that have the same name and version.",
    ),
    Option(
        name="side_input_limit",
        default=64 * 2**20,
        parse=integer,
        help="Size in bytes above which a set of n-grams reaches the workers as a file. Such a set is "
        "released, or still undecided between two rounds. The file is in the run's temporary "
        "location; each worker fetches it once and maps it into memory. Smaller sets are sent to "
        "the workers directly, so a larger limit needs more memory on every worker. The temporary "
        "location is as private as the data. The limit does not change the release.",
    ),
    Option(
        name="harness_timeout",
        default=120,
        parse=integer,
        help="Seconds from the start of a job on an engine until its workers must have done a first "
        "step. A job whose workers cannot start is cancelled instead of hanging. Raise it where "
        "workers take long to start; 0 means no limit.",
    ),
    *FAILURE_LOG,
    QUIET,
)
