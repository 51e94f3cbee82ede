"""What a run would read, in exact numbers that are for the operator alone."""

import collections
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.documents.blocks import without_groups
from beam_dpne.documents.run_keys import tokenizer_identity
from beam_dpne.documents.tokenizers import Tokenizer
from beam_dpne.errors import UsageError
from beam_dpne.evaluation.corpus import Corpus, read_corpus
from beam_dpne.evaluation.reports import MARK
from beam_dpne.jobs.budgets import rehearse_budget
from beam_dpne.jobs.inputs import (
    OF_HEADERS,
    OF_RECORDS,
    are_of_records,
    has_user_of_header,
    tokenizer_name,
)
from beam_dpne.jobs.made import Made
from beam_dpne.jobs.parameters import Input, Rejecting, Writing
from beam_dpne.jobs.preparing import prepare
from beam_dpne.jobs.showing import Showing
from beam_dpne.reading.files import InputFile
from beam_dpne.reading.frames import Frame
from beam_dpne.reading.ids import is_text, normalized
from beam_dpne.reading.options import ReadOptions, format_of
from beam_dpne.reading.records import fields_nowhere
from beam_dpne.reading.rejects import Reject, read_by, write_rejects
from beam_dpne.reading.text_formats import NULLS
from beam_dpne.storage.directories import absolute_path

HEADING = f"{MARK}. Correct how the input is read by it, and choose no parameter of the plan by it."
_FEW_USERS = 1000
_WORD = r"^[\p{L}\p{M}'’_-]+$"
# An integer that a data frame has made a float, as it does in a column with missing values.
# Zeros around a whole number; the last one of 0 stays.
_ZEROS = (r"^([+-]?)0+([0-9]+(?:\.0+)?)$", r"^([+-]?[0-9]+)\.0+$")
# Texts, in small letters, by which exports say that a person is not known; a run takes them as users.
_NOBODY = {"[deleted]", "[removed]", "anonymous", "anon", "guest", "nobody", "unknown", "[unknown]"}
_NOBODY |= {"undefined", "none", "nil", "(null)", "-", "--", "?", "n/a"}
# Numbers that say so, too, but may be ids: they are told if they have many more words than usual ids.
_NUMBERS_OF_NOBODY = {"0", "-1"}
_MANY = 10
# A UUID, which programs also write without hyphens, in brackets, or behind a prefix.
_UUID = (
    r"^(?:urn:)?(?:uuid:)?(?:0x)?[({]?"
    r"([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})[)}]?$"
)
# An address, behind a name or a scheme, and in angle brackets.
_ADDRESS = r"^(?:[^<>]*<)?(?:mailto:)?([^<>:@\s]+@[^<>:@\s]+)>?$"


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Checked:
    """What a run would read; it is as secret as the data. It prints as text.

    Attributes:
      about: what the input is, and how it was read.
      numbers: numbers of users, documents, words or items, distinct ones, and rejected records.
      told: sentences that the operator was told while the input was read.
      problems: sentences about what may be wrong, or one that nothing is, if nothing was told either.
    """

    about: str
    numbers: Mapping[str, int]
    told: Sequence[str]
    problems: Sequence[str]

    def __repr__(self) -> str:
        numbers = ", ".join(
            f"{number:,} {name.replace('_', ' ')}" for name, number in self.numbers.items()
        )
        findings = (f"· {each}" for each in (*self.told, *self.problems))
        return "\n".join((HEADING, self.about, f"It has {numbers}.", *findings))


def check_input(
    made: Made,
    beam_arguments: list[str],
    showing: Showing,
    tokenizer: Tokenizer | None = None,
    *,
    frame: Frame | None = None,
) -> Checked:
    """Reads the input as a run does; it writes nothing but the list of rejects, and spends nothing.

    Args:
      made: the groups of parameters of a run; those of the plan and the output may be missing.
      beam_arguments: options of Beam.
      showing: how the operator is told what may be wrong.
      tokenizer: replaces the one that the parameters name.
      frame: the input, if the parameters name none.

    Raises:
      BeamDpneError, ValueError, FileNotFoundError: a run would be refused for the same reason.
    """
    if frame is None and Input not in made:
        raise UsageError("`input` must be given.")
    told = list[str]()

    def tell(sentence: str) -> None:
        told.append(sentence)
        showing.tell(sentence)

    remembering = dataclasses.replace(showing, tell=tell)
    prepared = prepare(made, beam_arguments, remembering, tokenizer, frame=frame, shows_fields=True)
    if prepared.private is not None and Writing in made:
        rehearse_budget(made, prepared.private)
    name = tokenizer_identity(tokenizer)["name"] if tokenizer else tokenizer_name(made)
    rejecting = made[Rejecting]
    files = prepared.files
    reading = prepared.reading
    rejects = list[Reject]()
    listed = None if rejecting.rejects is None else rejects
    try:
        with showing.progress(sum(file.size for file in files)):
            corpus = read_corpus(files, reading, prepared.tokenizer, listed=listed)
    finally:
        # Where no record can be used, the list is needed most.
        if rejecting.rejects is not None:
            write_rejects(absolute_path(rejecting.rejects), rejects)
    words = corpus.words if reading.group_field is None else without_groups(corpus.words)
    nowhere = fields_nowhere(files, reading)
    if len(files) > 1:
        # The others may have them.
        nowhere = [(name, f"{field}, in {files[0].path}") for name, field in nowhere]
    found = problems(corpus, words, reading, rejecting, name, nowhere=nowhere)
    # A run that is quiet has not looked at its first texts.
    if not (found or told or showing.quiet):
        found = ["Nothing looks wrong."]
    noun = "items" if name in ("item", "tokens") else "words"
    numbers = {
        "users": len(corpus.documents),
        "documents": int(corpus.documents.sum()),
        noun: corpus.tokens,
        f"distinct_{noun}": len(words.unique()),
        "rejected_records": corpus.rejected,
    }
    return Checked(about=_about(files, reading, name), numbers=numbers, told=told, problems=found)


def _about(files: Sequence[InputFile], reading: ReadOptions, tokenizer: str) -> str:
    """Returns a sentence about an input, and how it was read."""
    what = "A frame"
    if files[0].table is None:
        kinds = collections.Counter(format_of(file.path, reading.input_format) for file in files)
        listed = ", ".join(f"{kind}: {count:,}" for kind, count in kinds.items())
        what = f"Files of {listed}"
    size = sum(file.size for file in files) / 1e6
    fields = ", ".join(f"{option} {field}" for option, field in reading.wanted_fields)
    return f"{what}; {size:,.1f} MB. Fields: {fields}. Tokenizer: {tokenizer}."


def problems(
    corpus: Corpus,
    words: pa.Array,
    reading: ReadOptions,
    rejecting: Rejecting,
    tokenizer: str,
    *,
    nowhere: Sequence[tuple[str, str]] = (),
) -> list[str]:
    """Returns what may be wrong with an input; it names no user and no word.

    Args:
      corpus: the input.
      words: its words without their groups.
      reading: how it was read.
      rejecting: what a run does with records that cannot be used.
      tokenizer: name of the tokenizer.
      nowhere: parameters, each with a field that it names and no first record has.
    """
    found = [f"None of the first records has the {name} {field}." for name, field in nowhere]
    documents = corpus.documents
    users = len(documents)
    if corpus.rejected:
        share = corpus.rejected / (corpus.rejected + documents.sum())
        fate = "which --rejects DIR lists"
        if rejecting.rejects is not None:
            fate = f"which {rejecting.rejects} lists"
        if share > rejecting.max_rejected:
            fate = f"so that a run fails, and {fate}"
        reasons = ", ".join(sorted(corpus.rejected_reasons))
        options = ", ".join(f"--{name}" for name in read_by(corpus.rejected_reasons))
        found.append(
            f"About {share:.2%} of the records are rejected, {fate}: {reasons}. How they are read is "
            f"said by {options}."
        )
    if users < _FEW_USERS:
        found.append("The users are few; beam-dpne plan shows how many of them an n-gram needs.")
    most = documents.max() / documents.sum()
    if most > 0.1:
        found.append(f"One user has {most:.0%} of the documents. Does the user field name people?")
    if is_text(corpus.users.type) and not reading.record_is_user:
        if has_user_of_header(corpus.users, reading):
            found.append(OF_HEADERS)
        if documents.max() == 1 and users > 1:
            found.append(f"All records {OF_RECORDS}")
        elif are_of_records(documents.sum(), users, reading):
            found.append(f"Nearly all records {OF_RECORDS}")
        found += _about_spellings(corpus.users, np.diff(corpus.offsets))
    are_words = pc.call_function("match_substring_regex", [words], pc.MatchSubstringOptions(_WORD))
    times = np.bincount(corpus.codes[corpus.codes >= 0], minlength=len(words))
    strange = times[~np.asarray(are_words.to_numpy(zero_copy_only=False), bool)].sum() / times.sum()
    if tokenizer not in ("item", "tokens") and strange > 0.3:
        found.append(f"{strange:.0%} of the words are not letters alone, as numbers and codes are.")
    return found


def _about_spellings(users: pa.Array, sizes: np.ndarray) -> list[str]:
    """Returns sentences about ids of which several may be of one person, or one of several.

    Args:
      users: the ids, (u,) strings.
      sizes: numbers of words of each, (u,) int64.
    """
    found: list[str] = []
    shown = _shown(users)
    unseen = len(users) - len(shown)
    other = spellings(shown)
    if unseen:
        found.append(
            f"{unseen:,} of the ids are another id but for blanks at the ends, composed letters "
            "or decomposed ones, or invisible format characters. If they are of the same people, each "
            "is protected less: --normalize_users makes such ids one."
        )
    if other:
        found.append(
            f"{other:,} of the ids are other spellings of an id, by capital letters, forms of Unicode, "
            "zeros around a whole number, hyphens or brackets of a UUID, or what stands around an "
            "address. If they are of the same people, each "
            "is protected less: bring ids to one spelling before the run."
        )
    many = _MANY * np.median(sizes)
    missing = sum(
        user in NULLS
        or user.strip().lower() in _NOBODY
        or (user in _NUMBERS_OF_NOBODY and size > many)
        for user, size in zip(users.to_pylist(), sizes.tolist(), strict=True)
    )
    if missing:
        found.append(
            f"{missing:,} of the ids may stand for nobody, as nan, guest and [deleted] do, or a 0 that "
            "has far more words than others. If so, all unknown people are one user: leave such ids "
            "empty, or null."
        )
    return found


def _shown(users: pa.Array) -> pa.Array:
    """Returns the distinct ids that are left if `normalize_users` is given."""
    # The values of several columns are normalized one by one.
    ids = {",".join(map(normalized, user.split(","))) for user in users.to_pylist()}
    return pa.array(sorted(ids), pa.string())


def spellings(users: pa.Array) -> int:
    """Returns how many ids are another spelling of an id, so that one person may be several users.

    >>> spellings(pa.array(["7", "7.0", "007", "Ann@x.org", "Ann <ann@x.org>", "7.5", "ann"]))
    3
    """
    folded = pc.call_function("utf8_normalize", [users], pc.Utf8NormalizeOptions("NFKC"))
    folded = pc.call_function("utf8_lower", [pc.call_function("utf8_trim_whitespace", [folded])])
    before, behind = _ZEROS
    patterns = ((_UUID, r"\1-\2-\3-\4-\5"), (_ADDRESS, r"\1"), (before, r"\1\2"), (behind, r"\1"))
    for pattern, plain in patterns:
        options = pc.ReplaceSubstringOptions(pattern, plain)
        folded = pc.call_function("replace_substring_regex", [folded], options)
    return len(users) - len(folded.unique())
