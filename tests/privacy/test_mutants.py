"""The planted mistakes stand in the code as it is, and their runner tells noticed from unnoticed."""

import collections
import dataclasses

import pytest

from tests.privacy.mutants import MUTANTS, SUITE
from tests.privacy.mutants.__main__ import main
from tests.privacy.mutants.mutant import Mutant
from tests.privacy.mutants.run import (
    BROKEN,
    KILLED,
    SURVIVED,
    TIMEOUT,
    BaselineError,
    Suite,
    run,
)

LEAST = 60
CHEAP = "bound_of_logarithms_by_one_corner"
SOURCE = '''"""A package."""


def double(number):
    """Returns twice a number."""
    while number < 0:
        number += 1
    return 2 * number


def unused(number):
    """Returns a number."""
    return number
'''
TESTS = """from doubling import double


def test_double():
    assert double(2) == 4
    assert double(-1) == 0


def test_nothing():
    pass
"""


def sources() -> dict[str, str]:
    files = {mutant.file for mutant in MUTANTS}
    return {name: (SUITE.root / name).read_text(encoding="utf-8") for name in sorted(files)}


def test_every_mistake_stands_once_in_the_code_changes_it_and_compiles():
    texts = sources()
    wrong = []
    for mutant in MUTANTS:
        source = texts[mutant.file]
        if source.count(mutant.before) != 1:
            wrong.append((mutant.file, mutant.name))
            continue
        mutated = mutant.applied(source)
        assert mutated != source, mutant.name
        compile(mutated, mutant.file, "exec")
    assert not wrong, "These snippets do not occur exactly once; follow the code with them."


def test_mistakes_are_many_have_names_and_reasons_and_cover_what_privacy_rests_on():
    assert len(MUTANTS) >= LEAST
    names = collections.Counter(mutant.name for mutant in MUTANTS)
    assert [name for name, count in names.items() if count > 1] == []
    changes = collections.Counter((m.file, m.before, m.after) for m in MUTANTS)
    assert [change for change, count in changes.items() if count > 1] == []
    for mutant in MUTANTS:
        assert mutant.name.replace("_", "").isalnum()
        assert mutant.matters.endswith(".")
        assert mutant.harmless is None or mutant.harmless.endswith(".")
    for module in (
        "mechanism/randomness",
        "documents/group_by_user",
        "set_union/threshold",
        "ngrams/adaptive",
        "ngrams/contributions",
        "ngrams/threshold",
        "ngrams/spurious",
    ):
        assert any(mutant.file == f"beam_dpne/{module}.py" for mutant in MUTANTS), module


def test_the_tests_that_must_notice_exist():
    for mutant in MUTANTS:
        assert mutant.tests, mutant.name
        for test in mutant.tests:
            file, _, name = test.partition("::")
            text = (SUITE.root / file).read_text(encoding="utf-8")
            assert f"def {name.partition('[')[0]}(" in text or not name, test


def test_a_mistake_in_the_package_is_noticed():
    chosen = [mutant for mutant in MUTANTS if mutant.name == CHEAP]
    suite = dataclasses.replace(SUITE, preloaded=("hypothesis.strategies", "mpmath", "pytest"))
    (result,) = run(suite, chosen, jobs=1)
    assert result.outcome == KILLED, result


# The runner, on a package of its own.


@pytest.fixture
def suite(tmp_path) -> Suite:
    (tmp_path / "doubling").mkdir()
    (tmp_path / "doubling" / "__init__.py").write_text(SOURCE)
    (tmp_path / "test_doubling.py").write_text(TESTS)
    copied = ("doubling", "test_doubling.py")
    return Suite(root=tmp_path, copied=copied, package="doubling", preloaded=("pytest",))


def mutant_of(name: str, **others) -> Mutant:
    given = {
        "file": "doubling/__init__.py",
        "before": "return 2 * number",
        "after": "return 3 * number",
        "matters": "It would be another number.",
        "tests": ("test_doubling.py",),
    }
    return Mutant(name=name, **{**given, **others})


def test_each_outcome_is_told_and_nothing_of_the_package_changes(suite):
    unseen = {"before": "    return number\n", "after": "    return number + 1\n"}
    mutants = [
        mutant_of("noticed"),
        mutant_of("unnoticed", **unseen),
        mutant_of("argued", **unseen, harmless="Nobody calls it."),
        mutant_of("wrongly_argued", harmless="Nobody multiplies."),
        mutant_of("untested", tests=("test_doubling.py::test_nothing",)),
        mutant_of("missing", before="return 5 * number"),
        mutant_of("ambiguous", before="number"),
        mutant_of("no_python", after="return 2 *"),
        mutant_of("no_import", before='"""A package."""', after="import no_such_module"),
        mutant_of("ends_the_process", after="__import__('os')._exit(0)"),
    ]
    reported = []
    results = run(suite, mutants, jobs=2, report=reported.append)
    told = {result.mutant.name: (result.outcome, result.is_fine) for result in results}
    assert told == {
        "noticed": (KILLED, True),
        "unnoticed": (SURVIVED, False),
        "argued": (SURVIVED, True),
        "wrongly_argued": (KILLED, False),
        "untested": (SURVIVED, False),
        "missing": (BROKEN, False),
        "ambiguous": (BROKEN, False),
        "no_python": (BROKEN, False),
        "no_import": (BROKEN, False),
        "ends_the_process": (BROKEN, False),
    }
    assert [result.mutant for result in results] == mutants
    assert {result.mutant.name for result in reported} == told.keys()
    assert results[0].by == "test_doubling.py::test_double"
    left = {p.relative_to(suite.root).as_posix() for p in suite.root.rglob("*") if p.is_file()}
    assert left == {"doubling/__init__.py", "test_doubling.py"}
    assert (suite.root / "doubling" / "__init__.py").read_text() == SOURCE


def test_what_does_not_end_is_ended_and_noticed_only_where_that_is_said(suite):
    hangs = {"before": "number += 1", "after": "number += 0"}
    mutants = [mutant_of("endless", **hangs), mutant_of("expected", **hangs, may_hang=True)]
    results = run(dataclasses.replace(suite, timeout=1), mutants)
    assert [(r.outcome, r.is_fine) for r in results] == [(TIMEOUT, False), (TIMEOUT, True)]


def test_tests_that_fail_without_any_mistake_are_told_at_once(suite):
    (suite.root / "test_doubling.py").write_text(TESTS.replace("== 4", "== 5"))
    with pytest.raises(BaselineError, match="test_double"):
        run(suite, [mutant_of("noticed")])


def test_a_package_that_is_not_the_copy_s_is_told_at_once(suite):
    elsewhere = Suite(root=suite.root, copied=("test_doubling.py",), package="json")
    with pytest.raises(BaselineError, match="not imported from the copy"):
        run(elsewhere, [mutant_of("noticed")])


def test_the_command_runs_those_that_are_named(capsys):
    assert main(["--only", "no_such_mutant"]) == 2
    assert "no_such_mutant" in capsys.readouterr().out
