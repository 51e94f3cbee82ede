"""Flink's REST interface, as far as a launcher needs it: cancelling a job, and its tracebacks."""

import json
import time
import urllib.request
from typing import Any

from apache_beam.options.pipeline_options import FlinkRunnerOptions, PipelineOptions
from apache_beam.runners.runner import PipelineResult

# States in which a job at Flink has ended, and the seconds for which this module waits for Flink.
_FINAL = frozenset({"CANCELED", "FAILED", "FINISHED"})
_SECONDS = 10


def flink_address(options: PipelineOptions) -> str | None:
    """Returns the address of Flink's REST interface, or None without --flink_master.

    >>> flink_address(FlinkRunnerOptions(["--flink_master=host:8081"]))
    'http://host:8081'
    """
    master = options.view_as(FlinkRunnerOptions).flink_master or ""
    if not master or master.startswith("["):
        return None
    return master if "://" in master else f"http://{master}"


def cancel_at_flink(result: PipelineResult, options: PipelineOptions) -> None:
    """Cancels the job at Flink.

    The job may be on its way from the job server to Flink, so this waits up to ten seconds for it. If
    several jobs have the same --job_name, the right one is not known, and none is cancelled.

    Raises:
      OSError: Flink does not answer.
    """
    address, until = flink_address(options), time.monotonic() + _SECONDS
    while address and time.monotonic() < until:
        running = [job for job in _jobs(address, result) if job["state"] not in _FINAL]
        if len(running) == 1:
            url = f"{address}/jobs/{running[0]['jid']}?mode=cancel"
            request = urllib.request.Request(url, method="PATCH")
            urllib.request.urlopen(request, timeout=_SECONDS).close()
            return
        time.sleep(0.5)


def failures_at_flink(result: PipelineResult | None, options: PipelineOptions) -> str:
    """Returns the tracebacks that Flink has recorded of a job, or "" without the address of Flink.

    Args:
      result: Result of the job; None if it was never submitted.
      options: Beam's options, with the address of Flink.

    Raises:
      OSError: Flink does not answer.
    """
    address = flink_address(options)
    jobs = _jobs(address, result) if address and result else []
    if not jobs:
        return ""
    newest = max(jobs, key=lambda job: job["start-time"])["jid"]
    entries = _get(f"{address}/jobs/{newest}/exceptions")["exceptionHistory"]["entries"]
    return "\n".join(f"{entry.get('taskName')}:\n{entry.get('stacktrace')}" for entry in entries)


def _jobs(address: str, result: PipelineResult) -> list[dict[str, Any]]:
    """Returns the jobs at Flink whose name is the id at the job server without the last part."""
    name = getattr(result, "_job_id", "").rpartition("_")[0]
    return [job for job in _get(f"{address}/jobs/overview")["jobs"] if job["name"] == name]


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=_SECONDS) as response:
        return json.load(response)
