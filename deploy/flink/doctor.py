"""`python3 -m deploy.flink doctor`: whether a cluster that is there runs our jobs, line by line.

Everything is read, except that one small job without data is run (the canary) and, with
--temp_location, one file is written and deleted.
"""

import argparse
import contextlib
import dataclasses
import logging
import platform
import re
import secrets
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
import grpc
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from beam_dpne import engines
from beam_dpne.errors import EngineError
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.version import __version__
from deploy.downloads import versions
from deploy.flink import asking, checks, class_paths, probe
from deploy.flink.checks import Finding

_STYLES = {"ok": "green", "limited": "yellow", "missing": "bold red", "unknown": "cyan"}
# Words in the errors of a canary, each with its meaning. The first word that is found decides.
_CAUSES = (
    (
        "No module named 'apache_beam'",
        "the workers' Python has no apache-beam.",
        "Install the launcher's version there, for the `python` that is first in the pool's PATH.",
    ),
    (
        "No module named",
        "the workers' Python lacks a module.",
        "Install the launcher's packages there, for the `python` that is first in the pool's PATH.",
    ),
    (
        "Insufficient number of network buffers",
        "Flink has too few network buffers.",
        "See the line on network buffers.",
    ),
    (
        "Could not acquire the minimum required resources",
        "Flink found no slot in time.",
        "See the line on slots.",
    ),
    (
        "NoResourceAvailableException",
        "Flink found no slot in time.",
        "See the line on slots.",
    ),
    (
        "Cannot run program",
        "a TaskManager cannot start a program that the environment needs, such as docker.",
        "Give --environment_type EXTERNAL with a pool of workers beside each TaskManager.",
    ),
    (
        "code()",
        "the workers' Python is of another minor version than the launcher's.",
        f"Use Python {platform.python_version()} in both places.",
    ),
    (
        "UNAVAILABLE",
        "a TaskManager does not reach the pool of workers.",
        "Start `python -m beam_dpne.engines.worker_pool --service_port=50000` beside "
        "each TaskManager. --environment_config is the pool's address as a TaskManager sees it.",
    ),
)
# A TaskManager's class path stands in the first lines of its log. Flink sends the whole log to the
# JobManager for it, so that only a few are asked for.
_LOG_BYTES = 1 << 18
_MOST_LOGS = 4
_REFUSED = re.compile(r"Connection refused: ([\w.:/\[\]-]+)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Given:
    """What the doctor looks at.

    Attributes:
      flink_master: address of Flink's REST interface.
      job_endpoint: address of Beam's job server; None for none.
      environment_type: kind of the workers' environment.
      environment_config: address of the pool of workers, or what the kind asks for; None for none.
      parallelism: tasks of each stage.
      temp_location: folder that launcher and workers share; None for none.
      harness_timeout: seconds in which the canary must have ended.
      timeout: seconds in which each service must answer.
      plan: a plan with the lengths, rounds and strategy of the job.
    """

    flink_master: str
    job_endpoint: str | None
    environment_type: str
    environment_config: str | None
    parallelism: int
    temp_location: str | None
    harness_timeout: int
    timeout: float
    plan: PrivacyPlan

    @property
    def beam_options(self) -> list[str]:
        """Beam's options of a job, as the launcher gives them."""
        config = self.environment_config
        return [
            "--runner=PortableRunner",
            f"--job_endpoint={self.job_endpoint}",
            f"--environment_type={self.environment_type}",
            *([f"--environment_config={config}"] if config is not None else []),
            f"--parallelism={self.parallelism}",
            f"--flink_master={self.flink_master}",
            *engines.FLINK_OPTIONS,
        ]


def main(given: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Prints a line for each thing; returns 0 if a job would run, 1 if not."""
    try:
        wanted = _wanted(given)
    except ValueError as error:
        parser.error(str(error))
    console = Console(soft_wrap=True, highlight=False)
    findings = []
    for finding in look(wanted):
        findings.append(finding)
        _show(console, finding)
    return _conclude(console, findings)


def look(given: Given) -> Iterator[Finding]:
    """Yields a line for each thing that can be looked at, Flink's first, and the canary's last."""
    flink = yield from _flink(given)
    if given.job_endpoint is None:
        yield Finding(
            "Job server",
            "unknown",
            "no --job_endpoint was given, so that no job was tried.",
            "Start one where Flink can be reached, also on your own machine "
            "(docs/engines.md), and give its address.",
        )
        return
    served = _job_server(given)
    yield served
    if flink and served.status == "ok":
        yield from _canary(given, task_managers=flink)


def _flink(given: Given) -> Iterator[Any]:
    """Yields what Flink's REST interface says; returns the number of TaskManagers, 0 without Flink."""

    def ask(path: str) -> Any:
        return asking.flink(given.flink_master, path, timeout=given.timeout)

    subject = "Flink's REST interface"
    try:
        config = ask("/config")
        if not isinstance(config, dict) or "flink-version" not in config:
            raise asking.NoAnswerError("It answers /config over HTTP, but not as Flink does.")
        environment = _optional(ask, "/jobmanager/environment")
        settings = checks.settings_of(ask("/jobmanager/config"))
        task_managers = ask("/taskmanagers")["taskmanagers"]
    except (asking.NoAnswerError, LookupError, TypeError) as error:
        text = f"{error}" if isinstance(error, asking.NoAnswerError) else "It answers strangely."
        yield Finding(
            subject,
            "missing",
            f"no Flink was found at {given.flink_master}. {text}",
            "Give the address of the JobManager's web page; its port is rest.port (8081).",
        )
        return 0
    yield Finding(subject, "ok", f"{given.flink_master} answers.")
    flink, tried = str(config["flink-version"]), versions()
    yield checks.flink_version(config, tried["FLINK_VERSION"])
    yield class_paths.beam_jars(environment, tried["BEAM_FLINK_VERSION"], flink)
    if task_managers:
        logs = [_log(given, str(one["id"])) for one in task_managers[:_MOST_LOGS]]
        yield class_paths.flow_control(environment, logs, task_managers)
    yield checks.class_loading(settings)
    yield checks.slots(task_managers, given.parallelism)
    if task_managers:
        yield checks.process_memory(task_managers)
        yield checks.heap(task_managers)
        yield checks.managed_memory(task_managers, given.plan)
        yield checks.network_memory(task_managers, settings, given.plan)
    yield checks.stack(environment, given.plan)
    yield from checks.failures(settings)
    return len(task_managers)


def _optional(ask, path: str) -> Any:
    try:
        return ask(path)
    except asking.NoSuchPageError:
        return None


def _log(given: Given, task_manager: str) -> str | None:
    """Returns the beginning of a TaskManager's log, or None if Flink does not give it."""
    path = f"/taskmanagers/{urllib.parse.quote(task_manager)}/log"
    with contextlib.suppress(asking.NoAnswerError):
        return asking.beginning(given.flink_master, path, timeout=given.timeout, most=_LOG_BYTES)
    return None


def _job_server(given: Given) -> Finding:
    endpoint, subject = str(given.job_endpoint), "Job server"
    try:
        options = asking.job_service(endpoint, timeout=given.timeout)
    except asking.NoAnswerError as error:
        return Finding(
            subject,
            "missing",
            f"no job server of Beam was found at {endpoint}. {error}",
            "Start Beam's job server for Flink (docs/engines.md), and give its --job-port (8099).",
        )
    if "flink_master" not in options:
        return Finding(
            subject,
            "missing",
            f"{endpoint} is a job server of Beam, and not the one for Flink.",
            "Start org.apache.beam.runners.flink.FlinkJobServerDriver.",
        )
    return Finding(
        subject,
        "ok",
        f"{endpoint} answers, and is for Flink. It does not report its version; its jars must be of "
        "the version of those in Flink's lib.",
    )


def _canary(given: Given, *, task_managers: int) -> Iterator[Finding]:
    """Runs the canary, and yields what it shows."""
    try:
        with _shared_file(given.temp_location) as file:
            yield from _run_canary(given, file, task_managers)
    except _StorageError as error:
        yield Finding(
            "Shared storage",
            "missing",
            f"the launcher cannot write in {given.temp_location}: {error}.",
            "Give a folder or bucket that exists, and the right to write in it.",
        )


def _run_canary(given: Given, file: str | None, task_managers: int) -> Iterator[Finding]:
    name = probe.job_name()
    options = PipelineOptions([*given.beam_options, f"--job_name={name}"])
    options.view_as(PortableOptions).job_server_timeout = max(30, int(given.timeout))
    begin = time.monotonic()
    try:
        with _quiet():
            pipeline = probe.build(options, parallelism=given.parallelism, file=file)
            result = engines.run_first(pipeline, given.harness_timeout)
            reports = probe.reports(result)
    except (EngineError, RuntimeError, ValueError, OSError, grpc.RpcError) as error:
        yield _failed(given, name, error)
        return
    took = time.monotonic() - begin
    yield Finding("Canary", "ok", f"a job of three stages without data ran in {took:.0f} s.")
    job = _job_at_flink(given, name)
    if job is None:
        yield Finding(
            "planner.jar",
            "unknown",
            f"Flink at {given.flink_master} had no job {name}: the job server sends jobs to another "
            "Flink, so that the launcher cannot cancel them.",
            "Give --flink_master the address with which the job server was started.",
        )
    else:
        yield checks.planner(job, given.plan)
        yield from checks.job_settings(job)
    launcher = (platform.python_version(), beam.__version__, __version__)
    yield checks.versions(reports, launcher)
    yield checks.kept_harnesses(reports, task_managers)
    yield checks.storage(reports, given.temp_location)


def _failed(given: Given, name: str, error: Exception) -> Finding:
    """Says why the canary failed, as far as the error or Flink tell."""
    told = f"{error}\n{_exceptions_at_flink(given, name)}"
    config = given.environment_config
    where = f"environment_type={given.environment_type}, environment_config={config}"
    refused = _REFUSED.search(told)
    where += f"; connection refused at {refused.group(1)}" if refused else ""
    for words, cause, advice in _CAUSES:
        if words in told:
            return Finding("Canary", "missing", f"{cause} ({where})", advice)
    if "within" in str(error) and isinstance(error, EngineError):
        cause = (
            f"no worker had done it within {given.harness_timeout} s; it was cancelled. ({where})"
        )
        advice = (
            "Look at the log of the worker pool beside a TaskManager: it shows why Python does not "
            "start. A first job on a busy cluster may need --harness_timeout 300."
        )
        return Finding("Canary", "missing", cause, advice)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    cause = (lines or [type(error).__name__])[0][:300]
    return Finding(
        "Canary",
        "missing",
        f"the job failed ({where}): {cause}",
        "The job holds no data, so its logs at the job server and at Flink may be shown to anybody.",
    )


def _job_at_flink(given: Given, name: str) -> Any:
    """Returns /jobs/ID/config of the canary, or None if Flink does not know it."""
    with contextlib.suppress(asking.NoAnswerError, LookupError, TypeError):
        jobs = asking.flink(given.flink_master, "/jobs/overview", timeout=given.timeout)["jobs"]
        found = [job["jid"] for job in jobs if job["name"] == name]
        path = f"/jobs/{found[0]}/config"
        return asking.flink(given.flink_master, path, timeout=given.timeout)
    return None


def _exceptions_at_flink(given: Given, name: str) -> str:
    with contextlib.suppress(asking.NoAnswerError, LookupError, TypeError):
        jobs = asking.flink(given.flink_master, "/jobs/overview", timeout=given.timeout)["jobs"]
        found = [job["jid"] for job in jobs if job["name"] == name]
        path = f"/jobs/{found[0]}/exceptions"
        return str(asking.flink(given.flink_master, path, timeout=given.timeout))
    return ""


class _StorageError(Exception):
    """The launcher cannot write its file; the message is the reason."""


@contextlib.contextmanager
def _shared_file(folder: str | None) -> Iterator[str | None]:
    """Gives the path of a small file in a folder, and deletes it in the end; None without a folder."""
    if folder is None:
        yield None
        return
    path = FileSystems.join(folder, f".beam_dpne-doctor-{secrets.token_hex(4)}")
    if "://" not in folder and not FileSystems.exists(folder):  # Beam would make it.
        raise _StorageError("there is no such folder")
    try:
        with FileSystems.create(path) as file:
            file.write(b"The doctor of deploy.flink looks whether workers see this file.\n")
    except Exception as error:
        raise _StorageError(str(error).rstrip(".") or type(error).__name__) from None
    try:
        yield path
    finally:
        FileSystems.delete([path])


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences logs of Beam, which has tracebacks of jobs in them."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _show(console: Console, finding: Finding) -> None:
    """Prints a finding: in columns on a terminal, and else one line for it and one for the advice."""
    if not console.is_terminal:
        console.print(f"{finding.status:8}{finding.subject}: {finding.text}", markup=False)
        if finding.advice:
            console.print(f"{'':8}-> {finding.advice}", markup=False)
        return
    style = _STYLES[finding.status]
    table = Table.grid(padding=(0, 1))
    table.add_column(width=7)
    table.add_column(width=24)
    table.add_column(ratio=1)
    advice = f"\n[dim]→ {escape(finding.advice)}[/]" if finding.advice else ""
    table.add_row(
        f"[{style}]{finding.status}[/]",
        escape(finding.subject),
        escape(finding.text) + advice,
    )
    table.expand = True
    console.print(Padding(table, (0, 0)), soft_wrap=False)


def _conclude(console: Console, findings: Sequence[Finding]) -> int:
    """Prints whether a job would run, and returns the exit status."""
    of = {status: [one for one in findings if one.status == status] for status in _STYLES}
    ran = any(one.subject == "Canary" and one.status == "ok" for one in findings)
    if of["missing"]:
        names = ", ".join(one.subject for one in of["missing"])
        text, style, status = f"A job would not run. Missing: {names}.", _STYLES["missing"], 1
    elif not ran:
        text = "Whether a job would run is not known, since no job was tried."
        style, status = _STYLES["unknown"], 1
    elif of["limited"]:
        names = ", ".join(one.subject for one in of["limited"])
        text, style, status = f"A job would run, with limits: {names}.", _STYLES["limited"], 0
    else:
        text, style, status = "A job would run.", _STYLES["ok"], 0
    console.print(f"[{style}]{escape(text)}[/]")
    return status


def _wanted(given: argparse.Namespace) -> Given:
    """Checks the options.

    Raises:
      ValueError: A value is wrong; the message names the option.
    """
    bare = given.flink_master.removeprefix("http://").removeprefix("https://").rstrip("/")
    for option, address in (("flink_master", bare), ("job_endpoint", given.job_endpoint)):
        if address is not None:
            try:
                asking.split(address)
            except ValueError as error:
                raise ValueError(f"--{option} {error}") from None
    kind = given.environment_type.upper()
    if kind not in {"DOCKER", "PROCESS", "EXTERNAL", "LOOPBACK"}:
        raise ValueError(
            "--environment_type must be EXTERNAL, DOCKER, PROCESS or LOOPBACK, got "
            f"{given.environment_type!r}."
        )
    if given.job_endpoint and kind == "EXTERNAL" and not given.environment_config:
        raise ValueError(
            "--environment_config is missing: --environment_type EXTERNAL needs the address of the "
            "pool of workers, such as localhost:50000."
        )
    return Given(
        flink_master=given.flink_master,
        job_endpoint=given.job_endpoint,
        environment_type=kind,
        environment_config=given.environment_config,
        parallelism=given.parallelism,
        temp_location=given.temp_location,
        harness_timeout=given.harness_timeout,
        timeout=given.timeout,
        plan=checks.plan_of(given.max_length, given.rounds, given.strategy),
    )
