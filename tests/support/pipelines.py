"""Pipelines of tests: Beam's own preparations are kept between them, and elements that they make.

On small data a pipeline's time is its construction: for each transform Beam builds an argument parser
for its options several times, inspects each method of each DoFn, and reads the source of each
function. The answers depend on classes, functions and command lines alone, so that they are the
same in every pipeline of a process. For each bundle Beam starts a thread that samples how long its
steps take, and another one that makes the steps. For each state that is read it looks through all
modules, since it leaves their globals out of the size of the state. None of this is done in tests. The
pipelines that are built, and what they compute, do not change.
"""

import bz2
import copy
import functools
import sys
import threading
import types
import weakref
from collections.abc import Callable
from concurrent import futures
from typing import Any, TypeVar

import apache_beam as beam
import objsize
from apache_beam.internal import cloudpickle_pickler
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import PCollection
from apache_beam.runners.worker import bundle_processor, statecache, statesampler
from apache_beam.transforms import core, userstate
from apache_beam.typehints import decorators
from apache_beam.typehints.decorators import IOTypeHints

_Options = TypeVar("_Options", bound=PipelineOptions)


def install() -> None:
    """Replaces the functions of Beam that ask again for what they know, and those that measure."""
    decorators.get_signature = core.get_signature = _once(core.get_signature, _function_of)
    core.get_function_args_defaults = _once(core.get_function_args_defaults, _function_of)
    core._check_fn_use_yield_and_return = _once(core._check_fn_use_yield_and_return, _code_of)
    userstate.get_dofn_specs = _once(userstate.get_dofn_specs, _specs_of)
    IOTypeHints.from_callable = staticmethod(_once(IOTypeHints.from_callable, _function_of))
    # Where hints of types come from is told in messages alone.
    IOTypeHints._make_origin = staticmethod(lambda bases, tb=True, msg=(): [])
    PipelineOptions.view_as = _view_as
    # The best compression takes longer to set up than these pickles to write.
    cloudpickle_pickler.bz2 = types.SimpleNamespace(
        compress=lambda data, compresslevel: bz2.compress(data, 1), decompress=bz2.decompress
    )
    sizes = functools.partial(objsize.get_deep_size, exclude_modules_globals=False)
    statecache.objsize = types.SimpleNamespace(get_deep_size=sizes)
    bundle_processor.concurrent = types.SimpleNamespace(
        futures=types.SimpleNamespace(ThreadPoolExecutor=_AtOnce, TimeoutError=TimeoutError)
    )
    statesampler.StateSampler.start = _start
    statesampler.StateSampler.stop = _stop


def _once(read: Callable[[Any], Any], key: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Keeps what `read` answers for each key; answers that are tuples of sets or lists are copied."""
    known: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()

    def answer(subject):
        subject_key = key(subject)
        if subject_key is None:
            return read(subject)
        # A method has one parameter less than its function.
        answers = known.setdefault(subject_key, {})
        kind = type(subject)
        if kind not in answers:
            answers[kind] = read(subject)
        kept = answers[kind]
        return tuple(map(copy.copy, kept)) if type(kept) is tuple else kept

    return answer


def _function_of(subject: object) -> types.FunctionType | None:
    function = subject.__func__ if isinstance(subject, types.MethodType) else subject
    return function if isinstance(function, types.FunctionType) else None


def _code_of(subject: object) -> types.CodeType | None:
    function = _function_of(subject)
    return None if function is None else function.__code__


def _specs_of(dofn: core.DoFn) -> object:
    """What the states and timers of a DoFn depend on: its type, or the method that it wraps."""
    if isinstance(dofn, core.CallableWrapperDoFn) and isinstance(dofn.process, types.MethodType):
        return _function_of(dofn.process)
    return type(dofn)


class _AtOnce(futures.Executor):
    """Calls functions when they are submitted, in this thread."""

    def __init__(self, **_: object):
        pass

    def submit(self, fn, /, *args, **kwargs):
        future = futures.Future()
        future.set_result(fn(*args, **kwargs))
        return future


def _start(self: statesampler.StateSampler) -> None:
    """`StateSampler.start` without its thread: times are zero."""
    self.tracked_thread = threading.current_thread()
    statesampler.set_current_tracker(self)
    self.started = True


def _stop(self: statesampler.StateSampler) -> None:
    statesampler.set_current_tracker(None)
    self.finished = True


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
