"""DoFns that fail where a schedule says: they stand in for those of a pipeline's proto."""

import functools
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.internal import pickler
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.transforms import core

from tests.faults.schedules import BEFORE, BETWEEN, FINISH, SETUP, START, Schedule

_PAR_DO = common_urns.primitives.PAR_DO.urn
_schedules: dict[int, Schedule] = {}
_numbers = itertools.count()


def inject(pipeline: beam_runner_api_pb2.Pipeline, schedule: Schedule) -> dict[str, str]:
    """Replaces every DoFn of a pipeline's proto by one that fails where the schedule says.

    Returns:
      The labels of the steps whose code is of beam_dpne, with the full name of that code.
    """
    number = next(_numbers)
    _schedules[number] = schedule
    ours = {}
    for transform in pipeline.components.transforms.values():
        if transform.spec.urn != _PAR_DO:
            continue
        payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
        fn, *rest = pickler.loads(payload.do_fn.payload)
        code = code_name(fn)
        of_package = code.startswith("beam_dpne.")
        # Beam's own may keep state or be splittable, which a stand-in would have to show as well.
        if of_package or type(fn) is core.CallableWrapperDoFn:
            stand_in = FailingDoFn(fn, transform.unique_name, number)
            payload.do_fn.payload = pickler.dumps((stand_in, *rest))
            transform.spec.payload = payload.SerializeToString()
        if of_package:
            ours[transform.unique_name] = code
    schedule.begin(ours)
    return ours


def code_name(fn: beam.DoFn) -> str:
    """Module and name of the code that somebody gave to ParDo, Map, FlatMap, MapTuple, ..."""
    code: Any = type(fn)
    if isinstance(fn, core.CallableWrapperDoFn):
        code = getattr(fn._fn, "_argspec_fn", fn._fn)
        if code.__module__ == core.__name__ and "fn" in code.__code__.co_freevars:
            # MapTuple keeps the function in the closure of its own alone.
            code = code.__closure__[code.__code__.co_freevars.index("fn")].cell_contents
    while isinstance(code, functools.partial):
        code = code.func
    return f"{code.__module__}.{code.__qualname__}"


class FailingDoFn(beam.DoFn):
    """Does what another DoFn does, and asks the schedule at each point."""

    def __init__(self, inner: beam.DoFn, step: str, schedule: int) -> None:
        self._inner, self._step, self._schedule = inner, step, schedule

    def setup(self) -> None:
        self._inner.setup()
        self._reach(SETUP)

    def start_bundle(self) -> None:
        self._inner.start_bundle()
        self._reach(START)

    def process(self, element: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        self._reach(BEFORE)
        yield from self._interrupted(self._inner.process(element, *args, **kwargs))

    def finish_bundle(self) -> Iterator[Any]:
        yield from self._interrupted(self._inner.finish_bundle())
        self._reach(FINISH)

    def teardown(self) -> None:
        self._inner.teardown()

    def _interrupted(self, outputs: Iterable[Any] | None) -> Iterator[Any]:
        for output in outputs or ():
            yield output
            self._reach(BETWEEN)

    def _reach(self, point: str) -> None:
        _schedules[self._schedule].reach(self._step, point)

    def _inspect_process(self) -> Any:
        """Beam asks here which arguments `process` wants."""
        return core.get_function_arguments(self._inner, "process")
