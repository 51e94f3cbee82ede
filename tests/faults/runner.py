"""A runner that splits, retries and repeats bundles, as engines do, over Beam's embedded worker.

Everything a DoFn sees is Beam's: the worker, its data channel, state and coders. What differs from
the embedded runner is when bundles are run, how often, and that only one result of each is kept.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from apache_beam.coders.coder_impl import create_InputStream
from apache_beam.metrics import monitoring_infos
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.portability.fn_api_runner.fn_runner import BundleManager

from beam_dpne.cli.runners import EmbeddedRunner
from tests.faults import schedules
from tests.faults.injection import inject
from tests.faults.schedules import Schedule

Elements = Mapping[str, list[bytes]]
Outputs = list[tuple[tuple[bytes, str], bytes]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Disturbance:
    """What a runner does to bundles besides failing them.

    Attributes:
      seed: of splits, orders, delays and repetitions.
      bundles: parts that a stage's input is cut into, at most.
      workers: bundles run at the same time.
      attempts: of one bundle, until the run fails.
      twice: share of bundles that two workers run at the same time; one's result is thrown away.
      side_input_delay: seconds that a read of a side input takes, at most.
    """

    seed: int = 0
    bundles: int = 4
    workers: int = 2
    attempts: int = 1000
    twice: float = 0.0
    side_input_delay: float = 0.0


class FaultyRunner(EmbeddedRunner):
    """Runs a pipeline with faults by a schedule.

    Attributes:
      schedule: of the faults.
      disturbance: what else happens to bundles.
      steps: labels of our steps, with the names of their code, once a pipeline was run.
      twice: bundles that were run twice at the same time.
      parts: bundles in all.
      slow_reads: reads of side inputs that had to wait.
    """

    def __init__(self, schedule: Schedule, disturbance: Disturbance | None = None) -> None:
        super().__init__()
        self.schedule = schedule
        self.disturbance = disturbance or Disturbance()
        self.steps: dict[str, str] = {}
        self.twice = 0
        self.parts = 0
        self.slow_reads = 0
        self.random = random.Random(self.disturbance.seed)

    def run_via_runner_api(self, pipeline_proto: Any, options: Any) -> Any:
        self.steps = inject(pipeline_proto, self.schedule)
        return super().run_via_runner_api(pipeline_proto, options)

    def _execute_bundle(self, runner_execution_context: Any, *rest: Any) -> Any:
        self._slow_down(runner_execution_context.state_servicer)
        return super()._execute_bundle(runner_execution_context, *rest)

    def _schedule_ready_bundles(self, runner_execution_context: Any) -> None:
        """Stages whose inputs are there run in any order."""
        super()._schedule_ready_bundles(runner_execution_context)
        self.random.shuffle(runner_execution_context.queues.ready_inputs._q)

    def _get_bundle_manager(self, bundle_context_manager: Any) -> "_Bundles":
        return _Bundles(bundle_context_manager, self)

    def _slow_down(self, state: Any) -> None:
        """Lets the reads of side inputs wait, each for a time of its own."""
        if not self.disturbance.side_input_delay or "get_raw" in vars(state):
            return
        read = state.get_raw

        @functools.wraps(read)
        def read_slowly(*args: Any) -> Any:
            self.slow_reads += 1
            time.sleep(self.random.random() * self.disturbance.side_input_delay)
            return read(*args)

        state.get_raw = read_slowly


class _Bundles(BundleManager):
    """Runs one stage: cuts its input, runs the parts until each has a result, commits those."""

    def __init__(self, context: Any, runner: FaultyRunner) -> None:
        super().__init__(context, None, runner.get_cache_token_generator(static=False))
        self._runner = runner
        self._steps = [
            transform.unique_name
            for transform in context.stage.transforms
            if transform.unique_name in runner.steps
        ]
        self._idle: list[Any] = []
        self._tokens = threading.Lock()

    def process_bundle(
        self,
        inputs: Mapping[str, Any],
        expected_outputs: Any,
        fired_timers: Any,
        expected_output_timers: Any,
        dry_run: bool = False,
    ) -> Any:
        """As its base; no stage of ours has timers."""
        assert not fired_timers
        assert not expected_output_timers
        assert not dry_run
        elements = {name: self._elements(name, buffer) for name, buffer in inputs.items()}
        parts = cut(elements, self._runner.disturbance.bundles, self._runner.random)
        names = [f"{self.bundle_context_manager.stage.name} {place}" for place in range(len(parts))]
        self._runner.parts += len(parts)
        run = functools.partial(self._run_until_done, expected_outputs)
        try:
            with concurrent.futures.ThreadPoolExecutor(self._runner.disturbance.workers) as pool:
                done = list(pool.map(run, names, parts))
        finally:
            for worker in self._idle:
                worker.close()
        self._runner.random.shuffle(done)
        for _, outputs in done:
            for (buffer, transform), data in outputs:
                self.bundle_context_manager.get_buffer(buffer, transform).append(data)
        return _merged([result for result, _ in done]), []

    def _elements(self, name: str, buffer: Any) -> list[bytes]:
        coder = self.bundle_context_manager.get_input_coder_impl(name)
        return list(split_elements(b"".join(buffer), coder))

    def _run_until_done(self, expected: Any, name: str, part: Elements) -> tuple[Any, Outputs]:
        """Attempts a bundle until one attempt succeeds and its result is not lost."""
        for number in range(self._runner.disturbance.attempts):
            last = number + 1 == self._runner.disturbance.attempts
            schedules.attempt.bundle, schedules.attempt.number = name, number
            try:
                result = self._run_maybe_twice(expected, name, number, part)
            except Exception:
                self._runner.schedule.failed()
                if last:
                    raise
                continue
            if last or not self._runner.schedule.loses(self._steps):
                return result
        raise AssertionError("attempts must be at least 1")

    def _run_maybe_twice(
        self, expected: Any, name: str, number: int, part: Elements
    ) -> tuple[Any, Outputs]:
        disturbance = self._runner.disturbance
        if schedules.chance(disturbance.seed, "twice", name, number) >= disturbance.twice:
            return self._run_once(expected, part)

        def run_elsewhere() -> tuple[Any, Outputs]:
            schedules.attempt.bundle, schedules.attempt.number = name, number
            return self._run_once(expected, part)

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            both = [pool.submit(run_elsewhere) for _ in range(2)]
            concurrent.futures.wait(both)
        self._runner.twice += 1
        kept = schedules.chance(disturbance.seed, "kept", name, number) < 0.5
        first, second = both if kept else reversed(both)
        return second.result() if first.exception() else first.result()

    def _run_once(self, expected: Any, part: Elements) -> tuple[Any, Outputs]:
        """One attempt in a worker; a worker that has seen a fault is not used again."""
        with self._worker() as worker:
            context = _Uncommitted(self.bundle_context_manager, worker)
            plain: Any = BundleManager
            manager = plain(context, None, self._cache_token_generator)
            result, splits = manager.process_bundle(part, expected, {}, {})
        assert not splits
        assert not result.process_bundle.residual_roots
        return result, context.outputs

    @contextlib.contextmanager
    def _worker(self) -> Iterator[Any]:
        with self._tokens:
            worker = self._idle.pop() if self._idle else self._new_worker()
        try:
            yield worker
        except BaseException:
            worker.close()
            raise
        with self._tokens:
            self._idle.append(worker)

    def _new_worker(self) -> Any:
        manager = self.bundle_context_manager.execution_context.worker_handler_manager
        provision = manager._job_provision_info
        embedded: Any = worker_handlers.EmbeddedWorkerHandler
        return embedded(None, manager.state_servicer, provision, manager)


class _Uncommitted:
    """What an attempt sees of its stage: one worker, and buffers that nobody reads yet."""

    def __init__(self, context: Any, worker: Any) -> None:
        self._context = context
        self.worker_handlers = [worker]
        self.outputs: Outputs = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def get_buffer(self, buffer_id: bytes, transform_id: str) -> "_Append":
        return _Append(self.outputs, (buffer_id, transform_id))


class _Append:
    """Takes what an attempt writes to one buffer."""

    def __init__(self, outputs: Outputs, place: tuple[bytes, str]) -> None:
        self._outputs, self._place = outputs, place

    def append(self, data: bytes) -> None:
        self._outputs.append((self._place, data))


def split_elements(data: bytes, coder: Any) -> Iterator[bytes]:
    """The encoded elements of a stream, one by one."""
    stream = create_InputStream(data)
    while left := stream.size():
        coder.decode_from_stream(stream, True)
        yield data[len(data) - left : len(data) - stream.size()]


def cut(elements: Elements, most: int, chance: random.Random) -> Sequence[Elements]:
    """Shuffles elements, and cuts them at random borders into at most so many parts.

    Each part has all names, since a worker waits for each of its inputs; parts without elements are
    left out, unless there is no element at all.
    """
    parts: list[dict[str, list[bytes]]] = [
        {name: [] for name in elements} for _ in range(chance.randint(1, most))
    ]
    for name, values in elements.items():
        shuffled = chance.sample(values, len(values))
        borders = sorted(chance.randint(0, len(values)) for _ in parts[1:])
        for part, start, stop in zip(parts, [0, *borders], [*borders, len(values)], strict=True):
            part[name] = shuffled[start:stop]
    return [part for part in parts if any(part.values())] or parts[:1]


def _merged(results: Sequence[Any]) -> Any:
    """One response for all bundles of a stage; counters are added up."""
    infos = [info for result in results for info in result.process_bundle.monitoring_infos]
    return beam_fn_api_pb2.InstructionResponse(
        process_bundle=beam_fn_api_pb2.ProcessBundleResponse(
            monitoring_infos=monitoring_infos.consolidate(infos)
        )
    )
