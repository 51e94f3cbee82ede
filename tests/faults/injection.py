"""A fault at one point of one step of a pipeline.

The steps of a pipeline whose code is of beam_dpne are numbered in the order in which they were built,
so that a place from 0 to 1 names one of them whatever they are called.
"""

import contextlib
import functools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import apache_beam as beam
from apache_beam.internal import pickler
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms import core

SETUP, START, PROCESS, FINISH = POINTS = ("setup", "start_bundle", "process", "finish_bundle")
_PAR_DO = common_urns.primitives.PAR_DO.urn
_acts: list[Callable[[], object]] = []


class FaultyDoFn(beam.DoFn):
    """Does what another DoFn does; at one point, something happens first."""

    def __init__(self, inner: beam.DoFn, point: str) -> None:
        self._inner, self._point = inner, point

    def setup(self) -> None:
        self._reach(SETUP)
        self._inner.setup()

    def start_bundle(self) -> None:
        self._reach(START)
        self._inner.start_bundle()

    def process(self, element: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        self._reach(PROCESS)
        yield from self._inner.process(element, *args, **kwargs) or ()

    def finish_bundle(self) -> Iterator[Any]:
        self._reach(FINISH)
        yield from self._inner.finish_bundle() or ()

    def teardown(self) -> None:
        self._inner.teardown()

    def _reach(self, point: str) -> None:
        if point == self._point:
            _acts[-1]()

    def _inspect_process(self) -> Any:
        """Beam asks here which arguments `process` wants."""
        return core.get_function_arguments(self._inner, "process")


@contextlib.contextmanager
def fault_at(place: float, point: str, act: Callable[[], object]) -> Iterator[None]:
    """Within the block, pipelines on the embedded runner do something at one point of one step."""
    run = FnApiRunner.run_via_runner_api

    def run_with_fault(runner: FnApiRunner, pipeline: Any, options: Any) -> Any:
        steps = list(_our_steps(pipeline))
        transform, payload, fn, rest = steps[round(place * (len(steps) - 1))]
        payload.do_fn.payload = pickler.dumps((FaultyDoFn(fn, point), *rest))
        transform.spec.payload = payload.SerializeToString()
        return run(runner, pipeline, options)

    _acts.append(act)
    with mock.patch.object(FnApiRunner, "run_via_runner_api", run_with_fault):
        yield
    _acts.pop()


def _our_steps(pipeline: Any) -> Iterator[tuple[Any, Any, beam.DoFn, list[Any]]]:
    """The steps with code of beam_dpne: transform, decoded payload, DoFn and its other parts."""
    transforms = pipeline.components.transforms
    pending = list(pipeline.root_transform_ids)[::-1]
    while pending:
        transform = transforms[pending.pop()]
        pending += list(transform.subtransforms)[::-1]
        if transform.spec.urn == _PAR_DO:
            payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
            fn, *rest = pickler.loads(payload.do_fn.payload)
            if _module_of(fn).startswith("beam_dpne."):
                yield transform, payload, fn, rest


def _module_of(fn: beam.DoFn) -> str:
    """The module of the code that somebody gave to ParDo, Map, FlatMap and the like."""
    code: Any = type(fn)
    if isinstance(fn, core.CallableWrapperDoFn):
        code = getattr(fn._fn, "_argspec_fn", fn._fn)
    while isinstance(code, functools.partial):
        code = code.func
    return code.__module__


def main() -> None:
    """Runs `beam-dpne` with the arguments after a place and a point, where the process is killed."""
    from beam_dpne.cli.main import main as run

    with fault_at(float(sys.argv[1]), sys.argv[2], lambda: os.kill(os.getpid(), signal.SIGKILL)):
        sys.exit(run(sys.argv[3:]))
