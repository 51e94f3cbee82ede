"""What the doctor concludes from Flink's answers and from its canary: one small function for each line.

All functions are pure: they take decoded JSON of Flink's REST interface, or what harnesses reported,
and return findings. `deploy/flink/README.md` has the reasons of the numbers.
"""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from beam_dpne.engines import FLINK_OPTIONS
from beam_dpne.ngrams.plan import PrivacyPlan
from deploy.flink.probe import Report

Status = Literal["ok", "limited", "missing", "unknown"]
Json = Mapping[str, Any]

MIB = 1 << 20
# Flink divides managed memory among all sorts of a plan, two for each grouping, and a part must hold an
# element: they are cut at 4 MiB, and take a little more. Each round has a grouping, and so have the
# corpus and the numbers of users.
_SORT_MIB = 4.7
_GROUPINGS_BESIDE_ROUNDS = 2
# A vertex of a pipeline with n-grams writes up to so many results at a time (one for each vertex that
# reads it), each with taskmanager.network.sort-shuffle.min-buffers, and reads some.
_RESULTS_OF_ONE_ROUND = 5
_READ_BUFFERS = 256
_BUFFERS_BY_DEFAULT = 512
_SEGMENT_BYTES = 32 << 10
# The heap holds the output of a task twice; Java and Flink need about as much again.
_HEAP_PER_TEXT = 6
_PARTITION_MIB = 40
# Without planner.jar a plan of 14 rounds took 20 s of CPU time, one of 15 or 17 was not ready in 100 s.
_ROUNDS_UNPATCHED = 14
_PLANNER_MARK = "beam_dpne.planner"
# With Java's usual stack of 1 MiB a job graph of 26 rounds was sent, and one of 77 overflowed.
_ROUNDS_SHALLOW = 26


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of the doctor.

    Attributes:
      subject: what was looked at.
      status: "ok"; "limited" if a job runs within the limits that the text names; "missing" if a job
        would not run; "unknown" if it cannot be seen from outside.
      text: what was found.
      advice: what to do, or how to find out.
    """

    subject: str
    status: Status
    text: str
    advice: str = ""


def flink_version(answer: Json, wanted: str) -> Finding:
    """Compares the minor version of Flink, from /config, with the one that this package supports."""
    version = str(answer.get("flink-version"))
    if minor(version) == minor(wanted):
        return Finding("Flink version", "ok", f"{version}; {minor(wanted)} is supported.")
    return Finding(
        "Flink version",
        "missing",
        f"Flink is {version}; deploy/versions.env and its tests are for {minor(wanted)}.",
        f"Use a cluster of Flink {minor(wanted)}. If you cannot, a job server and jars of "
        f"beam-runners-flink-{minor(version)} may work, which was not tried here.",
    )


def class_loading(settings: Mapping[str, str]) -> Finding:
    """Looks at the order of class loading in the JobManager's settings."""
    order = settings.get("classloader.resolve-order", "child-first")
    if order == "parent-first":
        return Finding("Class loading", "ok", f"classloader.resolve-order is {order}.")
    return Finding(
        "Class loading",
        "limited",
        f"classloader.resolve-order is {order}: classes of Beam are loaded anew for each job and "
        "stage, and with them Python is started anew, even if lib has Beam's jars.",
        "Set classloader.resolve-order: parent-first on JobManager and TaskManagers. It cannot be set "
        "for a single job.",
    )


def slots(task_managers: Sequence[Json], parallelism: int) -> Finding:
    """Compares the slots, from /taskmanagers, with the parallelism of the job."""
    total = sum(one["slotsNumber"] for one in task_managers)
    free = sum(one["freeSlots"] for one in task_managers)
    if not total:
        return Finding(
            "Slots",
            "missing",
            "no TaskManager is registered at Flink.",
            "Start TaskManagers; their logs say why they do not find the JobManager. A cluster that "
            "starts them on demand (Kubernetes, YARN) has none between jobs: run a job, and ask again.",
        )
    text = (
        f"{count_of(len(task_managers), 'TaskManager')} with {count_of(total, 'slot')}, {free} of them "
        f"free, for --parallelism {parallelism}."
    )
    if not free:
        return Finding("Slots", "limited", text, "The job waits until another job has ended.")
    if parallelism < total:
        return Finding("Slots", "ok", text, f"--parallelism {total} would use all slots.")
    return Finding("Slots", "ok", text)


def managed_memory(task_managers: Sequence[Json], plan: PrivacyPlan) -> Finding:
    """Compares the managed memory of a slot with what the sorts of a plan need."""
    subject = "Managed memory"
    rounds = plan.round_count
    has = min(_of_slot(one, "managedMemory") for one in task_managers) / MIB
    need = math.ceil(2 * (_GROUPINGS_BESIDE_ROUNDS + rounds) * _SORT_MIB)
    text = f"{has:.0f} MiB for each slot; {_said(plan)} needs {need} MiB."
    fits = int(has / (2 * _SORT_MIB)) - _GROUPINGS_BESIDE_ROUNDS
    if fits >= rounds:
        return Finding(subject, "ok", text, f"It suffices for {fits} rounds in all.")
    return Finding(
        subject,
        "missing",
        f"{text} The job would fail with 'Record too large'.",
        f"Set taskmanager.memory.managed.size to {need}m for each slot. If you may not: "
        f"{_smaller(fits)}.",
    )


def network_memory(
    task_managers: Sequence[Json], settings: Mapping[str, str], plan: PrivacyPlan
) -> Finding:
    """Compares the network buffers of a slot with those that a stage's results need."""
    name = "taskmanager.network.sort-shuffle.min-buffers"
    least = int(settings.get(name, _BUFFERS_BY_DEFAULT))
    segment = _bytes(settings.get("taskmanager.memory.segment-size"), _SEGMENT_BYTES)
    longest = plan.max_length

    def of(job: PrivacyPlan) -> float:
        return (_results(job) * least + _READ_BUFFERS) * segment / MIB

    need = of(plan)
    has = min(_of_slot(one, "networkMemory") for one in task_managers) / MIB
    text = (
        f"{has:.0f} MiB for each slot; {_said(plan)} takes up to {need:.0f} MiB, with {least} buffers "
        "for each result of a stage."
    )
    if has >= need:
        return Finding("Network buffers", "ok", text)
    return Finding(
        "Network buffers",
        "missing",
        f"{text} The job may fail with 'Insufficient number of network buffers'.",
        f"Set {name}: 64, or taskmanager.memory.network.min and .max to {need:.0f}m for each slot. "
        "If you may not: --strategy one_round needs "
        f"{of(plan_of(longest, None, 'one_round')):.0f} MiB, and --rounds 1 "
        f"{of(plan_of(longest, 1, 'adaptive')):.0f} MiB.",
    )


def heap(task_managers: Sequence[Json]) -> Finding:
    """Says how much text a task may read, from the heap of a slot."""
    has = min(
        (one["memoryConfiguration"]["taskHeap"] + one["memoryConfiguration"]["frameworkHeap"])
        / max(1, one["slotsNumber"])
        for one in task_managers
    )
    text = has / MIB / _HEAP_PER_TEXT
    said = f"{has / MIB:.0f} MiB for each slot, enough for {text:.0f} MiB of text for each task."
    advice = f"Give --parallelism at least the text's size divided by {text:.0f} MiB."
    if text >= _PARTITION_MIB:
        return Finding("Java heap", "ok", said, advice)
    return Finding(
        "Java heap",
        "limited",
        f"{said} A partition of users has {_PARTITION_MIB} MiB by default.",
        f"{advice} And give more --partitions, or raise taskmanager.memory.process.size.",
    )


def process_memory(task_managers: Sequence[Json]) -> Finding:
    """Says what a TaskManager has in all, beside which its Python harness needs room."""
    sizes = {one["memoryConfiguration"]["totalProcessMemory"] for one in task_managers}
    off_heap = {
        one["memoryConfiguration"]["frameworkOffHeap"] + one["memoryConfiguration"]["taskOffHeap"]
        for one in task_managers
    }
    machine = {one["hardware"]["physicalMemory"] for one in task_managers}
    return Finding(
        "Process memory",
        "unknown",
        f"{_sizes(sizes)} for each TaskManager, of it {_sizes(off_heap)} off-heap, on machines of "
        f"{_sizes(machine)}. REST does not show the memory of the Python harness, which is outside.",
        "Leave 1 to 2 GiB beside each TaskManager for its harness, in the limit of the pool's "
        "container.",
    )


def stack(answer: Json | None, plan: PrivacyPlan) -> Finding:
    """Looks for a deep stack of the JobManager's threads, from /jobmanager/environment."""
    options = [] if answer is None else answer.get("jvm", {}).get("options", [])
    given = next((option for option in options if str(option).startswith("-Xss")), None)
    if given is not None:
        return Finding("JobManager's stack", "ok", f"Java was started with {given}.")
    text = (
        "Java was started without -Xss16m. A job graph of 77 rounds overflows its stack, 26 do not."
    )
    if plan.round_count <= _ROUNDS_SHALLOW:
        return Finding("JobManager's stack", "ok", f"{text} This is {_said(plan)}.")
    return Finding(
        "JobManager's stack",
        "limited",
        text,
        f"Set env.java.opts.jobmanager: -Xss16m. If you may not: {_smaller(_ROUNDS_SHALLOW)}.",
    )


def failures(settings: Mapping[str, str]) -> list[Finding]:
    """Looks at what happens when a TaskManager is lost, or its memory is full."""
    kind = settings.get("restart-strategy.type", settings.get("restart-strategy", "none"))
    restarts = Finding("Restarts", "ok", f"restart-strategy.type is {kind}.")
    if kind in {"none", "off", "disable"}:
        restarts = Finding(
            "Restarts",
            "limited",
            "no restart strategy is set: the first lost TaskManager ends the job.",
            "Set restart-strategy.type: fixed-delay (deploy/flink/config.yaml). If you may not: "
            "launch again with the same --run_key_file, which gives the same release.",
        )
    options = " ".join(
        settings.get(f"env.java.opts.{of}", "") for of in ("taskmanager", "all")
    ) + settings.get("env.java.opts", "")
    if "ExitOnOutOfMemoryError" in options:
        return [restarts, Finding("Full memory", "ok", "a TaskManager whose heap is full ends.")]
    return [
        restarts,
        Finding(
            "Full memory",
            "limited",
            "env.java.opts.taskmanager has no -XX:+ExitOnOutOfMemoryError: a job whose heap is full "
            "may hang. An image of yours may set it where REST does not show it.",
            "Set it, or give --parallelism so high that the heap suffices.",
        ),
    ]


def planner(job: Json, plan: PrivacyPlan) -> Finding:
    """Looks for the mark that planner.jar leaves in a job, from /jobs/ID/config."""
    subject = "planner.jar"
    if _PLANNER_MARK in job.get("execution-config", {}).get("user-config", {}):
        return Finding(subject, "ok", "the job server plans with it.")
    text = (
        "the job server plans without it, which takes exponential time: 20 s for 14 rounds in all, "
        "and more than 100 s for 15."
    )
    advice = (
        "Start the job server with planner.jar first on its class path (`python -m deploy.flink jars "
        "DIR` writes both). It may run on your own machine; the cluster is not touched."
    )
    if plan.round_count <= _ROUNDS_UNPATCHED:
        return Finding(subject, "limited", f"{text} {_said(plan)} will do.", advice)
    return Finding(
        subject,
        "missing",
        f"{text} {_said(plan)} is too many.",
        f"{advice} If you cannot: {_smaller(_ROUNDS_UNPATCHED)}.",
    )


def job_settings(job: Json) -> list[Finding]:
    """Compares the canary's settings, as Flink got them, with those that the launcher uses."""
    execution = job.get("execution-config", {})
    got = {
        "--environment_cache_millis": execution.get("user-config", {}).get(
            "environmentCacheMillis"
        ),
        "--execution_mode_for_batch": execution.get("execution-mode"),
    }
    findings = []
    for option in FLINK_OPTIONS:
        name, _, value = option.partition("=")
        if got[name] == value:
            findings.append(Finding(name, "ok", f"Flink got {value}."))
        else:
            findings.append(
                Finding(
                    name,
                    "missing",
                    f"Flink got {got[name]} where the launcher sent {value}.",
                    "The job server is of a version that drops this option; use the one of "
                    "deploy/versions.env.",
                )
            )
    return findings


def versions(found: Sequence[Report], launcher: tuple[str, str, str]) -> Finding:
    """Compares the workers' versions with the launcher's (Python, apache-beam, beam_dpne)."""
    names = ("Python", "apache-beam", "beam_dpne")
    wrong = []
    for name, here, there in zip(
        names,
        launcher,
        (
            {one.python for one in found},
            {one.beam for one in found},
            {one.beam_dpne for one in found},
        ),
        strict=True,
    ):
        same = minor(here) if name == "Python" else here
        for version in sorted(map(str, there)):
            if (minor(version) if name == "Python" else version) != same:
                shown = "no" if version == "None" else version
                wrong.append(f"{shown} {name}" if shown == "no" else f"{name} {shown}")
    hosts = count_of(len({one.host for one in found}), "host")
    ours = ", ".join(f"{name} {version}" for name, version in zip(names, launcher, strict=True))
    if not wrong:
        return Finding("Workers' versions", "ok", f"{ours}, as here ({hosts}).")
    return Finding(
        "Workers' versions",
        "missing",
        f"workers have {', '.join(wrong)}; the launcher has {ours}.",
        "Install the launcher's versions where the worker pool runs, for the `python` that is first "
        "in its PATH; or launch with the workers' image.",
    )


def kept_harnesses(found: Sequence[Report], task_managers: int) -> Finding:
    """Says whether the stages of the canary shared their Python processes."""
    subject = "Harnesses kept"
    processes = len({(one.host, one.pid) for one in found})
    stages = len({one.stage for one in found})
    text = (
        f"{count_of(processes, 'Python process', 'es')} did {stages} stages on "
        f"{count_of(task_managers, 'TaskManager')}"
    )
    if processes <= max(1, task_managers):
        return Finding(
            subject, "ok", f"{text}, so TaskManagers have Beam's jars, loaded parent-first."
        )
    return Finding(
        subject,
        "limited",
        f"{text}: Python is started anew from stage to stage. A job of {7 * 15 + 4 * 4 + 16} stages "
        "(--max_length 5) starts it for nearly each of them, and may hang.",
        "The TaskManagers need Beam's jars in lib and classloader.resolve-order: parent-first. If you "
        "may not touch them: start a session cluster of your own, or keep jobs short with "
        "--max_length 2 --strategy one_round.",
    )


def storage(found: Sequence[Report], folder: str | None) -> Finding:
    """Says whether workers saw the file that the launcher had written."""
    if folder is None:
        return Finding(
            "Shared storage",
            "unknown",
            "no --temp_location was given.",
            "Give the one of the job: the doctor writes a file there, and asks the workers for it.",
        )
    blind = sorted({one.host for one in found if not one.sees_file})
    if not blind:
        return Finding("Shared storage", "ok", f"workers see the launcher's file in {folder}.")
    advice = "Mount the same folder for the launcher and the worker pools, or use a bucket (gs://)."
    if "://" not in folder and not folder.startswith("/"):
        advice = "Give an absolute path, since workers have another working directory."
    return Finding(
        "Shared storage",
        "missing",
        f"the launcher wrote a file in {folder}, which workers on {', '.join(blind)} do not see.",
        advice,
    )


def settings_of(answer: Sequence[Mapping[str, str]]) -> Mapping[str, str]:
    """Returns the entries of /jobmanager/config by key."""
    return {one["key"]: one["value"] for one in answer}


def _results(plan: PrivacyPlan) -> int:
    """Returns how many vertices read a released set, or the empty hash ranges of all lengths."""
    if plan.rounds is None:
        return _RESULTS_OF_ONE_ROUND
    # In each round the users and a sort; the count of held candidates; the numbers of users.
    return max(2 * plan.rounds + 4, plan.max_length - 1)


def _smaller(rounds: int) -> str:
    """Names the largest jobs that have at most so many rounds in all."""
    fits = []
    for option, each in (("", None), (" --rounds 1", 1), (" --strategy one_round", 0)):
        lengths = [length for length in range(1, 27) if _round_count(length, each) <= rounds]
        if lengths:
            fits.append(f"--max_length {max(lengths)}{option}")
    return f"at most {', '.join(fits)} fit" if fits else "no job fits"


def _round_count(length: int, rounds: int | None) -> int:
    """Rounds of all lengths up to one: `rounds` for each, 0 for one_round, None for the default."""
    if rounds == 0:
        return plan_of(length, None, "one_round").round_count
    return plan_of(length, rounds, "adaptive").round_count


def plan_of(max_length: int, rounds: int | None, strategy: str) -> PrivacyPlan:
    """Returns a plan whose graph is that of a job; its budget does not matter here.

    Raises:
      ValueError: The options do not go together.
    """
    return PrivacyPlan(
        epsilon=1, delta=1e-6, max_length=max_length, strategy=strategy, rounds=rounds
    )


def _said(plan: PrivacyPlan) -> str:
    return f"--max_length {plan.max_length} with {plan.round_count} rounds in all"


def _of_slot(task_manager: Json, kind: str) -> float:
    """Returns the memory of a kind, in bytes, that a TaskManager has for each slot."""
    return task_manager["memoryConfiguration"][kind] / max(1, task_manager["slotsNumber"])


def minor(version: str) -> str:
    """Returns the first two parts of a version."""
    return ".".join(version.split(".")[:2])


def count_of(count: int, noun: str, plural: str = "s") -> str:
    """Returns a number with its noun, such as "2 slots"."""
    return f"{count} {noun}{'' if count == 1 else plural}"


def _sizes(sizes: set[int]) -> str:
    """Returns sizes in bytes as text, in MiB."""
    shown = [f"{size / MIB:,.0f}" for size in (min(sizes), max(sizes))]
    return f"{' to '.join(dict.fromkeys(shown))} MiB"


_UNITS = {"": 1, "b": 1, "bytes": 1, "k": 1 << 10, "kb": 1 << 10, "m": MIB, "mb": MIB}


def _bytes(text: str | None, default: int) -> int:
    """Returns a size of Flink's settings, such as 32kb, in bytes."""
    match = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", (text or "").lower())
    if match is None or match.group(2) not in _UNITS:
        return default
    return int(match.group(1)) * _UNITS[match.group(2)]
