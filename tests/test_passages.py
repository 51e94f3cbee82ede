"""Passages that a reader must read twice, and that no type checker follows, are not in the package.

The rules look at the syntax tree alone: they know what is written in a module, what it imports, and
the annotations of the package. `LEFT` has those that are still there, and may only become shorter.
"""

import ast
import collections
import dataclasses
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence

import pytest

from beam_dpne.cli.commands import COMMANDS

PACKAGE = pathlib.Path(__file__).resolve().parents[1] / "beam_dpne"
CHOSEN = "a text, tuple or list is chosen by a truth value"
UNNAMED = "arguments of a callable of ours are passed as **"
UNTYPED = "a function of the loop takes or returns Any"
CHARGED = "a budget is charged within a tuple assignment"
# The modules between which a round of a release travels.
LOOP = {
    *(f"beam_dpne/ngrams/{name}.py" for name in ("in_memory", "range_steps", "run", "spending")),
    *(f"beam_dpne/ngrams/{name}.py" for name in ("steps", "user_steps")),
    *(f"beam_dpne/set_union/{name}.py" for name in ("in_memory", "run", "steps")),
    *(f"beam_dpne/bayesian/{name}.py" for name in ("run", "steps")),
}
# The one function that makes an object of parameters from parsed values, by their names.
MADE_BY_NAMES = ("beam_dpne/validation.py", "made_from")
# Numbers of passages that are still there. A number falls with its passages, and never rises.
LEFT: Mapping[str, Mapping[str, int]] = {
    UNNAMED: {
        "beam_dpne/documents/steps.py": 1,
        "beam_dpne/elements/encoding.py": 1,
        "beam_dpne/ngrams/ledger.py": 1,
    },
    UNTYPED: {
        "beam_dpne/ngrams/steps.py": 1,
        "beam_dpne/set_union/steps.py": 3,
    },
}
_SEQUENCES = {"str", "tuple", "list", "Sequence"}
# Names of what is left of a user's budget.
_BUDGETS = {"left", "budget", "budgets", "remaining", "allotment"}
# What calls its first argument with the arguments that follow.
_CALLERS = {"partial", "Map", "FlatMap", "MapTuple", "FlatMapTuple"}
_SCALAR_TESTS = {"isinstance", "issubclass", "bool", "any", "all", "callable", "hasattr"}


@dataclasses.dataclass(frozen=True)
class Names:
    """What the modules of a package define.

    Attributes:
      methods: names of all methods.
      flags: names of fields, properties and functions that are annotated as bool, and never otherwise.
      sequences: those of texts, tuples and lists.
      constants: the values of names that modules assign, by module and name.
    """

    methods: frozenset[str]
    flags: frozenset[str]
    sequences: frozenset[str]
    constants: Mapping[tuple[str, str], ast.expr]


def names_of(trees: Mapping[str, ast.Module]) -> Names:
    """Returns the names of modules, by their paths."""
    methods = set[str]()
    kinds = collections.defaultdict[str, set[str]](set)
    constants: dict[tuple[str, str], ast.expr] = {}
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                kinds[node.name].add(_kind(node.returns))
            if isinstance(node, ast.ClassDef):
                methods |= {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
                for each in node.body:
                    if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                        kinds[each.target.id].add(_kind(each.annotation))
        for node in tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    if isinstance(target, ast.Name):
                        module = path.removesuffix(".py").replace("/", ".")
                        constants[module, target.id] = node.value
    return Names(
        methods=frozenset(methods),
        flags=frozenset(name for name, found in kinds.items() if found == {"bool"}),
        sequences=frozenset(name for name, found in kinds.items() if found <= _SEQUENCES),
        constants=constants,
    )


def _kind(annotation: ast.expr | None) -> str:
    """Returns the name of an annotation's type, without what stands in its brackets."""
    if isinstance(annotation, ast.Subscript):
        if isinstance(annotation.value, ast.Name) and annotation.value.id == "Annotated":
            inner = annotation.slice
            return _kind(inner.elts[0] if isinstance(inner, ast.Tuple) else inner)
        return _kind(annotation.value)
    return annotation.id if isinstance(annotation, ast.Name) else ""


@dataclasses.dataclass
class Scope:
    """The names of a function, or of a module.

    Attributes:
      arguments: the function's arguments; None for a module.
      annotations: the annotations of names.
      values: what is assigned to names.
    """

    arguments: ast.arguments | None = None
    annotations: dict[str, ast.expr | None] = dataclasses.field(default_factory=dict)
    values: dict[str, ast.expr | None] = dataclasses.field(default_factory=dict)


class Reader(ast.NodeVisitor):
    """Reads a module, and gathers the lines of each kind of passage."""

    def __init__(self, path: str, tree: ast.Module, names: Names):
        self.path = path
        self.names = names
        self.found: dict[str, list[int]] = collections.defaultdict(list)
        self.scopes = [_scope(tree.body)]
        self.functions = [""]
        self.modules: dict[str, str] = {}
        self.libraries = set[str]()
        self.imported: dict[str, tuple[str, str]] = {}
        self.defined = {
            node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)
        }
        for node in ast.walk(tree):
            self._take_import(node)
        self.visit(tree)

    def _take_import(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            self.libraries |= {(each.asname or each.name).split(".")[0] for each in node.names}
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            for each in node.names:
                name = each.asname or each.name
                if module.partition(".")[0] == "beam_dpne":
                    self.modules[name] = f"{module}.{each.name}"
                    self.imported[name] = (module, each.name)
                else:
                    self.libraries.add(name)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if self.path in LOOP:
            self._look_for_any(node)
        for each in (*node.decorator_list, *node.args.defaults, *node.args.kw_defaults):
            if each is not None:
                self.visit(each)
        self.scopes.append(_scope(node.body, node.args))
        self.functions.append(node.name)
        for each in node.body:
            self.visit(each)
        self.functions.pop()
        self.scopes.pop()

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Mult):
            for text, truth in ((node.left, node.right), (node.right, node.left)):
                if self._is_truth(truth) and (self._is_sequence(text) or self._is_scalar(truth)):
                    self.found[CHOSEN].append(node.lineno)
                    break
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if self._is_truth(node.slice) and self._is_sequence(node.value):
            self.found[CHOSEN].append(node.lineno)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        for each in node.keywords:
            if each.arg is None and not self._is_handed_on(node, each.value):
                target = node.func
                if node.args and _last_name(node.func) in _CALLERS:
                    target = node.args[0]
                if self._is_ours(target) and (self.path, self.functions[-1]) != MADE_BY_NAMES:
                    self.found[UNNAMED].append(node.lineno)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                charges = (each for value in node.value.elts for each in ast.walk(value))
                if any(map(_is_charge, charges)):
                    self.found[CHARGED].append(node.lineno)
        self.generic_visit(node)

    def _look_for_any(self, node: ast.FunctionDef) -> None:
        arguments = node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
        annotations = [node.returns, *(each.annotation for each in every)]
        for annotation in annotations:
            if annotation is not None and "Any" in map(_last_name, ast.walk(annotation)):
                self.found[UNTYPED].append(node.lineno)

    def _is_truth(self, node: ast.expr) -> bool:
        """Whether an expression is a truth value, or an array of them."""
        if self._is_scalar(node) or isinstance(node, ast.Compare):
            return True
        if isinstance(node, ast.BoolOp):
            return all(map(self._is_truth, node.values))
        if isinstance(node, ast.Call):
            return self._is_truth(node.func)
        if isinstance(node, ast.Name) and (annotation := self._annotation(node.id)) is not None:
            return _kind(annotation) == "bool"
        name = _last_name(node)
        return name.startswith(("is_", "has_")) or name in self.names.flags

    def _is_scalar(self, node: ast.expr) -> bool:
        """Whether an expression is one truth value whatever stands in it."""
        if isinstance(node, ast.UnaryOp):
            return isinstance(node.op, ast.Not)
        if isinstance(node, ast.Compare):
            one = (ast.Is, ast.IsNot, ast.In, ast.NotIn)
            return all(isinstance(each, one) for each in node.ops)
        return isinstance(node, ast.Call) and _last_name(node.func) in _SCALAR_TESTS

    def _is_sequence(self, node: ast.expr) -> bool:
        """Whether an expression is a text, a tuple or a list."""
        meant = self._meant(node)
        if isinstance(meant, ast.Constant):
            return isinstance(meant.value, str | bytes)
        if isinstance(meant, ast.JoinedStr | ast.Tuple | ast.List | ast.ListComp):
            return True
        if isinstance(meant, ast.Attribute):
            return meant.attr in self.names.sequences
        return isinstance(meant, ast.Name) and _kind(self._annotation(meant.id)) in _SEQUENCES

    def _meant(self, node: ast.expr | None) -> ast.expr | None:
        """Returns the literal for which names and indices stand, as far as that can be seen."""
        if isinstance(node, ast.Name):
            for scope in reversed(self.scopes):
                if node.id in scope.annotations:
                    return node
                if node.id in scope.values:
                    return scope.values[node.id]
            return self.names.constants.get(self.imported.get(node.id, ("", "")), node)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = self.modules.get(node.value.id, "")
            return self.names.constants.get((module, node.attr), node)
        if isinstance(node, ast.Subscript):
            outer = self._meant(node.value)
            members = outer.values if isinstance(outer, ast.Dict) else getattr(outer, "elts", [])
            return self._meant(members[0]) if members else node
        return node

    def _annotation(self, name: str) -> ast.expr | None:
        for scope in reversed(self.scopes):
            if name in scope.annotations or name in scope.values:
                return scope.annotations.get(name)
        return None

    def _is_handed_on(self, node: ast.Call, value: ast.expr) -> bool:
        """Whether a function hands on its own ** unchanged, as a wrapper or to its base class."""
        own = self.scopes[-1].arguments
        if own is None or own.kwarg is None or _last_name(value) != own.kwarg.arg:
            return False
        if isinstance(node.func, ast.Attribute) and node.func.attr == "__init__":
            return isinstance(node.func.value, ast.Call)
        starred = [each.value for each in node.args if isinstance(each, ast.Starred)]
        return own.vararg is not None and own.vararg.arg in map(_last_name, starred)

    def _is_ours(self, node: ast.expr) -> bool:
        """Whether a call calls something of ours, or what only a variable names."""
        name = _last_name(node)
        if isinstance(node, ast.Name):
            is_local = any(
                name in scope.annotations or name in scope.values for scope in self.scopes[1:]
            )
            return is_local or name in self.defined or name in self.modules
        if isinstance(node, ast.Attribute):
            if name in ("replace", "_replace"):
                return True
            base = _base_name(node)
            if base in self.libraries or base in self.modules:
                return base in self.modules
            return name in self.names.methods
        return True


def _base_name(node: ast.expr) -> str:
    """Returns the name before the one point of an expression; "" for others."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.value.id
    return ""


def _last_name(node: ast.AST | None) -> str:
    """Returns a name, or the last part of one with points; "" for other expressions."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_charge(node: ast.AST) -> bool:
    """Whether an expression takes something off what is left of a budget."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Sub):
        return False
    return _last_name(node.left) in _BUDGETS


def _scope(body: Sequence[ast.stmt], arguments: ast.arguments | None = None) -> Scope:
    """Returns the scope of a function or a module; of names that have two values, none is known."""
    scope = Scope(arguments)
    if arguments is not None:
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        scope.annotations |= {each.arg: each.annotation for each in every}
    for node in _statements(body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            scope.annotations[node.target.id] = node.annotation
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for each in ast.walk(target):
                    if isinstance(each, ast.Name):
                        is_only = isinstance(target, ast.Name) and each.id not in scope.values
                        scope.values[each.id] = node.value if is_only else None
        if isinstance(node, ast.For | ast.comprehension):
            targets = (each for each in ast.walk(node.target) if isinstance(each, ast.Name))
            scope.values |= dict.fromkeys((each.id for each in targets), None)
    return scope


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """Yields the nodes of a function or a module without those of functions within it."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop(0)
        if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda):
            yield node
            waiting[:0] = ast.iter_child_nodes(node)


def passages(sources: Mapping[str, str]) -> dict[str, dict[str, list[int]]]:
    """Returns the lines of each kind of passage in each module, by their paths."""
    trees = {path: ast.parse(source) for path, source in sources.items()}
    names = names_of(trees)
    found: dict[str, dict[str, list[int]]] = {
        rule: {} for rule in (CHOSEN, UNNAMED, UNTYPED, CHARGED)
    }
    for path, tree in trees.items():
        for rule, lines in Reader(path, tree, names).found.items():
            found[rule][path] = sorted(lines)
    return found


def test_the_package_has_no_passage_of_these_kinds_but_those_that_are_listed():
    sources = {
        path.relative_to(PACKAGE.parent).as_posix(): path.read_text("utf-8")
        for path in sorted(PACKAGE.rglob("*.py"))
    }
    found = passages(sources)
    different: list[str] = []
    for rule, lines in found.items():
        listed = LEFT.get(rule, {})
        for path in sorted(lines.keys() | listed.keys()):
            here = lines.get(path, [])
            if len(here) != listed.get(path, 0):
                different.append(f"{path}: {rule} in lines {here}, listed {listed.get(path, 0)}")
    assert not different


@pytest.mark.parametrize(
    ("rule", "statement"),
    [
        (CHOSEN, "'text' * (n < 2)"),
        (CHOSEN, "f'{n}s' * has_more"),
        (CHOSEN, "TITLE * (n < 2)"),
        (CHOSEN, "[n] * bool(n and has_more)"),
        (CHOSEN, "n * isinstance(n, int)"),
        (CHOSEN, "run.title * run.publishes"),
        (CHOSEN, "'[('[n > 1]"),
        (CHOSEN, "pair[not n]"),
        (CHOSEN, "BORDERS['low'][n > 1]"),
        (CHOSEN, "pair[run.is_late()]"),
        (UNNAMED, "spend(n, **how)"),
        (UNNAMED, "elsewhere(**{'n': n})"),
        (UNNAMED, "rules.elsewhere(**how)"),
        (UNNAMED, "run.publish(**how)"),
        (UNNAMED, "Run(**vars(run))"),
        (UNNAMED, "kind(**how)"),
        (UNNAMED, "dataclasses.replace(run, **how)"),
        (UNNAMED, "functools.partial(spend, **how)"),
        (UNNAMED, "functools.partial(kind, **how)"),
        (UNNAMED, "beam.Map(rules.elsewhere, n, **how)"),
        (UNTYPED, "def inner(users: Any) -> int: ..."),
        (UNTYPED, "def inner() -> tuple[int, Any]: ..."),
        (UNTYPED, "def inner(*past: int, **by: typing.Any): ..."),
        (CHARGED, "n, left = spend(n), left - cost"),
        (CHARGED, "n, run.left = n, replaced(run, left=run.left - cost)"),
    ],
)
def test_a_planted_passage_is_noticed(rule, statement):
    assert _planted(statement) == {rule: 1}


@pytest.mark.parametrize(
    "statement",
    [
        "'text' if n < 2 else ''",
        "values[values > 0] * (values > 1)",
        "'text' * n",
        "pair[n]",
        "json.dumps(n, **how)",
        "functools.partial(json.dumps, **how)",
        "beam.Row(**how)",
        "{**how}",
        "def wrapper(*given, **named):\n        return kind(*given, **named)",
        "dataclasses.replace(run, title='')",
        "def inner(users: Run) -> tuple[int, ...]: ...",
        "left = left - cost",
        "n, left = cost - n, left",
    ],
)
def test_what_only_looks_like_a_passage_is_not_counted(statement):
    assert _planted(statement) == {}


def _planted(statement: str) -> dict[str, int]:
    """Returns how many passages of each kind a module has with this statement in a function."""
    source = f"""
import dataclasses, functools, json, typing
import apache_beam as beam
from beam_dpne.mechanism import rules
from beam_dpne.mechanism.rules import elsewhere
TITLE = "a title"
BORDERS = {{"low": ("[", "(")}}

class Run:
    title: str
    publishes: bool

    def publish(self, *, n: int) -> None: ...
    def is_late(self) -> bool: ...

def spend(n: int, *, cost: int) -> int: ...

def step(n: int, has_more: bool, pair: tuple[str, str], run: Run, values: np.ndarray, kind, how, left):
    {statement}
"""
    found = passages({"beam_dpne/ngrams/spending.py": source})
    return {
        rule: len(lines["beam_dpne/ngrams/spending.py"]) for rule, lines in found.items() if lines
    }


def test_errors_name_parameters_in_backticks():
    # The command line writes them as its options by these marks.
    names = {name for each in COMMANDS for name in each.parameters if "_" in name}
    bare = re.compile(rf"(?<![\w/.\-'\"`])(?:{'|'.join(names)})(?![\w/\-'\"`=])")
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        raised = [
            each for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.Raise)
        ]
        texts = [
            (each.lineno, each.value)
            for error in raised
            for each in ast.walk(error)
            if isinstance(each, ast.Constant) and isinstance(each.value, str) and " " in each.value
        ]
        found += [(path.name, line, text) for line, text in texts if bare.search(text)]
    assert found == []
