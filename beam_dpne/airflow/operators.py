"""Operators that start a program on the Airflow worker, for the embedded runner and for Flink."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from airflow.configuration import conf
from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.sdk.exceptions import AirflowException

from beam_dpne.airflow.base import Release
from beam_dpne.airflow.flink import FINISHED, FlinkJobTrigger, cancel_jobs, newest_job, reason_of
from beam_dpne.airflow.options import ENDS_BEFORE_JOB, TABLES, is_template
from beam_dpne.airflow.releases import delete_run_folder, find_ledger
from beam_dpne.cli.options import options_of

# Seconds in which a program that was terminated cancels its job at an engine.
_CANCELLING = 30
_BEAM_OPTION = re.compile("[A-Za-z][A-Za-z0-9_]*")


class ReleaseOperator(Release):
    """Publishes a release with Beam's embedded runner, in a process of the Airflow worker.

    Args:
      python: Python with beam-dpne, which runs the program. None stands for the worker's environment
        variable `BEAM_DPNE_PYTHON`, or else for Airflow's own Python.
      beam_options: Options of Beam by name. Those of the program are refused.
      kwargs: Fields of `Release`.

    Raises:
      ValueError: A field is wrong.
    """

    template_fields = (*Release.template_fields, "python", "beam_options")
    # Options of Beam that the operator decides.
    decided: Mapping[str, Any] = {}

    def __init__(
        self,
        *,
        python: str | None = None,
        beam_options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.python = python
        self.beam_options = beam_options
        self.process = SubprocessHook()
        self._beam_arguments()

    def command(self, context: Mapping[str, Any]) -> list[str]:
        """Returns the command that a try runs."""
        return [
            *self._interpreter(),
            "beam_dpne.cli.main",
            self.program,
            *self._all_arguments(context),
        ]

    def start(self, context: Any) -> None:
        """Runs the program to its end."""
        self._run(self.command(context))

    def on_kill(self) -> None:
        """Terminates the program, which then cancels its job, and waits for its end."""
        self.stopped = True
        running = self.process.sub_process
        if running is None or running.poll() is not None:
            return
        self.process.send_sigterm()
        try:
            running.wait(timeout=_CANCELLING)
        except subprocess.TimeoutExpired:
            self.log.warning("The program has not ended %s s after SIGTERM.", _CANCELLING)

    def _run(self, command: list[str]) -> None:
        self._check_stopped()
        ended = self.process.run_command(command)
        if ended.exit_code:
            raise AirflowException(
                f"beam-dpne {self.program} ended with status {ended.exit_code}; the log above has its "
                "reason."
            )

    def _check_stopped(self) -> None:
        if self.stopped:
            raise AirflowException("The task was stopped, so nothing is started or left running.")

    def _interpreter(self) -> list[str]:
        return [self.python or os.environ.get("BEAM_DPNE_PYTHON") or sys.executable, "-m"]

    def _all_arguments(self, context: Mapping[str, Any]) -> list[str]:
        output = f"--output={self.directory(context)}"
        return [*self.arguments(), output, *self._beam_arguments(), *self._decided(context)]

    def _decided(self, context: Mapping[str, Any]) -> list[str]:
        """Returns the options of Beam that the operator decides."""
        return []

    def _beam_arguments(self) -> list[str]:
        """Returns the options of Beam as arguments.

        Raises:
          ValueError: One is the program's, or is decided by the operator.
        """
        if is_template(self.beam_options):
            return []
        ours = {option.name for option in options_of(TABLES[self.program])}
        found = []
        for name, value in (self.beam_options or {}).items():
            if (
                not _BEAM_OPTION.fullmatch(name)
                or name in ours
                or name in (*self.decided, "runner")
            ):
                raise ValueError(
                    "beam_options must be options of Beam that the operator leaves open, got "
                    f"{name!r}; give those of the program as fields or in options."
                )
            if value is True:
                found.append(f"--{name}")
            elif value is not None and value is not False:
                values = value if isinstance(value, list | tuple) else [value]
                found += [f"--{name}={one}" for one in values]
        return found


class FlinkReleaseOperator(ReleaseOperator):
    """Publishes a release on a Flink cluster, through Beam's job server.

    Input, output, run key and the run's temporary folder must be on storage that the Flink workers and
    the Airflow worker share. The temporary folder is beside the release, or in the option of Beam
    `temp_location`.

    If the task is not deferrable, the program waits on the Airflow worker for the job. A task that is
    killed terminates the program, which cancels the job at Flink. If the task is deferrable, the
    program ends when the job's workers have started, and the triggerer asks Flink for the job's state.
    If a user then stops the task, the triggerer cancels the job at Flink and deletes its temporary
    folder, without which the job does not publish.

    Args:
      job_endpoint: Beam's job server, HOST:PORT.
      flink_master: Flink's REST interface, HOST:PORT, as the Airflow worker and the triggerer reach it.
      environment_config: Pool of Beam workers as the TaskManagers reach it, HOST:PORT.
      parallelism: Tasks of each stage.
      deferrable: Whether the task waits for the job in the triggerer.
      poll_interval: Seconds between two questions to Flink.
      kwargs: Fields of `ReleaseOperator`.

    Raises:
      ValueError: A field is wrong.
    """

    template_fields = (
        *ReleaseOperator.template_fields,
        *("job_endpoint", "flink_master", "environment_config", "parallelism"),
    )
    decided: Mapping[str, Any] = {
        "environment_type": "EXTERNAL",
        # Stages run one after the other, so that there may be more tasks than slots.
        "execution_mode_for_batch": "BATCH",
        **dict.fromkeys(
            (
                *("job_endpoint", "flink_master", "environment_config", "parallelism"),
                *("job_name", "template_location", "environment_cache_millis"),
            )
        ),
    }

    def __init__(
        self,
        *,
        job_endpoint: str,
        flink_master: str,
        environment_config: str = "localhost:50000",
        parallelism: int | str = 2,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poll_interval: float = 10,
        **kwargs: Any,
    ):
        self.deferrable = deferrable
        self.without = ENDS_BEFORE_JOB if deferrable else {}
        super().__init__(**kwargs)
        self.job_endpoint = job_endpoint
        self.flink_master = flink_master
        self.environment_config = environment_config
        self.parallelism = parallelism
        self.poll_interval = poll_interval
        # Where the program writes the temporary folder of the job that it starts, and that folder.
        self._report: pathlib.Path | None = None
        self._folder: str | None = None
        self._name = ""

    def start(self, context: Any) -> None:
        """Runs the program to its end, or until its job's workers have started."""
        if not self.deferrable:
            super().start(context)
            return
        self._name = self.engine_name(context)
        self._folder = None
        with tempfile.TemporaryDirectory() as folder:
            self._report = pathlib.Path(folder) / "handed_over.json"
            try:
                self._run(
                    [
                        *self._interpreter(),
                        "beam_dpne.airflow.hand_over",
                        str(self._report),
                        self.program,
                        *self._all_arguments(context),
                    ]
                )
                self._folder = run_folder = self._reported()
                if run_folder is None:
                    raise AirflowException(
                        "The program has not said where its temporary folder is."
                    )
                job = newest_job(self.flink_master, self._name)
                self._check_stopped()
            except BaseException:
                self._abandon()
                raise
        trigger = FlinkJobTrigger(
            flink_master=self.flink_master,
            job=job,
            folder=run_folder,
            poll_interval=self.poll_interval,
        )
        self.defer(trigger=trigger, method_name="execute_complete")

    def execute_complete(self, context: Any, event: Mapping[str, Any]) -> dict[str, Any]:
        """Goes on when the job has ended: deletes its temporary folder, and checks the release."""
        delete_run_folder(event["folder"])
        if event["state"] != FINISHED and find_ledger(self.directory(context)) is None:
            # It may say how many records were rejected, so it is for the log and not for the exception,
            # which Airflow also sends to those whom it notifies.
            self.log.error("The job failed: %s", reason_of(self.flink_master, event["job"]))
            raise AirflowException(
                f"The job at Flink is {event['state']}; the log above has its reason."
            )
        return self.finish(context)

    def on_kill(self) -> None:
        """Terminates the program, which then cancels its job, or cancels the job that it has left."""
        super().on_kill()
        self._abandon()

    def _abandon(self) -> None:
        """Makes a job that the program has started publish nothing, and cancels it at Flink."""
        folder = self._folder or self._reported()
        if folder is None:
            return  # The program writes the report before it sends a job.
        try:
            delete_run_folder(folder)
        except Exception as error:
            self.log.warning("The temporary folder %s stays: %s.", folder, type(error).__name__)
        try:
            cancel_jobs(self.flink_master, self._name)
        except Exception as error:
            self.log.warning("Flink was not asked to cancel %s: %s", self._name, error)

    def _reported(self) -> str | None:
        """Returns the temporary folder of the job that the program starts, or None before it does."""
        try:
            return json.loads(self._report.read_text())["folder"] if self._report else None
        except (OSError, ValueError):
            return None

    def _decided(self, context: Mapping[str, Any]) -> list[str]:
        values = {
            **self.decided,
            "job_endpoint": self.job_endpoint,
            "flink_master": self.flink_master,
            "environment_config": self.environment_config,
            "parallelism": self.parallelism,
            "job_name": self.engine_name(context),
        }
        given = [f"--{name}={value}" for name, value in values.items() if value is not None]
        return ["--runner=PortableRunner", *given]
