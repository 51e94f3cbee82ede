"""python -m tests.house: the size of the code in tokens, and a failure above the numbers named here.

Tokens are names, numbers, texts and signs, without comments, docstrings and white space: a line can be
made to hold more, and a token cannot. The numbers are alarms and no targets. Whoever meets one asks
whether an idea has two bodies, and raises the number if it has not.
"""

import ast
import io
import pathlib
import sys
import tokenize
from collections.abc import Iterator, Mapping
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Tokens of each area.
MOST_TOKENS = {
    "beam_dpne": 248_500,
    "pipelines": 37_600,
    "deploy": 13_000,
    "templates": 2_500,
    "tests": 374_500,
}
LONGEST = 500  # lines of a module of the package
# Tokens in a code line of a module of the package that has so many code lines.
DENSEST = 12.0
LEAST_LINES = 40
_SPACE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}


class Size(NamedTuple):
    """The size of a module.

    Attributes:
      lines: All its lines.
      code_lines: Those with a token.
      tokens: Its tokens.
    """

    lines: int
    code_lines: int
    tokens: int

    @property
    def density(self) -> float:
        """Tokens in a code line."""
        return self.tokens / max(1, self.code_lines)


def size_of(text: str) -> Size:
    """Returns the size of the text of a module."""
    documented = set(_docstring_lines(ast.parse(text)))
    code = set[int]()
    tokens = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _SPACE and token.start[0] not in documented:
            tokens += 1
            code.update(range(token.start[0], token.end[0] + 1))
    return Size(len(text.splitlines()), len(code), tokens)


def _docstring_lines(tree: ast.Module) -> Iterator[int]:
    """Yields the numbers of the lines of all docstrings."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            yield from range(first.lineno, (first.end_lineno or first.lineno) + 1)


def faults(sizes: Mapping[str, Size]) -> list[str]:
    """Returns what is above its number.

    Args:
      sizes: Those of all modules, by their paths from the root.
    """
    found: list[str] = []
    for area, most in MOST_TOKENS.items():
        tokens = sum(size.tokens for path, size in sizes.items() if path.startswith(f"{area}/"))
        if tokens > most:
            found.append(f"{area} has {tokens:,} tokens, above {most:,}")
    for path, size in sizes.items():
        if not path.startswith("beam_dpne/"):
            continue
        if size.lines > LONGEST:
            found.append(f"{path} has {size.lines} lines, above {LONGEST}")
        if size.code_lines >= LEAST_LINES and round(size.density, 1) > DENSEST:
            found.append(
                f"{path} has {size.density:.1f} tokens a line, above {DENSEST}: say it in more lines"
            )
    return found


def main() -> int:
    """Prints the sizes of all areas; returns 1 if something is above its number."""
    paths = [path for area in MOST_TOKENS for path in sorted((ROOT / area).rglob("*.py"))]
    sizes = {path.relative_to(ROOT).as_posix(): size_of(path.read_text("utf-8")) for path in paths}
    for area in MOST_TOKENS:
        own = [size for path, size in sizes.items() if path.startswith(f"{area}/")]
        tokens = sum(size.tokens for size in own)
        lines = sum(size.code_lines for size in own)
        print(f"{area}: {tokens:,} tokens in {lines:,} code lines of {len(own)} modules")
    found = faults(sizes)
    print("\n".join(found))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
