"""Flink's REST interface, as far as one watches a job through it."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

FINAL = frozenset({"FINISHED", "CANCELED", "FAILED"})


class Rest:
    """The REST interface of a JobManager.

    Attributes:
      address: host:port.
    """

    def __init__(self, address: str):
        self.address = address

    def get(self, path: str) -> Any:
        """Returns the JSON answer to a path such as `/jobs/overview`.

        Raises:
          OSError: if nobody answers, or with an error.
        """
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=10) as response:
            return json.load(response)

    def task_managers(self) -> Mapping[str, Mapping[str, Any]]:
        """Returns the registered TaskManagers by id; `freeSlots` and `slotsNumber` tell who works."""
        return {one["id"]: one for one in self.get("/taskmanagers")["taskmanagers"]}

    def jobs(self) -> Mapping[str, Mapping[str, Any]]:
        """Returns all jobs by id, the oldest first, each with `name`, `state` and `start-time` (ms)."""
        jobs = self.get("/jobs/overview")["jobs"]
        return {job["jid"]: job for job in sorted(jobs, key=lambda job: job["start-time"])}

    def job(self, job: str) -> Mapping[str, Any]:
        """Returns a job with its `vertices` (name, parallelism, status) and `timestamps` (ms)."""
        return self.get(f"/jobs/{job}")

    def exceptions(self, job: str) -> list[Mapping[str, Any]]:
        """Returns the failures that a job has had, restarts included, the newest first."""
        return self.get(f"/jobs/{job}/exceptions")["exceptionHistory"]["entries"]

    def cancel(self, job: str) -> None:
        """Cancels a job."""
        url = f"http://{self.address}/jobs/{job}?mode=cancel"
        urllib.request.urlopen(urllib.request.Request(url, method="PATCH"), timeout=10).close()


def task_counts(job: Mapping[str, Any]) -> Mapping[str, int]:
    """Returns the number of a job's vertices, and of their tasks (one for each parallel instance)."""
    vertices = job["vertices"]
    return {
        "vertices": len(vertices),
        "tasks": sum(vertex["parallelism"] for vertex in vertices),
    }


def until(found: Callable[[], T | None], *, timeout: float, what: str, interval: float = 0.2) -> T:
    """Asks until there is an answer that is neither None nor False, and returns it.

    Raises:
      TimeoutError: if there is none within `timeout` seconds.
    """
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        try:
            answer = found()
        except (OSError, urllib.error.URLError):
            answer = None
        if answer is not None and answer is not False:
            return answer
        time.sleep(interval)
    raise TimeoutError(f"{what} did not happen within {timeout:g} s.")
