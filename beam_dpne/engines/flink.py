"""What a launcher asks and tells Flink itself, through its REST interface.

The job server forgets a job that is cancelled, while Flink runs on, and does not say why Flink waits.
"""

import contextlib
import http.client
import json
import logging
import threading
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

from apache_beam.options.pipeline_options import FlinkRunnerOptions, PipelineOptions
from apache_beam.runners.runner import PipelineResult

from beam_dpne.errors import own_reason

# States in which a job at Flink has ended, and the seconds for which a launcher waits for Flink.
_FINAL = frozenset({"CANCELED", "FAILED", "FINISHED"})
_FLINK_SECONDS = 10
_SECONDS_BETWEEN_LOOKS = 5.0
_NO_TASK_MANAGERS = (
    "Flink has had no TaskManager for %s s, and the job waits for one. Start TaskManagers, and the job "
    "goes on. Interrupting this program cancels the job. If they ended for want of memory, cut a large "
    "compressed file into several, since one task reads the whole of it, and give more tasks by "
    "--parallelism."
)
_log = logging.getLogger(__name__)


def job_id(result: PipelineResult) -> str | None:
    """Returns the name that an engine has for a job, or None if it has none."""
    # That of a job server, or of Dataflow, where a template has no job.
    return getattr(result, "_job_id", None) or getattr(getattr(result, "_job", None), "id", None)


def flink_address(options: PipelineOptions) -> str | None:
    """Returns the address of Flink's REST interface, or None without --flink_master.

    >>> flink_address(FlinkRunnerOptions(["--flink_master=host:8081"]))
    'http://host:8081'
    """
    master = options.view_as(FlinkRunnerOptions).flink_master or ""
    if not master or master.startswith("["):
        return None
    return master if "://" in master else f"http://{master}"


@contextlib.contextmanager
def watched_at_flink(
    result: PipelineResult, options: PipelineOptions, seconds: float
) -> Iterator[None]:
    """Warns in the log when the job that runs in the block waits for TaskManagers.

    Flink waits for them for minutes after each of its restarts, of which there may be many, and says
    nothing. The job is not cancelled, since they may come.

    Args:
      result: The job.
      options: Those of its pipeline; without --flink_master nothing is watched.
      seconds: How long Flink may be without TaskManagers; 0 omits the watch.
    """
    address = flink_address(options)
    if address is None or not seconds:
        yield
        return
    has_ended = threading.Event()

    def watch() -> None:
        last_seen = time.monotonic()
        is_said = False
        while not has_ended.wait(_SECONDS_BETWEEN_LOOKS):
            if not _lacks_task_managers(address, result):
                last_seen = time.monotonic()
                is_said = False
            elif not is_said and time.monotonic() - last_seen >= seconds:
                _log.warning(_NO_TASK_MANAGERS, seconds)
                is_said = True

    threading.Thread(target=watch, name="TaskManagers", daemon=True).start()
    try:
        yield
    finally:
        has_ended.set()


def _lacks_task_managers(address: str, result: PipelineResult) -> bool:
    """Returns whether Flink says that it has no TaskManager, and that the job has not ended."""
    try:
        if _answer(f"{address}/taskmanagers")["taskmanagers"] != []:
            return False
        return any(job["state"] not in _FINAL for job in _jobs(address, result))
    except (OSError, LookupError):
        return False


def cancel_at_flink(result: PipelineResult, options: PipelineOptions) -> None:
    """Cancels the job at Flink.

    The job may be on its way from the job server to Flink, so this waits up to ten seconds for it. If
    several jobs have the same --job_name, the right one is not known, and none is cancelled.

    Raises:
      OSError: Flink does not answer.
    """
    address = flink_address(options)
    until = time.monotonic() + _FLINK_SECONDS
    while address and time.monotonic() < until:
        running = [job for job in _jobs(address, result) if job["state"] not in _FINAL]
        if len(running) == 1:
            url = f"{address}/jobs/{running[0]['jid']}?mode=cancel"
            request = urllib.request.Request(url, method="PATCH")
            urllib.request.urlopen(request, timeout=_FLINK_SECONDS).close()
            return
        time.sleep(0.5)


def failure_at_flink(result: PipelineResult, options: PipelineOptions) -> str | None:
    """Returns of what a job fails at Flink, which begins it again, if that is an error of ours."""
    address = flink_address(options)
    with contextlib.suppress(OSError, LookupError):
        for job in _jobs(address, result) if address else []:
            found = _answer(f"{address}/jobs/{job['jid']}/exceptions")
            return own_reason(RuntimeError(found["root-exception"]))
    return None


def _jobs(address: str, result: PipelineResult) -> list[dict[str, Any]]:
    """Returns the jobs at Flink whose name is the id at the job server without the last part."""
    name = (job_id(result) or "").rpartition("_")[0]
    return [job for job in _answer(f"{address}/jobs/overview")["jobs"] if job["name"] == name]


def _answer(url: str) -> dict[str, Any]:
    """Returns what Flink's REST interface answers.

    Raises:
      OSError: There is no answer, or it is that of something else, as the page of a proxy.
    """
    try:
        with urllib.request.urlopen(url, timeout=_FLINK_SECONDS) as response:
            found = json.load(response)
    except (ValueError, http.client.HTTPException):
        found = None
    if not isinstance(found, dict):
        raise OSError("This is no answer of Flink.")
    return found
