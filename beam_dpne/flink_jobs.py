"""Cancelling a job at Flink itself: Beam's job server only forgets it, and Flink would go on."""

import json
import time
import urllib.request
from typing import Any

from apache_beam.options.pipeline_options import FlinkRunnerOptions, PipelineOptions
from apache_beam.runners.runner import PipelineResult

_FINAL = frozenset({"CANCELED", "FAILED", "FINISHED"})
_SECONDS = 10


def flink_address(options: PipelineOptions) -> str | None:
    """Returns where Flink's REST interface is, http://host:port, None unless --flink_master says."""
    master = options.view_as(FlinkRunnerOptions).flink_master or ""
    if not master or master.startswith("["):
        return None
    return master if "://" in master else f"http://{master}"


def cancel_at_flink(result: PipelineResult, options: PipelineOptions) -> bool:
    """Cancels the job at Flink; returns whether that is known to have been done.

    The job may be on its way from the job server to Flink, so it is waited for, some seconds.

    Raises:
      OSError: if Flink does not answer.
    """
    address = flink_address(options)
    job = getattr(result, "_job_id", None)
    if address is None or job is None:
        return False
    name = job.rpartition("_")[0]  # The job server adds a UUID to the name that Flink knows.
    until = time.monotonic() + _SECONDS
    while not (found := _running(address, name)) and time.monotonic() < until:
        time.sleep(0.5)
    if len(found) != 1:  # Several of one --job_name: which is ours cannot be told.
        return False
    url = f"{address}/jobs/{found[0]}?mode=cancel"
    urllib.request.urlopen(urllib.request.Request(url, method="PATCH"), timeout=_SECONDS).close()
    return True


def _running(address: str, name: str) -> list[str]:
    jobs = _get(f"{address}/jobs/overview")["jobs"]
    return [job["jid"] for job in jobs if job["name"] == name and job["state"] not in _FINAL]


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=_SECONDS) as response:
        return json.load(response)
