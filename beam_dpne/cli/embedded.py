"""The embedded runner, with memory that does not grow with the number of stages."""

import contextlib
from typing import Any

from apache_beam.runners.portability.fn_api_runner import FnApiRunner


class EmbeddedRunner(FnApiRunner):
    """Beam's embedded runner; it lets go of a stage's last elements when the stage is done.

    Beam keeps the workers of each stage for another bundle, and with them the last element that each
    step has seen: for us a partition of users for each length. The embedded runner runs a stage in
    one bundle, so nothing is lost by shutting them down. Where a future Beam has no such cache,
    nothing is done.
    """

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
