"""The keywords of the calls for type checkers: `python docs/make_calls.py` writes them into a stub.

The stub is committed, since an installed package has it; a test holds it to the parameters.
"""

import pathlib

from beam_dpne.api import calls
from beam_dpne.api.keywords import CALLS, Call
from beam_dpne.validation import Parameter

STUB = pathlib.Path(calls.__file__).with_suffix(".pyi")
# The positional arguments of each call, and what it returns.
_SHAPES = {
    "release_ngrams": ("frame: _Frame, /", "Release"),
    "release_items": ("frame: _Frame, /", "Release"),
    "estimate_probabilities": ("frame: _Frame, /", "Release"),
    "count_phrases": ("frame: _Frame, /", "Release"),
    "check": ("frame: _Frame, /", "Checked"),
    "evaluate": ("release: Release | _Path, frame: _Frame, /", "Evaluated"),
    "plan": (
        "plan: NgramsPlan | SetUnionPlan | PhraseCountsPlan | ProbabilitiesPlan, /",
        "Planned",
    ),
    "account": ("*releases: Release | _Path", "Accounted"),
}
_PLANS = {
    "release_ngrams": "NgramsPlan",
    "release_items": "SetUnionPlan",
    "estimate_probabilities": "ProbabilitiesPlan",
    "count_phrases": "PhraseCountsPlan",
}
_BEGINNING = '''"""The calls with their keywords, which `docs/make_calls.py` writes here."""

import os
from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

import pyarrow as pa

from beam_dpne.bayesian.plan import ProbabilitiesPlan
from beam_dpne.documents.tokenizers import Tokenizer
from beam_dpne.jobs.accounting import Accounted
from beam_dpne.jobs.checking import Checked
from beam_dpne.jobs.evaluating import Evaluated
from beam_dpne.jobs.planning import Planned
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams.plan import NgramsPlan
from beam_dpne.phrase_counts.plan import PhraseCountsPlan
from beam_dpne.release.whole import Release
from beam_dpne.set_union.plan import SetUnionPlan

class _ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

_Path = str | os.PathLike[str]
_Frame = _ArrowStream | Iterable[pa.RecordBatch] | _Path | Sequence[_Path]
'''
_OBJECTS = {
    "tokenizer": "Tokenizer",
    "run_key": "RunKey",
    "phrases": "Iterable[str] | _ArrowStream",
}


def type_of(call: Call, keyword: str, each: Parameter) -> str:
    """Returns the type of a keyword."""
    if keyword == "plan":
        return f"{_PLANS[call.name]} | _Path | None"
    member = "_Path" if each.path else each.kind.__name__
    if each.choices:
        member = f"Literal[{', '.join(map(repr, each.choices))}]".replace("'", '"')
    types = []
    if each.several and not each.single and each.has_commas:
        types.append("str")
    if each.single:
        types.append(member)
    if each.several:
        types.append(f"Sequence[{member}]")
    if keyword in call.objects:
        types.append(_OBJECTS[keyword])
    if each.optional or (each.required and not call.needs(keyword)):
        types.append("None")
    return " | ".join(types)


def _default(call: Call, keyword: str, each: Parameter) -> str:
    if call.needs(keyword):
        return ""
    if isinstance(each.default, str):
        return f' = "{each.default}"'
    return f" = {each.default!r}"


def stub() -> str:
    """Returns the stub, which a formatter has to format."""
    lines = [_BEGINNING]
    for name, (positional, result) in _SHAPES.items():
        call = CALLS[name]
        star = "" if positional.startswith("*") else "*,"
        lines.append(f"def {name}({positional}, {star}")
        for keyword, each in call.keywords.items():
            kind = type_of(call, keyword, each)
            lines.append(f"    {keyword}: {kind}{_default(call, keyword, each)},")
        lines.append(f") -> {result}: ...")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
