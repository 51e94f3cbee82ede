"""Beam's embedded runner with two corrections: memory between stages, and workers in threads."""

import contextlib
import json
from typing import Any

from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

_NO_SENDING_BY_TIME = json.dumps({"data_buffer_time_limit_ms": -1}).encode()


class EmbeddedRunner(FnApiRunner):
    """Beam's embedded runner, which frees the last elements of a stage when the stage is done.

    Beam keeps the workers of each stage for another bundle, and with them the last element of each
    step, which here is a partition of users for each length. The embedded runner runs a stage in one
    bundle, so that the workers can be shut down after it. A future Beam without such a cache is left
    alone.

    With `--direct_running_mode multi_threading` Beam's own runner sends what a worker has written
    once a second, from another thread, also in the middle of an element whose coder is at work.
    The two parts cannot be decoded, and a large run failed now and then with a ValueError. Here
    elements are sent when the buffer is full, between two elements.
    """

    def run_via_runner_api(self, pipeline_proto: beam_runner_api_pb2.Pipeline, options: Any) -> Any:
        """Runs the pipeline, with workers in threads that never send part of an element."""
        for environment in pipeline_proto.components.environments.values():
            if environment.urn == python_urns.EMBEDDED_PYTHON_GRPC:
                environment.payload = _NO_SENDING_BY_TIME
        return super().run_via_runner_api(pipeline_proto, options)

    def _execute_bundle(
        self, runner_execution_context: Any, bundle_context_manager: Any, bundle_input: Any
    ) -> Any:
        result = super()._execute_bundle(
            runner_execution_context, bundle_context_manager, bundle_input
        )
        for handler in bundle_context_manager.worker_handlers:
            cache = getattr(handler, "bundle_processor_cache", None)
            for processors in list(getattr(cache, "cached_bundle_processors", {}).values()):
                with contextlib.suppress(IndexError):
                    while True:
                        processors.pop().shutdown()
        return result
