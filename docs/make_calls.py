"""The keywords of the calls for type checkers: `python docs/make_calls.py` writes them into a stub.

The stub is committed, since an installed package has it; a test holds it to the parameters.
"""

import pathlib
from collections.abc import Mapping

from beam_dpne.api import calls, keywords
from beam_dpne.jobs.programs import PROGRAMS
from beam_dpne.validation import Parameter

STUB = pathlib.Path(calls.__file__).with_suffix(".pyi")
_CALLS = {
    "release_ngrams": "ngrams",
    "release_items": "set-union",
    "estimate_probabilities": "bayesian",
}
_BEGINNING = '''"""The calls with their keywords, which `docs/make_calls.py` writes here."""

import os
from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

import pyarrow as pa

from beam_dpne.bayesian.plan import ProbabilitiesPlan
from beam_dpne.documents.tokenizers import Tokenizer
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams.plan import NgramsPlan
from beam_dpne.release.whole import Release
from beam_dpne.set_union.plan import SetUnionPlan

class _ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

_Path = str | os.PathLike[str]
_Frame = _ArrowStream | Iterable[pa.RecordBatch] | _Path | Sequence[_Path]
'''
_OBJECTS = {"tokenizer": "Tokenizer", "run_key": "RunKey"}


def type_of(keyword: str, each: Parameter, plan: str) -> str:
    """Returns the type of a keyword."""
    if keyword == "plan":
        return f"{plan} | _Path | None"
    plain = "_Path" if each.path else each.kind.__name__
    member = plain
    if each.choices:
        member = f"Literal[{', '.join(map(repr, each.choices))}]".replace("'", '"')
    types = []
    if each.single:
        types.append(member)
    if each.several:
        types.append(f"Sequence[{member}]")
    if each.several and not each.single and each.has_commas:
        types.insert(0, "str")
    if keyword in _OBJECTS:
        types.append(_OBJECTS[keyword])
    if each.optional or (not keywords.is_required(keyword, each) and each.required):
        types.append("None")
    return " | ".join(types)


def _default(keyword: str, each: Parameter) -> str:
    if keywords.is_required(keyword, each):
        return ""
    if isinstance(each.default, str):
        return f' = "{each.default}"'
    return f" = {each.default!r}"


def stub(programs: Mapping[str, str] = _CALLS) -> str:
    """Returns the stub."""
    lines = [_BEGINNING]
    for call, program in programs.items():
        plan = PROGRAMS[program].plan.rpartition(":")[2]
        lines.append(f"def {call}(\n    frame: _Frame,\n    /,\n    *,")
        for name, each in keywords.keywords_of(program).items():
            lines.append(f"    {name}: {type_of(name, each, plan)}{_default(name, each)},")
        lines.append(") -> Release: ...")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
