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


def cancel_at_flink(result: PipelineResult, options: PipelineOptions) -> bool:
    """Cancels the job at Flink; returns whether that certainly succeeded.

    The job may be on its way from the job server to Flink, so this waits up to ten seconds for it.

    Raises:
      OSError: Flink does not answer.
    """
    address = flink_address(options)
    name = _job_name(result)
    if address is None or name is None:
        return False
    until = time.monotonic() + _SECONDS
    while not (found := _running(address, name)) and time.monotonic() < until:
        time.sleep(0.5)
    if len(found) != 1:  # If several jobs have the same --job_name, the right one is not known.
        return False
    url = f"{address}/jobs/{found[0]}?mode=cancel"
    urllib.request.urlopen(urllib.request.Request(url, method="PATCH"), timeout=_SECONDS).close()
    return True


def failures_at_flink(result: PipelineResult | None, options: PipelineOptions) -> str:
    """Returns the tracebacks that Flink has recorded of a job, or "" without the address of Flink.

    Args:
      result: Result of the job; None if it was never submitted.
      options: Beam's options, with the address of Flink.

    Raises:
      OSError: Flink does not answer.
    """
    address, name = flink_address(options), _job_name(result)
    if address is None or name is None:
        return ""
    jobs = [job for job in _get(f"{address}/jobs/overview")["jobs"] if job["name"] == name]
    if not jobs:
        return ""
    newest = max(jobs, key=lambda job: job["start-time"])["jid"]
    found = _get(f"{address}/jobs/{newest}/exceptions")
    entries = found.get("exceptionHistory", {}).get("entries", [])
    texts = [f"{entry.get('taskName')}:\n{entry.get('stacktrace')}" for entry in entries]
    return "\n".join(texts or [found.get("root-exception") or ""])


def _job_name(result: PipelineResult | None) -> str | None:
    """Returns the name of a job at Flink, which is its id at the job server without the last part."""
    job = getattr(result, "_job_id", None)
    return job and job.rpartition("_")[0]


def _running(address: str, name: str) -> list[str]:
    """Returns the ids of the jobs at Flink with this name that have not ended."""
    jobs = _get(f"{address}/jobs/overview")["jobs"]
    return [job["jid"] for job in jobs if job["name"] == name and job["state"] not in _FINAL]


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=_SECONDS) as response:
        return json.load(response)
