"""A job at Flink, through Flink's REST interface, and the trigger of a task that waits for it."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
from airflow.sdk.exceptions import AirflowException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from beam_dpne.airflow.releases import delete_run_folder

FINISHED = "FINISHED"
_FINAL = frozenset({FINISHED, "CANCELED", "FAILED"})
# States that Flink does not know: it has forgotten the job, or does not answer any more.
FORGOTTEN, UNREACHABLE = "FORGOTTEN", "UNREACHABLE"
_TIMEOUT = 10.0


class FlinkJobTrigger(BaseTrigger):
    """Waits until a job at Flink has ended.

    Its one event has `state`, `job` and `folder`. The state is Flink's, FORGOTTEN if Flink does not
    know the job (any more), or UNREACHABLE if it has not answered for `patience` seconds.

    If a user stops the deferred task, it cancels the job, and deletes the run's temporary folder as far
    as the triggerer can reach it. Without this folder the job does not publish.

    Args:
      flink_master: Flink's REST interface, HOST:PORT.
      job: Id of the job at Flink.
      folder: Temporary folder of the run.
      poll_interval: Seconds between two questions.
      patience: Seconds without an answer after which it gives up.
    """

    def __init__(
        self,
        *,
        flink_master: str,
        job: str,
        folder: str,
        poll_interval: float = 10,
        patience: float = 600,
    ):
        super().__init__()
        self.flink_master = flink_master
        self.job = job
        self.folder = folder
        self.poll_interval = poll_interval
        self.patience = patience

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Returns the class and the arguments, with which the triggerer makes this trigger again."""
        names = ("flink_master", "job", "folder", "poll_interval", "patience")
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {name: getattr(self, name) for name in names},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yields one event when the job has ended."""
        state = await self._final_state()
        yield TriggerEvent({"state": state, "job": self.job, "folder": self.folder})

    async def on_kill(self) -> None:
        """Cancels the job, since a user has stopped the task."""
        async with self._client() as client:
            try:
                answer = await client.patch(f"/jobs/{self.job}", params={"mode": "cancel"})
                self.log.info("Flink was asked to cancel job %s: %s.", self.job, answer.status_code)
            except httpx.HTTPError as error:
                self.log.warning("Flink was not asked to cancel job %s: %s.", self.job, error)
        await asyncio.to_thread(delete_run_folder, self.folder)

    async def _final_state(self) -> str:
        answered = time.monotonic()
        async with self._client() as client:
            while True:
                try:
                    state = _state_in(await client.get(f"/jobs/{self.job}"))
                    answered = time.monotonic()
                except httpx.HTTPError as error:
                    self.log.warning("Flink does not answer: %s.", type(error).__name__)
                    state = None
                if state is not None:
                    return state
                if time.monotonic() - answered > self.patience:
                    return UNREACHABLE
                await asyncio.sleep(self.poll_interval)

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=_url(self.flink_master), timeout=_TIMEOUT)


def newest_job(flink_master: str, name: str) -> str:
    """Returns the id of the newest job of a name.

    Raises:
      AirflowException: There is none, or Flink does not answer.
    """
    jobs = _jobs_of(flink_master, name)
    if not jobs:
        raise AirflowException(f"Flink at {flink_master} has no job {name}.")
    return max(jobs, key=lambda job: job["start-time"])["jid"]


def cancel_jobs(flink_master: str, name: str) -> None:
    """Cancels the jobs of a name that have not ended.

    Raises:
      AirflowException: Flink does not answer, or with an error.
    """
    for job in _jobs_of(flink_master, name):
        if job["state"] not in _FINAL:
            url = f"{_url(flink_master)}/jobs/{job['jid']}"
            try:
                answer = httpx.patch(url, params={"mode": "cancel"}, timeout=_TIMEOUT)
                answer.raise_for_status()
            except httpx.HTTPError as error:
                raise _no_answer(flink_master, error) from None


def reason_of(flink_master: str, job: str) -> str:
    """Returns why a job has failed, without data: a message of beam-dpne, or a place to look at."""
    from beam_dpne.cli.failures import printable_reason

    try:
        answer = httpx.get(f"{_url(flink_master)}/jobs/{job}/exceptions", timeout=_TIMEOUT)
        found = answer.raise_for_status().json()
        entries = found.get("exceptionHistory", {}).get("entries", [])
        recorded = entries[0]["stacktrace"] if entries else found.get("root-exception") or ""
    except (httpx.HTTPError, ValueError, LookupError):
        return "Flink does not give a reason."
    return printable_reason(RuntimeError(recorded))


def _jobs_of(flink_master: str, name: str) -> list[dict[str, Any]]:
    """Returns what Flink knows of the jobs of a name.

    Raises:
      AirflowException: Flink does not answer, or with an error.
    """
    try:
        answer = httpx.get(f"{_url(flink_master)}/jobs/overview", timeout=_TIMEOUT)
        return [job for job in answer.raise_for_status().json()["jobs"] if job["name"] == name]
    except httpx.HTTPError as error:
        raise _no_answer(flink_master, error) from None


def _no_answer(flink_master: str, error: httpx.HTTPError) -> AirflowException:
    return AirflowException(f"Flink at {flink_master} does not answer: {error}")


def _state_in(answer: httpx.Response) -> str | None:
    """Returns the state of a job that has ended, or None."""
    if answer.status_code == httpx.codes.NOT_FOUND:
        return FORGOTTEN
    state = answer.raise_for_status().json()["state"]
    return state if state in _FINAL else None


def _url(flink_master: str) -> str:
    return flink_master if "://" in flink_master else f"http://{flink_master}"
