"""python tests/size.py: the size of the code, and a failure above the limits that are named here.

Code lines are those without blank lines, comments and docstrings. Whoever adds an idea takes one out.
"""

import ast
import io
import pathlib
import subprocess
import sys
import tokenize

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Code lines and modules of each area.
LIMITS = {
    "beam_dpne": (16_000, 135),
    "pipelines": (3_000, 40),
    "deploy": (1_500, 20),
    "templates": (240, 2),
    "tests": (24_000, 180),
}
LONGEST = 350  # lines of a module of the package
LOADED = 65  # modules of the package behind ReadDocuments | PrivateNgrams | WriteRelease
LOADS = """
import sys
from beam_dpne import PrivateNgrams, WriteRelease
from beam_dpne.reading.transform import ReadDocuments
print(sum(name.partition(".")[0] == "beam_dpne" for name in sys.modules))
"""


def code_lines(text: str) -> int:
    """Returns the number of lines without blank lines, comments and docstrings."""
    lines = text.splitlines()
    kept = {number for number, line in enumerate(lines, 1) if line.strip()}
    for node in ast.walk(ast.parse(text)):
        documented = isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        )
        if documented and ast.get_docstring(node, clean=False) is not None:
            kept -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        number = token.start[0]
        if token.type == tokenize.COMMENT and lines[number - 1].lstrip().startswith("#"):
            kept.discard(number)
    return len(kept)


def said_by(*arguments: str) -> str:
    """Returns what Python prints."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def sizes() -> list[tuple[str, int, int]]:
    """Returns what is limited, with its size and its limit."""
    found = []
    for area, (most_lines, most_modules) in LIMITS.items():
        texts = {path: path.read_text() for path in sorted((ROOT / area).rglob("*.py"))}
        found.append((f"code lines of {area}", sum(map(code_lines, texts.values())), most_lines))
        found.append((f"modules of {area}", len(texts), most_modules))
        if area == "beam_dpne":
            path = max(texts, key=lambda path: texts[path].count("\n"))
            longest = f"lines of {path.relative_to(ROOT)}, the longest"
            found.append((longest, texts[path].count("\n"), LONGEST))
    found.append(("modules behind a pipeline of n-grams", int(said_by("-c", LOADS)), LOADED))
    return found


def main() -> int:
    """Prints all sizes; returns 1 if one is above its limit."""
    found = sizes()
    for what, size, limit in found:
        print(f"{what}: {size:,} of {limit:,}{'  TOO LARGE' if size > limit else ''}")
    return int(any(size > limit for _, size, limit in found))


if __name__ == "__main__":
    sys.exit(main())
