"""The pages name what exists: options, functions, files, public names. Their examples are doctests."""

import ast
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys

import pytest
import yaml

import beam_dpne
from beam_dpne import steps
from beam_dpne.cli.commands import COMMANDS
from beam_dpne.ngrams.parameters import DEFAULTS
from beam_dpne.set_union.plan import POLICIES
from tests.conftest import ROOT

DOCS, README, CONTRIBUTING = ROOT / "docs", ROOT / "README.md", ROOT / "CONTRIBUTING.md"
BEAMS = {
    *("runner", "prism_location", "job_endpoint", "environment_type", "environment_config"),
    *("parallelism", "execution_mode_for_batch", "flink_master", "files_to_stage"),
}


def module_of(name):
    """A module of the folder of pages, which is no package."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MADE = {module_of(name).PAGE for name in module_of("conf").GENERATED}  # by a build of the site
PAGES = sorted({README, CONTRIBUTING, *DOCS.rglob("*.md")} - MADE)


@pytest.fixture(scope="module")
def settings():
    """The settings of the site."""
    return module_of("conf")


def text_of(page):
    return page.read_text(encoding="utf-8")


def test_the_page_of_parameters_has_all_of_them():
    page = module_of("make_options").page()
    for command in COMMANDS:
        assert f"## beam-dpne {command.name}\n" in page
        names = command.parameters
        assert all(f"{name}`" in page or f"{name.upper()}`" in page for name in names)


def test_the_page_of_features_has_every_strategy_and_knows_what_it_lacks():
    features = module_of("make_features")
    page = features.page()
    assert all(f"| `{name}` |" in page for name in (*DEFAULTS, *POLICIES, "counts"))
    assert features.features("adaptive", "ngrams")["`--known`"]
    assert features.features("screened_gaussian", "set-union")["`--known`"]
    assert not features.features("one_round", "ngrams")["`--known`"]
    assert not features.features("counts", "bayesian")["numbers of users"]


def test_indices_and_exponents_are_typeset_outside_of_code(settings):
    assert settings.typeset("S_{k−1}, e^(g·ε) and `S_k`") == (
        "S<sub>k−1</sub>, e<sup>g·ε</sup> and `S_k`"
    )
    fenced = "```text\n2^-32 · S_k\n```\n"
    assert settings.typeset(f"{fenced}2^-32 of max_length") == (
        f"{fenced}2<sup>-32</sup> of max_length"
    )


def test_docstrings_keep_their_signs_and_examples(settings):
    lines = ["Adds |V_k| and policy_*.", "", "Input: `a_b`.", "", "Example:", "  >>> x_ = 1 | 2"]
    assert settings.readable(lines) == [
        "Adds \\|V_k\\| and policy\\_\\*.",
        "",
        "**Input:** `a_b`.",
        "",
        "Example:",
        "  >>> x_ = 1 | 2",
    ]


def commands():
    """Each command line `beam-dpne …` of a page's code."""
    for page in PAGES:
        code = "\n".join(re.findall(r"```sh\n(.*?)```", text_of(page), re.DOTALL))
        spans = re.findall(r"`(beam-dpne [a-z-]+ --[^`]+)`", text_of(page))
        lines = [*re.sub(r"\\\n", " ", code).splitlines(), *spans]
        for line in lines:
            if re.match(r"(\.venv/bin/)?beam-dpne ", line):
                yield pytest.param(line, id=f"{page.stem}: {line[:60]}")


OPTIONS = {command.name: set(command.parameters) for command in COMMANDS}


@pytest.mark.parametrize("line", list(commands()))
def test_commands_use_options_that_exist(line):
    _, command, *words = [word for word in shlex.split(line) if word != "check"]
    if command not in OPTIONS:
        # The names of some commands have two words.
        command = f"{command} {words[0]}"
    names = {word[2:].partition("=")[0] for word in words if word.startswith("--")}
    assert names <= OPTIONS[command] | BEAMS


def test_there_are_commands():
    assert len(list(commands())) > 8


def test_options_in_running_text_exist():
    known = set().union(*OPTIONS.values()) | BEAMS
    ours = "docs pytest titles public_data small only help tag state direct_running_mode package"
    known |= {
        *ours.split(),
        "parts",
        "environment_cache_millis",
        "blob_service_endpoint",
        "s3_endpoint_url",
        "temp_location",
        "alsoStartLoopbackWorker",
        "serve_loopback_worker",
    }
    for page in PAGES:
        for name in re.findall(r"`--([a-zA-Z_0-9]+)[^`]*`", text_of(page)):
            assert name in known, f"{page.name}: --{name}"


def defined_in(path):
    """Names of the functions and classes of a module."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def test_each_guarantee_names_functions_that_exist():
    found = re.findall(
        r"`(beam_dpne/[\w/]+\.py)`:((?:\s*`\w+`,?)+)", text_of(DOCS / "guarantees.md")
    )
    assert len(found) > 30
    for path, names in found:
        assert set(re.findall(r"`(\w+)`", names)) <= defined_in(path), path


def test_where_is_what_names_what_exists():
    table = text_of(CONTRIBUTING).partition("## Where is what\n")[2].partition("\n## ")[0]
    found = re.findall(r"`(\w+/\w+\.py)`(?::((?:\s*`\w+`,?)+))?", table)
    assert len(found) > 30
    for path, names in found:
        module = ast.parse((ROOT / "beam_dpne" / path).read_text(encoding="utf-8"))
        assigned = {
            target.id
            for node in module.body
            if isinstance(node, ast.Assign | ast.AnnAssign)
            for target in getattr(node, "targets", [getattr(node, "target", None)])
            if isinstance(target, ast.Name)
        }
        defined = defined_in(f"beam_dpne/{path}") | assigned
        assert set(re.findall(r"`(\w+)`", names)) <= defined, path


def test_files_that_pages_name_exist():
    paths = (
        r"((?!beam_dpne/ledger)(?:beam_dpne|tests|docs|deploy|templates|pipelines)/[\w./-]*[\w/])`"
    )
    for page in PAGES:
        text = text_of(page)
        named = re.findall(rf"`(?:python )?{paths}", text) + re.findall(r"{repo}`([^`]+)`", text)
        for path in named:
            assert (ROOT / path).exists(), f"{page.name}: {path}"


def test_the_reference_has_every_public_name_once():
    pages = "\n".join(map(text_of, sorted((DOCS / "api").glob("*.md"))))
    listed = re.findall(r"auto(?:class|function):: beam_dpne\.(\w+)$", pages, re.MULTILINE)
    of_steps = re.findall(r"auto(?:class|function):: beam_dpne\.steps\.(\w+)$", pages, re.MULTILINE)
    own = set(beam_dpne.__all__) - {"__version__"}
    assert sorted(listed) == sorted(own)
    assert sorted(of_steps) == sorted(set(steps.__all__) - own)
    for path, name in re.findall(r"auto\w+:: (beam_dpne\.[\w.]+)\.(\w+)$", pages, re.MULTILINE):
        assert hasattr(importlib.import_module(path), name)


def test_pages_and_notebooks_import_what_exists():
    texts = [text_of(page) for page in PAGES]
    for path in DOCS.glob("*.ipynb"):
        cells = json.loads(text_of(path))["cells"]
        texts += ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    pattern = r"^(?:>>> )?from (beam_dpne[\w.]*) import ([\w, ]+)$"
    found = [pair for text in texts for pair in re.findall(pattern, text, re.MULTILINE)]
    assert len(found) > 15
    for path, names in found:
        if path.startswith("beam_dpne.airflow"):  # It needs the extra `airflow`.
            module = (ROOT / path.replace(".", "/")).with_suffix(".py")
            assert set(names.split(", ")) <= defined_in(module), path
        else:
            module = importlib.import_module(path)
            missing = [name for name in names.split(", ") if not hasattr(module, name)]
            assert missing == [], path


@pytest.mark.parametrize("name", ["from_csv_to_plot", "interactive"])
def test_the_notebooks_are_whole_and_have_no_output(name):
    notebook = json.loads(text_of(DOCS / f"{name}.ipynb"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) >= 4
    for cell in cells:
        assert cell["outputs"] == []
        assert cell["execution_count"] is None
        compile("".join(cell["source"]), "cell", "exec")


def test_the_citation_names_the_project_and_the_three_papers():
    citation = yaml.safe_load(text_of(ROOT / "CITATION.cff"))
    assert citation["version"] == beam_dpne.__version__
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert [len(paper["authors"]) for paper in citation["references"]] == [4, 6, 3]


def test_changes_are_written_into_the_changelog_of_the_next_version():
    build = ("-m", "towncrier", "build", "--draft", "--version", beam_dpne.__version__)
    draft = subprocess.run(
        [sys.executable, *build], cwd=ROOT, check=True, capture_output=True, text=True
    )
    words = draft.stdout.split()
    assert words[:2] == ["##", f"{beam_dpne.__version__},"]
    for change in (ROOT / "changes").glob("*.md"):
        assert " ".join(text_of(change).split()) in " ".join(words), change.name


def test_the_readme_is_short():
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert len(text.encode()) <= 9_000
    assert max(map(len, text.splitlines())) <= 120


def entries(page):
    """The pages of a page's table of contents, without those that the build makes."""
    lists = re.findall(r"```{toctree}\n(.*?)```", text_of(DOCS / f"{page}.md"), re.DOTALL)
    names = re.findall(r"^[\w/-]+$", "\n".join(lists), re.MULTILINE)
    paths = [path for name in names if (path := DOCS / f"{name}.md").exists()]
    return [path for path in paths if path not in MADE]


SECTIONS = ("start", "use", "method", "research", "project")
HOW_TO = [path for page in ("start", "use") for path in entries(page)]


def test_every_page_has_its_place():
    written = {path for page in SECTIONS for path in entries(page)}
    assert len(HOW_TO) > 20
    pages = {*DOCS.glob("*.md"), *DOCS.glob("research/*.md")} - MADE
    assert pages - {DOCS / f"{name}.md" for name in ("index", *SECTIONS)} == written


def test_what_commands_of_pages_write_is_ignored_by_git(tmp_path):
    written = set()
    for page in [README, *HOW_TO]:
        code = "\n".join(re.findall(r"```sh\n(.*?)```", text_of(page), re.DOTALL))
        for before in (r"--(?:output|budget) \"?", r" > ", r"write_table\(\w+, \"", r"cp .* "):
            written |= set(re.findall(rf"{before}([a-z][\w./-]+)", code))
        written |= set(re.findall(r"open\(\"([\w.]+)\", \"w\"", code))
    shutil.copy(ROOT / ".gitignore", tmp_path)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    found = subprocess.run(
        ["git", "check-ignore", *(f"{path}/x" for path in written)],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    others = {"public.ngrams_2026_05", "example.PrivateNgrams"}  # a table, and a class of Java
    assert len(written) > 25
    assert written - {path.removesuffix("/x") for path in found.stdout.split()} == others


def test_each_command_that_ci_runs_is_on_one_line():
    for page, name in ((README, "main"), (README, "tests"), (CONTRIBUTING, "engines")):
        lines = page.read_text(encoding="utf-8").splitlines()
        place = lines.index(f"<!-- command: {name} -->")
        assert lines[place + 1] == "```sh"
        assert re.match(r"python3 -m venv |\.venv/bin/", lines[place + 2])
        assert lines[place + 3] == "```"


def test_the_tests_that_ci_runs_are_in_the_table():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    rows = CONTRIBUTING.read_text(encoding="utf-8")
    (listed,) = re.findall(r"for engine in (.*); do", script)
    names = re.findall(r'"([^"]+)"', listed) + re.findall(r'tests_of "([^"$]+)"', script)
    assert len(set(names)) == 9
    for name in names:
        assert re.search(rf"^\| {name}.*\| `\.venv/bin/python -m pytest ", rows, re.MULTILINE)


def test_links_lead_somewhere():
    for page in (README, CONTRIBUTING):
        for target in re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (ROOT / target).exists(), target
