"""Pipelines of tests: Beam's own preparations are kept between them, and elements that they make.

On small data a pipeline's time is its construction: for each transform Beam builds an argument parser
for its options several times, inspects each method of each DoFn, and reads the source of each
function. The answers depend on classes, functions and command lines alone, so that they are the
same in every pipeline of a process. The pipelines that are built, and what they compute, do not change.
"""

import copy
import functools
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import PCollection
from apache_beam.transforms import core, userstate

_Options = TypeVar("_Options", bound=PipelineOptions)


def install() -> None:
    """Replaces the functions of Beam that ask again for what they know."""
    core.get_function_args_defaults = _once(core.get_function_args_defaults, _function_of)
    core._check_fn_use_yield_and_return = _once(core._check_fn_use_yield_and_return, _function_of)
    userstate.get_dofn_specs = _once(userstate.get_dofn_specs, _type_of)
    PipelineOptions.view_as = _view_as


def _once(read: Callable[[Any], Any], key: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Keeps what `read` answers for each key; answers that are tuples of sets or lists are copied."""
    known: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()

    def answer(subject):
        subject_key = key(subject)
        if subject_key is None:
            return read(subject)
        if subject_key not in known:
            known[subject_key] = read(subject)
        kept = known[subject_key]
        return tuple(map(copy.copy, kept)) if isinstance(kept, tuple) else kept

    return answer


def _function_of(method: object) -> types.FunctionType | None:
    return method.__func__ if isinstance(method, types.MethodType) else None


def _type_of(dofn: core.DoFn) -> type[core.DoFn] | None:
    # This one type wraps every callable, and a bound method has states and timers of its own.
    return None if isinstance(dofn, core.CallableWrapperDoFn) else type(dofn)


@functools.cache
def _parsed(options: type[PipelineOptions], flags: tuple[str, ...]) -> types.SimpleNamespace:
    return types.SimpleNamespace(**vars(options(list(flags))._visible_options))


def _view_as(self: PipelineOptions, cls: type[_Options]) -> _Options:
    """The view that `PipelineOptions.view_as` makes, but for the parser, which is built once."""
    flags = tuple(sys.argv[1:] if self._flags is None else self._flags)
    visible = copy.copy(_parsed(cls, flags))
    for name, value in vars(visible).items():
        if name not in self._all_options:
            self._all_options[name] = copy.copy(value)
    view = object.__new__(cls)
    vars(view).update(_flags=self._flags, _visible_options=visible, _all_options=self._all_options)
    return view


# The embedded runners' workers are threads of this process, so that a function of this module, which
# they find by its name, appends to lists that the test reads.
_lists: list[list] = []


def keep(collection: PCollection, label: str = "Keep") -> list:
    """Returns a list that has the elements of a collection after the pipeline has run."""
    _lists.append([])
    _ = collection | label >> beam.Map(_append, number=len(_lists) - 1)
    return _lists[-1]


def _append(element: object, number: int) -> None:
    _lists[number].append(element)
