"""Features that cross: rows that have every two levels of two features, judged by exact counts.

A row is a run of made-up users. Its budget is so large that what many users hold is released, and what
one user alone holds is not. `tests.support.crowd` says in plain Python what that is.
"""

import csv
import dataclasses
import hashlib
import html
import itertools
import json
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from beam_dpne import NgramsPlan, SetUnionPlan, join_tokens, read_release, split_ngram
from beam_dpne.accounting.budget import open_budget
from beam_dpne.accounting.expense import expense_of_plan
from beam_dpne.phrase_counts.plan import PhraseCountsPlan
from beam_dpne.release.reading import Release
from tests.support import crowd
from tests.support.crowd import Gram, Rules
from tests.yaml.running import run_yaml

FACTORS: dict[str, list[Any]] = {
    "mechanism": ["adaptive", "one_round", "set-union", "count"],
    "tokenizer": [
        *("words", "whitespace", "unicode_words", "icu_words"),
        *("tokens", "item", "separator", "own"),
    ],
    "masks": [(), ("numbers",), ("urls", "emails", "mentions", "numbers")],
    # Of forms that no text of the crowd has, so that nothing else is released.
    "fold": [(), ("apostrophes", "width", "compatibility")],
    "stop_list": [False, True],
    "known": ["none", "text", "table", "release"],
    "is_grouped": [False, True],
    "count_share": [0.15, 0, 0.5],
    "favour": ["none", "words", "long"],
    "max_length": [2, 1, 3],
    "token_limit": [False, True],
    "budget": ["none", "run", "add", "settle"],
    "again": ["once", "retry", "reformat", "overwrite"],
    "output_format": ["jsonl", "csv", "tsv", "parquet"],
    "files": list(crowd.FILES),
    "users": ["field", "columns", "record"],
    "normalize_users": [False, True],
    "runner": ["1", "2", "DirectRunner", "FnApiRunner", "yaml"],
    "then": [
        *("evaluate", "compare", "check", "plan"),
        *("tokenizers", "arpa", "csv", "card", "report"),
    ],
}
Levels = Mapping[str, Sequence[Any]]
# What no run has together: the program refuses it, or has no such option, or files cannot hold it.
NEVER: list[tuple[Levels, Levels]] = [
    ({"mechanism": ["set-union"]}, {"is_grouped": [True]}),
    ({"mechanism": ["set-union"]}, {"favour": ["words", "long"]}),
    ({"mechanism": ["set-union"]}, {"max_length": [2, 3]}),
    ({"mechanism": ["set-union"]}, {"then": ["arpa"]}),
    ({"mechanism": ["one_round"]}, {"favour": ["words", "long"]}),
    ({"mechanism": ["one_round"]}, {"known": ["text", "table", "release"]}),
    ({"mechanism": ["count"]}, {"known": ["text", "table", "release"]}),
    ({"mechanism": ["count"]}, {"favour": ["words", "long"]}),
    ({"mechanism": ["count"]}, {"count_share": [0, 0.5]}),
    ({"mechanism": ["count"]}, {"max_length": [1, 3]}),
    ({"mechanism": ["count"]}, {"runner": ["yaml"]}),
    ({"mechanism": ["count"]}, {"then": ["tokenizers", "arpa"]}),
    ({"tokenizer": ["tokens"]}, {"known": ["text"]}),
    (
        {"tokenizer": ["tokens"]},
        {"files": [kind for kind in crowd.FILES if kind not in crowd.TAKE_TOKENS]},
    ),
    ({"files": ["sequences"]}, {"is_grouped": [True]}),
    ({"files": ["sequences"]}, {"normalize_users": [True]}),
    ({"files": ["sequences"]}, {"users": ["columns", "record"]}),
    ({"users": ["record"]}, {"normalize_users": [True]}),
    (
        {"files": ["sequences"]},
        {"tokenizer": [name for name in FACTORS["tokenizer"] if name != "whitespace"]},
    ),
    ({"files": ["sequences"]}, {"runner": ["yaml"]}),
    ({"runner": ["yaml"]}, {"budget": ["run"]}),
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One level of each factor."""

    mechanism: str = "adaptive"
    tokenizer: str = "words"
    masks: tuple[str, ...] = ()
    fold: tuple[str, ...] = ()
    stop_list: bool = False
    known: str = "none"
    is_grouped: bool = False
    count_share: float = 0.15
    favour: str = "none"
    max_length: int = 2
    token_limit: bool = False
    budget: str = "none"
    again: str = "once"
    output_format: str = "jsonl"
    files: str = "jsonl"
    users: str = "field"
    normalize_users: bool = False
    runner: str = "1"
    then: str = "check"

    @property
    def is_union(self) -> bool:
        return self.mechanism == "set-union"

    @property
    def has_single_items(self) -> bool:
        """Whether each phrase of a list is one item, whatever it has."""
        return self.mechanism == "count" and self.tokenizer in ("item", "separator")

    @property
    def program(self) -> str:
        return self.mechanism if self.mechanism in ("set-union", "count") else "ngrams"

    @property
    def rules(self) -> Rules:
        return Rules(
            tokenizer=self.tokenizer,
            masks=self.masks,
            has_stop_list=self.stop_list,
            is_grouped=self.is_grouped,
            max_length=1 if self.is_union or self.has_single_items else self.max_length,
        )

    def __str__(self) -> str:
        defaults = {each.name: each.default for each in dataclasses.fields(self)}
        levels = [
            f"{name}={'+'.join(level) if isinstance(level, tuple) else level}"
            for name, level in vars(self).items()
            if level != defaults[name]
        ]
        return ",".join(levels)


# A process takes two seconds to start, so that few rows have one.
IN_A_PROCESS = (
    Row(
        tokenizer="own",
        masks=("emails", "numbers"),
        stop_list=True,
        known="table",
        is_grouped=True,
        budget="run",
        again="retry",
        files="mixed",
        runner="process",
        then="evaluate",
    ),
    Row(
        mechanism="set-union",
        tokenizer="separator",
        known="release",
        token_limit=True,
        budget="settle",
        again="overwrite",
        output_format="parquet",
        files="headless",
        runner="process",
    ),
)

# More than two features, which failed together.
TOGETHER = (
    Row(mechanism="count", is_grouped=True, then="report"),
    Row(tokenizer="tokens", stop_list=True, users="record"),
)


ROWS = pathlib.Path(__file__).with_name("crossing.jsonl")


def recorded() -> list[Row]:
    """Returns rows in which every two levels meet that may meet."""
    found = map(json.loads, ROWS.read_text().splitlines())
    return [Row(**row | {name: tuple(row[name]) for name in ("masks", "fold")}) for row in found]


Pair = tuple[tuple[str, Any], tuple[str, Any]]


def pairs_of(row: Row) -> set[Pair]:
    """Returns every two levels of a row."""
    return set(itertools.combinations(((name, getattr(row, name)) for name in FACTORS), 2))


def allowed(levels: Mapping[str, Any]) -> bool:
    """Returns whether levels of some factors, or of all, may be together."""
    return not any(
        all(levels.get(name) in values for side in never for name, values in side.items())
        for never in NEVER
    )


def test_every_two_levels_meet_that_may_meet():
    """`python -m tests.cli.record_crossing` finds rows anew after a change of levels."""
    met = set().union(*map(pairs_of, recorded()))
    every = {
        ((one, level), (other, beside))
        for one, other in itertools.combinations(FACTORS, 2)
        for level, beside in itertools.product(FACTORS[one], FACTORS[other])
    }
    assert {pair for pair in every if allowed(dict(pair))} == met


EPSILON, DELTA = 20.0, 1e-4
OWN_TOKENIZER = "tests.support.crowd:by_clauses"


@pytest.fixture(scope="module")
def earlier(cli, tmp_path_factory) -> pathlib.Path:
    """A release of other people with the words of everything that rules may leave out."""
    folder = tmp_path_factory.mktemp("earlier")
    texts = crowd.records("july", first_user=1000)
    crowd.write_files(folder, texts, "jsonl", as_tokens=False)
    given = {"input": [folder / "a.jsonl"], "output": folder / "release", **reading_fields()}
    ended = cli("ngrams", *arguments(given | budget() | {"max_length": 2, "quiet": True}))
    assert ended.status == 0, ended.err
    known = {row["ngram"] for row in read_release(str(folder / "release")).table().to_pylist()}
    assert {"acme", "555", "green tea", "help example"} <= known
    return folder / "release"


def budget() -> dict[str, Any]:
    return {"epsilon": EPSILON, "delta": DELTA}


def reading_fields() -> dict[str, Any]:
    user, _, _, text, _ = crowd.FIELDS
    return {"user_field": user, "text_field": text}


def arguments(given: Mapping[str, Any]) -> list[str]:
    """Returns parameters as options of the program."""
    found: list[str] = []
    for name, value in given.items():
        if value is True:
            found.append(f"--{name}")
        elif isinstance(value, list) and name in ("input", "known"):
            found += [text for each in value for text in (f"--{name}", str(each))]
        elif isinstance(value, list):
            found += [f"--{name}", ",".join(map(str, value))]
        elif value is not False:
            found += [f"--{name}", str(value)]
    return found


@dataclasses.dataclass(kw_only=True)
class Case:
    """The runs of a row in a folder of their own."""

    row: Row
    folder: pathlib.Path
    cli: Callable
    program: Any
    earlier: pathlib.Path

    def texts(self, month: str = "june") -> list[crowd.Record]:
        texts = crowd.records(month)
        return crowd.by_line(texts) if self.row.files == "sequences" else texts

    def of_users(self, month: str = "june") -> list[crowd.Record]:
        """Returns the texts of a month with the users that are protected."""
        texts = self.texts(month)
        return crowd.by_record(texts) if self.row.users == "record" else texts

    def exact(self, month: str = "june") -> dict[Gram, int]:
        return crowd.held(self.of_users(month), self.row.rules)

    def reading(self, month: str = "june") -> dict[str, Any]:
        """Writes the texts of a month; returns the parameters by which they are read."""
        row, place = self.row, self.folder / month
        as_tokens = row.tokenizer == "tokens"
        paths = crowd.write_files(place, self.texts(month), row.files, as_tokens=as_tokens)
        given: dict[str, Any] = {"input": [str(path) for path in paths]}
        if row.files == "mixed":
            given["input"] = [str(place)]
        if row.files == "sequences":
            return given | {"input_format": "sequences"}
        if row.files == "headless":
            given |= {"columns": list(crowd.FIELDS), "delimiter": "semicolon"}
        if row.is_grouped:
            given["group_field"] = crowd.FIELDS[-1]
        if row.normalize_users:
            given["normalize_users"] = True
        given |= crowd.NESTED if row.files == "nested" else reading_fields()
        if row.users == "record":
            del given["user_field"]
            given["record_is_user"] = True
        elif row.users == "columns":
            names = crowd.FIELDS[1:3]
            above = "by." if row.files == "nested" else ""
            given["user_field"] = [f"{above}{name}" for name in names]
        return given

    def words(self) -> dict[str, Any]:
        """Returns the parameters of words, and of what is left out."""
        row = self.row
        given: dict[str, Any] = {}
        if row.tokenizer == "separator":
            given["item_separator"] = ";"
        elif row.tokenizer == "own":
            given["tokenizer"] = OWN_TOKENIZER
        elif row.tokenizer != "words":
            given["tokenizer"] = row.tokenizer
        if row.masks:
            given["mask"] = list(row.masks)
        if row.fold:
            given["fold"] = list(row.fold)
        if row.stop_list:
            (self.folder / "stop.txt").write_text("\n".join(crowd.STOP_LIST))
            given["stop_list"] = str(self.folder / "stop.txt")
        return given

    def known(self) -> dict[str, Any]:
        row = self.row
        if row.known == "release":
            return {"known": [str(self.earlier)]}
        if row.known == "text":
            (self.folder / "public.txt").write_text("\n".join(KNOWN_LINES * 5))
            return {"known": [str(self.folder / "public.txt")]}
        if row.known == "table":
            columns = {"ngram": list(KNOWN_NGRAMS)}
            if row.is_grouped:
                columns["group"] = [crowd.GROUPS[0]] * len(KNOWN_NGRAMS)
            with (self.folder / "public.csv").open("w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(columns)
                writer.writerows(zip(*columns.values(), strict=True))
            return {"known": [str(self.folder / "public.csv")]}
        if row.mechanism == "count":
            return self.phrases()
        return {}

    def phrases(self) -> dict[str, Any]:
        """Writes a list of what many have, of what one has, and of what nobody has."""
        exact = [*self.exact().items(), *self.exact("july").items()]
        told = {words for (_, words), count in exact if count > 1}
        told.add(next(words for (_, words), count in exact if count == 1))
        lines = [*sorted({" ".join(words) for words in told}), "unheard"]
        path = self.folder / "phrases.txt"
        if self.row.tokenizer == "tokens":
            lines = ["ngram", *sorted({join_tokens(words) for words in told}), "unheard"]
            path = self.folder / "phrases.tsv"
        path.write_text("\n".join(lines))
        given: dict[str, Any] = {"phrases": str(path)}
        return given | ({"groups": list(crowd.GROUPS)} if self.row.is_grouped else {})

    def plan(self) -> dict[str, Any]:
        row = self.row
        given: dict[str, Any] = budget()
        if row.token_limit:
            limit = "max_items_per_user" if row.is_union else "max_tokens_per_user"
            given[limit] = crowd.TOKEN_LIMIT
        if row.mechanism == "count":
            return given
        given["count_share"] = row.count_share
        if row.is_union:
            return given
        given |= {"max_length": row.max_length, "spurious_fraction": 1e-4}
        if row.mechanism != "adaptive":
            given["strategy"] = row.mechanism
        if row.favour != "none":
            given["favour"] = row.favour
        return given

    def key(self, name: str) -> dict[str, Any]:
        """Returns the parameter of a run key that is made of a name."""
        path = self.folder / f"{name}.key"
        path.write_text(hashlib.sha256(f"{self.row} {name}".encode()).hexdigest())
        return {"run_key_file": str(path)}

    def run(self, output: str, given: Mapping[str, Any], runner: str = "1") -> Release:
        """Runs the program, which succeeds; returns the release, checked against its ledger."""
        place = self.folder / output
        given = {"output": str(place), **given}
        if runner == "yaml":
            run_yaml(as_yaml(self.row, given))
        else:
            how = ("--runner", runner) if runner.endswith("Runner") else ("--workers", "2")
            if runner == "1":
                how = ("--workers", "1")
            run = self.program.run if runner == "process" else self.cli
            ended = run(self.row.program, *arguments(given), *how, "--quiet")
            assert (ended.status, ended.err) == (0, ""), ended.err
        release = read_release(str(place))
        release.verify()
        return release


KNOWN_LINES = ("red apple pie", "secret acme plan", "call 555 1234", "unheard of thing")
KNOWN_NGRAMS = (
    *("red", "apple", "red apple", "apple pie", "acme", "acme plan", "555", "555 1234"),
    *("unheard", "thing", "unheard thing", "green tea"),
)


def grams_of(release: Release) -> dict[Gram, dict[str, Any]]:
    """Returns the rows of a release by group and words."""
    rows = release.table().to_pylist()
    if release.program == "set-union":
        return {(None, (row["item"],)): row for row in rows}
    return {(row.get("group"), tuple(split_ngram(row["ngram"]))): row for row in rows}


def judge(release: Release, exact: Mapping[Gram, int], rules: Rules) -> None:
    """Asserts that a release is what exact counts allow."""
    released = grams_of(release)
    assert all(count == 1 or count >= crowd.MANY for count in exact.values())
    of_many = {gram for gram, count in exact.items() if count > 1}
    assert of_many
    assert of_many - released.keys() == set()
    assert [gram for gram in released if crowd.is_left_out(gram[1], rules)] == []
    of_list = release.program == "count"
    alone = [] if of_list else [gram for gram in released if exact.get(gram) == 1]
    # With δ = 10^-4 and 160 words that one user alone has, a run in 63 releases one of them.
    own_words = [gram for gram in alone if gram[1][0].startswith(crowd.OWN) and len(gram[1]) == 1]
    assert (set(alone) - set(own_words), len(own_words) <= 1) == (set(), True), alone
    for gram in released if of_list else of_many:
        row = released[gram]
        if "users" in row:
            # Intervals of 95 % of the rows, made wider so that none is far away.
            slack = 3 + row["users_high"] - row["users_low"]
            count = exact.get(gram, 0)
            assert row["users_low"] - slack <= count <= row["users_high"] + slack, gram


def files_of(release: Release) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in pathlib.Path(release.path).iterdir()}


# Keys of Beam YAML, by the transform that has them; the private transform has the others.
READ_KEYS = (
    *("input", "input_format", "delimiter", "columns", "where"),
    *("normalize_users", "record_is_user"),
)
BOTH_KEYS = ("user_field", "text_field", "group_field")
WRITE_KEYS = ("output", "output_format", "overwrite")


def as_yaml(row: Row, given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the transforms of a run with the same parameters."""

    def part(names: Sequence[str]) -> dict[str, Any]:
        return {name: value for name, value in given.items() if name in names}

    others = {name: value for name, value in given.items() if name not in READ_KEYS + WRITE_KEYS}
    reading = part(READ_KEYS + BOTH_KEYS)
    if row.tokenizer == "tokens":
        reading["text_is_tokens"] = True
    private = "PrivateSetUnion" if row.is_union else "PrivateNgrams"
    outputs = {"rows": f"{private}.rows", "ledger": f"{private}.ledger"}
    return [
        {"type": "ReadDocuments", "config": reading},
        {"type": private, "input": "ReadDocuments", "config": others},
        {"type": "WriteRelease", "input": outputs, "config": part(WRITE_KEYS)},
    ]


CAP_DELTA = 1e-3


def counted_run(case: Case, given: Mapping[str, Any], runner: str = "1") -> Release:
    """Runs the program into `out`; the run counts in the folder of a budget, if the row has one."""
    row, path, place = case.row, str(case.folder / "budget"), str(case.folder / "out")
    if row.budget == "none":
        return case.run("out", given, runner)
    if not (case.folder / "budget").exists():
        cap = ("--population", "a crowd", "--epsilon", 1000, "--delta", CAP_DELTA)
        assert case.cli("account", "--budget", path, "--create", *cap).status == 0
    if row.budget == "run":
        return case.run("out", {**given, "budget": path}, runner)
    if row.budget == "settle":
        make_plan = {"set-union": SetUnionPlan, "count": PhraseCountsPlan}.get(
            row.mechanism, NgramsPlan
        )
        expense = expense_of_plan(make_plan(**case.plan()))
        open_budget(path).check_and_note(expense, program=row.program, output=place)
    release = case.run("out", given, runner)
    how = {"add": ("--add", place), "settle": ("--settle", place)}[row.budget]
    ended = case.cli("account", "--budget", path, *how)
    assert ended.status == 0, ended.err
    return release


def judge_budget(case: Case, release: Release, runs: int) -> None:
    """Asserts that a budget has equal runs, all of them settled, and what they spend together."""
    shown = case.cli("account", "--budget", case.folder / "budget", "--json")
    assert shown.status == 0, shown.err
    facts = json.loads(shown.out)
    assert [each["state"] for each in facts["runs"]] == ["released"] * runs
    assert math.isclose(facts["total"]["epsilon"], epsilon_of(release, runs), rel_tol=1e-4)
    assert facts["total"]["sum_epsilon"] == runs * EPSILON


def epsilon_of(release: Release, runs: int) -> float:
    """Returns the ε of equal runs at the δ of the cap, by the formula of the page on accounting."""
    spent, two_users = release.ledger["spent"], release.ledger["groups"]["sizes"][0]
    mu = math.sqrt(runs) * two_users["gaussian_mu"] / two_users["users"]
    slack = runs * spent["numerical_slack"]

    def tail(z: float) -> float:
        return math.erfc(z / math.sqrt(2)) / 2

    def delta(epsilon: float) -> float:
        own = epsilon - slack
        noise = tail(own / mu - mu / 2) - math.exp(own) * tail(own / mu + mu / 2)
        tails = runs * spent["far_tails"] * math.exp(max(0.0, epsilon - EPSILON))
        return math.exp(slack) * (noise + runs * spent.get("vocabulary_delta", 0)) + tails

    low, high = 0.0, runs * EPSILON
    for _ in range(60):
        middle = (low + high) / 2
        if delta(middle) > CAP_DELTA:
            low = middle
        else:
            high = middle
    return high


def cells(printed: str) -> list[list[str]]:
    """Returns the cells of the rows of printed tables."""
    lines = [line for line in printed.splitlines() if line.startswith("│")]
    return [
        [cell.strip().replace(",", "") for cell in line.strip("│").split("│")] for line in lines
    ]


# What is done with a release: each asserts that another face of the program says what is true.
Then = Callable[[Case, Mapping[str, Any], Release], None]


def evaluated(case: Case, given: Mapping[str, Any], release: Release) -> None:
    names = ("input", "stop_list", "known")
    taken = {name: value for name, value in given.items() if name in names}
    ended = case.cli("evaluate", "--release", release.path, "--quiet", *arguments(taken))
    assert ended.status == 0, ended.err
    exact, released = case.exact(), grams_of(release)
    if release.program == "count":
        numbers = {row[0] for row in cells(ended.out) if len(row) == 8}
        assert {str(len(words)) for _, words in released.keys() & exact.keys()} <= numbers
        return
    lengths = {len(words) for _, words in released}
    told = {
        row[0]: tuple(map(int, row[1:4])) for row in reversed(cells(ended.out)) if len(row) == 9
    }
    for length in lengths:
        own = [gram for gram in released if len(gram[1]) == length]
        real = sum(gram in exact for gram in own)
        assert told[str(length)] == (len(own), real, len(own) - real)


def compared(case: Case, given: Mapping[str, Any], release: Release) -> None:
    later = case.run("later", {**given, **case.reading("july"), **case.key("later")})
    judge(later, case.exact("july"), case.row.rules)
    changes = case.folder / "changes.jsonl"
    ended = case.cli("compare", release.path, later.path, "--output", changes)
    assert ended.status == 0, ended.err
    text = "item" if case.row.is_union else "ngram"
    told: dict[str, set] = {"new": set(), "gone": set()}
    for line in changes.read_text().splitlines():
        row = json.loads(line)
        words = (row[text],) if case.row.is_union else tuple(split_ngram(row[text]))
        told.setdefault(row["change"], set()).add((row.get("group"), words))
    before, after = grams_of(release).keys(), grams_of(later).keys()
    if release.program == "count":
        assert before == after == set().union(*told.values())
        return
    assert (told["new"], told["gone"]) == (after - before, before - after)
    of_june, of_july = case.exact(), case.exact("july")
    came = {gram for gram in of_july if of_july[gram] > 1 and gram not in of_june}
    went = {gram for gram in of_june if of_june[gram] > 1 and gram not in of_july}
    # Noise alone may have released a known one of nobody in the other month.
    assert came <= told["new"] | before
    assert went <= told["gone"] | after


def checked(case: Case, given: Mapping[str, Any], release: Release) -> None:
    taken = {**given, "output": str(case.folder / "new")}
    ended = case.cli("check", case.row.program, *arguments(taken), "--quiet")
    assert ended.status == 0, ended.err
    texts = case.of_users()
    assert cells(ended.out)[0][:2] == [str(len({each.user for each in texts})), str(len(texts))]


def planned(case: Case, given: Mapping[str, Any], release: Release) -> None:
    path = case.folder / "plan.json"
    taken = {**case.plan(), "output": str(path)}
    ended = case.cli("plan", case.row.program, *arguments(taken))
    assert ended.status == 0, ended.err
    assert json.loads(path.read_text()).items() <= release.ledger["plan"].items()


def exported(case: Case, release: Release, kind: str) -> str:
    """Exports a release, or its first group where only one can be; returns the text of the file."""
    path = case.folder / f"export.{kind}"
    one_group = case.row.is_grouped and kind in ("tokenizers", "arpa")
    group = ("--group", crowd.GROUPS[0]) if one_group else ()
    ended = case.cli("export", release.path, "--to", kind, "--output", path, *group)
    assert ended.status == 0, ended.err
    return path.read_text()


def texts_of(case: Case, release: Release) -> set[str]:
    """Returns the n-grams or items of a release, or of its first group, as its rows write them."""
    rows = release.table().to_pylist()
    text = "item" if case.row.is_union else "ngram"
    return {row[text] for row in rows if row.get("group") in (None, crowd.GROUPS[0])}


def in_tokenizers(case: Case, given: Mapping[str, Any], release: Release) -> None:
    found = json.loads(exported(case, release, "tokenizers"))
    added = {each["content"] for each in found["added_tokens"]}
    assert (added | found["model"]["vocab"].keys()) - {"[UNK]", "[PAD]"} == texts_of(case, release)


def in_arpa(case: Case, given: Mapping[str, Any], release: Release) -> None:
    lines = [line.split("\t") for line in exported(case, release, "arpa").splitlines()]
    found = {fields[1] for fields in lines if len(fields) > 1}
    assert found - {"<s>", "</s>", "<unk>"} == texts_of(case, release)


def in_csv(case: Case, given: Mapping[str, Any], release: Release) -> None:
    with (case.folder / "rows").open("w+", newline="") as file:
        file.write(exported(case, release, "csv"))
        file.seek(0)
        found = [
            {name: cell.removeprefix("'") for name, cell in row.items()}
            for row in csv.DictReader(file)
        ]
    rows = release.table().to_pylist()
    assert [{name: str(cell) for name, cell in row.items()} for row in rows] == found


def in_card(case: Case, given: Mapping[str, Any], release: Release) -> None:
    page = exported(case, release, "card")
    assert all(name in page for name in files_of(release) if name != "ledger.json")
    assert release.ledger_sha256 in page


def reported(case: Case, given: Mapping[str, Any], release: Release) -> None:
    path = case.folder / "report.html"
    ended = case.cli("report", release.path, "--output", path)
    assert ended.status == 0, ended.err
    page = html.unescape(path.read_text()).replace("\\u0027", "'").replace("\\\\", "\\")
    assert {text for text in texts_of(case, release) if text not in page} == set()


THEN: dict[str, Then] = {
    "evaluate": evaluated,
    "compare": compared,
    "check": checked,
    "plan": planned,
    "tokenizers": in_tokenizers,
    "arpa": in_arpa,
    "csv": in_csv,
    "card": in_card,
    "report": reported,
}


@pytest.mark.parametrize("row", [*recorded(), *IN_A_PROCESS, *TOGETHER], ids=str)
def test_a_run_with_every_two_features_releases_what_exact_counts_allow(
    row, cli, program, earlier, tmp_path
):
    case = Case(row=row, folder=tmp_path, cli=cli, program=program, earlier=earlier)
    given = {**case.reading(), **case.words(), **case.known(), **case.plan()}
    given["output_format"] = row.output_format
    keyed, is_over = given | case.key("run"), row.again == "overwrite"
    if is_over:
        counted_run(case, given | case.key("before"))
    release = counted_run(case, keyed | {"overwrite": is_over}, row.runner)
    judge(release, case.exact(), row.rules)
    if row.budget != "none":
        judge_budget(case, release, runs=1 + is_over)
    if row.again == "retry":
        assert files_of(case.run("retry", keyed)) == files_of(release)
    if row.again == "reformat":
        other = "csv" if row.output_format == "jsonl" else "jsonl"
        same = case.run("other", keyed | {"output_format": other})
        assert same.table().equals(release.table())
    THEN[row.then](case, given, release)


# What the program refuses by design: the command, and what its message names. A run is not started.
RUN = "--input {june}/a.jsonl --user_field id --text_field said --output {new}"
REFUSED = [
    (f"ngrams {RUN} --strategy one_round --known {{public}}", ("known", "strategy")),
    (f"ngrams {RUN} --strategy one_round --favour long", ("favour", "strategy")),
    (f"ngrams {RUN} --strategy one_round --rounds 2", ("rounds", "strategy")),
    (f"ngrams {RUN} --strategy adaptive --noise_growth 0.8", ("noise_growth", "strategy")),
    (f"ngrams {RUN} --strategy adaptive --pruning single", ("pruning", "strategy")),
    (f"ngrams {RUN} --tokenizer words --item_separator ;", ("item_separator", "tokenizer")),
    (f"set-union {RUN} --tokenizer whitespace --item_separator ;", ("item_separator", "tokenizer")),
    (
        f"ngrams {RUN.replace('june', 'tokens')} --tokenizer tokens --known {{public}}",
        ("known", "tokens"),
    ),
    (f"ngrams {RUN} --known_same_people --known {{public}}", ("known_same_people", "known")),
    (f"ngrams {RUN} --known {{june}}/a.jsonl", ("known", "input")),
    (f"ngrams {RUN} --stop_list {{june}}/a.jsonl", ("stop_list", "input")),
    (f"set-union {RUN} --group_field place", ("group_field",)),
    (f"set-union {RUN} --max_length 2", ("max_length",)),
    (f"set-union {RUN} --strategy one_round", ("strategy",)),
    (f"ngrams {RUN} --input_format sequences --group_field place", ("group_field", "sequences")),
    (f"ngrams {RUN} --rejects {{new}}/rejects", ("rejects", "release")),
    (f"ngrams {RUN} --budget {{new}}/budget", ("budget",)),
    (f"ngrams {RUN} --budget {{full}}", ("budget", "epsilon")),
    (f"ngrams {RUN.replace('new', 'words')}", ("output", "overwrite")),
    ("compare {words} {items}", ("program",)),
    ("compare {words} {grouped}", ("group field",)),
    ("compare {words} {masked}", ("text rules",)),
    ("export {items} --to arpa --output {new}", ("to", "arpa")),
    ("export {grouped} --to arpa --output {new}", ("group",)),
    ("export {words} --to csv --output {words}/rows.csv", ("output", "release")),
    ("evaluate --release {words} --input {june}/a.jsonl --mask numbers", ("mask", "release")),
    (
        "evaluate --release {words} --input {june}/a.jsonl --stop_list {stop}",
        ("stop_list", "release"),
    ),
    ("evaluate --release {words} --input {june}/a.jsonl --tokenizer whitespace", ("tokenizer",)),
    ("evaluate --release {words} --input {june}/a.jsonl --known {public}", ("known",)),
    ("plan set-union --like titles --users 1000", ("like", "set-union")),
    (
        "plan ngrams --strategy one_round --like titles --users 1000 --known {public}",
        ("known", "strategy"),
    ),
]


@pytest.fixture(scope="module")
def places(cli, tmp_path_factory) -> dict[str, pathlib.Path]:
    """Releases of one input under different rules, lists, and a budget that is spent."""
    folder = tmp_path_factory.mktemp("places")
    found = {
        name: folder / name
        for name in ("june", "tokens", "words", "grouped", "masked", "items", "full")
    }
    crowd.write_files(found["june"], crowd.records(), "jsonl", as_tokens=False)
    crowd.write_files(found["tokens"], crowd.records(), "jsonl", as_tokens=True)
    (folder / "stop").write_text("\n".join(crowd.STOP_LIST))
    (folder / "public.txt").write_text("\n".join(KNOWN_LINES))
    given = {"input": [found["june"]], **reading_fields(), **budget(), "quiet": True}
    for program, name, more in (
        ("ngrams", "words", {"max_length": 2}),
        ("ngrams", "grouped", {"max_length": 2, "group_field": crowd.FIELDS[-1]}),
        ("ngrams", "masked", {"max_length": 2, "mask": ["numbers"]}),
        ("set-union", "items", {}),
    ):
        ended = cli(program, *arguments({**given, "output": found[name], **more}))
        assert ended.status == 0, ended.err
    cap = ("--population", "a crowd", "--epsilon", EPSILON, "--delta", DELTA)
    assert cli("account", "--budget", found["full"], "--create", *cap).status == 0
    assert cli("account", "--budget", found["full"], "--add", found["words"]).status == 0
    return {
        **found,
        "stop": folder / "stop",
        "public": folder / "public.txt",
        "new": folder / "new",
    }


@pytest.mark.parametrize(("command", "names"), REFUSED)
def test_what_does_not_go_together_is_refused_by_name(command, names, cli, places):
    given = command.format(**places).split()
    if given[0] in ("ngrams", "set-union", "plan"):
        given += ["--epsilon", EPSILON, "--delta", DELTA]
    ended = cli(*given)
    assert (ended.status, places["new"].exists()) == (2, False), ended.err
    (line,) = [line for line in ended.err.splitlines() if line.startswith("beam-dpne: error:")]
    assert [name for name in names if name not in line] == []
    if given[0] in ("ngrams", "set-union"):
        assert cli("check", *given).status == 2
