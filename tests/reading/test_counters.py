"""Every counter of the package is on the page about watching a run, and the page has no other."""

import ast
import importlib
import re

import pytest

from beam_dpne.reading import rejects
from tests.conftest import ROOT

PACKAGE = ROOT / "beam_dpne"
KINDS = {"counter", "distribution", "gauge", "string_set", "bounded_trie", "histogram"}


def metrics_of(path):
    """The names of the metrics that a module makes, each with its kind."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id == "Metrics":
                module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                for name in names_of(node, vars(importlib.import_module(module))):
                    yield node.func.attr, name


def names_of(call, names):
    """The names that a call gives: a constant, or `counter_of` for each reason."""
    assert call.func.attr in KINDS
    namespace, name = call.args
    assert ast.literal_eval(namespace) == "beam_dpne"
    if isinstance(name, ast.Call):
        assert ast.unparse(name) == "counter_of(reason)"
        return [rejects.counter_of(reason) for reason in rejects.REASONS]
    return [eval(compile(ast.Expression(name), "name", "eval"), names)]


def in_code():
    return {metric for path in PACKAGE.rglob("*.py") for metric in metrics_of(path)}


def test_the_page_lists_the_counters_of_the_code_and_no_others():
    page = (ROOT / "docs/counters.md").read_text(encoding="utf-8")
    table = page.split("| counter | counts |")[1].split("\n\n")[0]
    listed = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    assert sorted(listed) == sorted(name for _, name in in_code())
    assert len(listed) == len(set(listed)) > 10
    assert {kind for kind, _ in in_code()} == {"counter"}, "the page lists only counters"


def test_only_two_modules_make_metrics():
    """The scan above finds `Metrics.counter`; any other way to name Beam's metrics is unknown to it."""
    users = [
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(r"import.*\bMetrics\b", path.read_text(encoding="utf-8"))
    ]
    assert sorted(users) == ["reading/rejects.py", "reading/transform.py"]


def test_every_phrase_of_a_reject_is_a_reason():
    phrases = [
        value
        for name, value in vars(rejects).items()
        if re.fullmatch(r"[A-Z][A-Z0-9_]+", name) and isinstance(value, str) and " " in value
    ]
    assert sorted(phrases) == sorted(rejects.REASONS)


@pytest.mark.parametrize("reason", rejects.REASONS)
def test_a_counter_gives_its_reason_back(reason):
    assert rejects.rejected_of({rejects.counter_of(reason): 2}) == {reason: 2}


def test_the_page_is_linked():
    assert "(counters.md)" in (ROOT / "docs/use.md").read_text(encoding="utf-8")
