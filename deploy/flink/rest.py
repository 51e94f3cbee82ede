"""Flink's REST interface, as far as one watches a job through it."""

import json
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any


class Rest:
    """The REST interface of a JobManager.

    Attributes:
      address: HOST:PORT, or with http:// or https:// before it.
    """

    def __init__(self, address: str):
        self.address = address

    def get(self, path: str, *, method: str = "GET") -> Any:
        """Returns the JSON answer to a path such as `/jobs/overview`.

        Raises:
          OSError: if nobody answers, or with an error.
          ValueError: if the answer is not JSON.
        """
        url = (self.address if "://" in self.address else f"http://{self.address}") + path
        request = urllib.request.Request(url, method=method)
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.loads(response.read() or b"null")

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

    def exceptions(self, job: str) -> Sequence[Mapping[str, Any]]:
        """Returns the failures that a job has had, restarts included, the newest first."""
        return self.get(f"/jobs/{job}/exceptions")["exceptionHistory"]["entries"]
