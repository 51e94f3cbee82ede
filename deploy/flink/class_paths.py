"""What the doctor concludes from class paths: Beam's jars, and the one that must come before them.

All functions are pure. Flink's REST interface shows the class path of the JobManager, and that of a
TaskManager only in the first lines of its log.
"""

import re
from collections.abc import Iterable, Sequence

from deploy.flink.checks import MIB, Finding, Json, count_of, minor

_RUNNER_JAR = re.compile(r"beam-runners-flink-(\d+\.\d+)(?:-job-server)?-(\d+\.\d+\.\d+)\.jar")
_FLOW_JAR = "beam-flow-control.jar"
# The jars that have Beam's own class of the name: the usual one, and one that is merged from all.
_CORE_JAR = re.compile(r"beam-(sdks-java-core|runners-flink-.*-job-server)-.*\.jar")
_LOGGED = re.compile(r"\bClasspath: (.+)")
# Of its off-heap memory Flink reads results into so much.
_READ_MIB = 64


def beam_jars(answer: Json | None, wanted: str, flink: str) -> Finding:
    """Looks for Beam's runner in the class path of the JobManager, from /jobmanager/environment."""
    subject = "Beam's jars in Flink's lib"
    if answer is None:
        return Finding(
            subject,
            "unknown",
            "this Flink does not show its class path.",
            "Look for beam-runners-flink-*.jar in the lib folder of the image.",
        )
    names = jar_names(answer.get("classpath", []))
    match = next(filter(None, map(_RUNNER_JAR.fullmatch, names)), None)
    if match is None:
        return Finding(
            subject,
            "limited",
            "the JobManager's class path has no beam-runners-flink jar. Beam would start a new Python "
            "for nearly every stage, which takes seconds each and may hang.",
            "Copy the jars that `python -m deploy.flink jars DIR` writes to DIR/flink-lib into lib on "
            "JobManager and TaskManagers, and restart them. If you may not: start a session cluster "
            "of your own (deploy/flink/kubernetes), or keep jobs short with --max_length 2 --strategy "
            "one_round.",
        )
    of_flink, version = match.groups()
    if of_flink != minor(flink):
        return Finding(
            subject,
            "missing",
            f"{match.group()} is for Flink {of_flink}, and Flink is {flink}.",
            f"Put the jars of beam-runners-flink-{minor(flink)} in lib instead.",
        )
    if version != wanted:
        return Finding(
            subject,
            "limited",
            f"the JobManager has {match.group()}; version {wanted} is the one that was tried.",
            f"The job server must have the same version, {version}: with parent-first class loading "
            "Flink's classes win.",
        )
    return Finding(
        subject,
        "ok",
        f"the JobManager has {match.group()}. Whether the TaskManagers have it is said by the line on "
        "kept harnesses.",
    )


def flow_control(
    job_manager: Json | None, logs: Sequence[str | None], task_managers: Sequence[Json]
) -> Finding:
    """Looks for beam-flow-control.jar before Beam's own jars, where tasks send data to harnesses.

    Args:
      job_manager: the answer to /jobmanager/environment, or None if there was none.
      logs: the beginnings of logs of TaskManagers; None for one that could not be read.
      task_managers: all TaskManagers, from /taskmanagers.
    """
    found = [jars for jars in map(_logged, logs) if jars is not None]
    without = sum(not _comes_first(jars) for jars in found)
    everybody = count_of(len(task_managers), "TaskManager")
    if without:
        text = (
            f"the logs of {without} of {everybody} show that it does not come before Beam's jars."
        )
        return _without_flow(text, task_managers)
    if found and len(found) == len(logs):
        some = "" if len(found) == len(task_managers) else f"{len(found)} of "
        text = f"the logs of {some}{everybody} show that it comes before Beam's jars."
        return Finding(_FLOW_JAR, "ok", text)
    hidden = "the TaskManagers' logs do not show their class path"
    if job_manager is None:
        return _unknown_flow(f"{hidden}, and this Flink does not show the JobManager's.")
    if _comes_first(jar_names(job_manager.get("classpath", []))):
        return _unknown_flow(f"{hidden}. In the JobManager's it comes before Beam's jars.")
    return _without_flow(
        f"{hidden}, and in the JobManager's it does not come before Beam's jars.", task_managers
    )


def _unknown_flow(text: str) -> Finding:
    advice = (
        "TaskManagers need it. If they have the JobManager's image or lib folder, their class path is "
        "the JobManager's. Otherwise look into lib of each."
    )
    return Finding(_FLOW_JAR, "unknown", text, advice)


def _without_flow(found: str, task_managers: Sequence[Json]) -> Finding:
    room = min(map(_room_for_input, task_managers))
    return Finding(
        _FLOW_JAR,
        "limited",
        f"{found} All input of a task may then wait in the TaskManager's direct memory, which has room "
        f"for {room:.0f} MiB for each slot. With more a job may fail with 'Direct buffer memory'.",
        f"Copy {_FLOW_JAR}, which `python -m deploy.flink jars DIR` writes to DIR/flink-lib, into lib "
        "on TaskManagers, and restart them. If you may not: give so high a --parallelism that a task "
        "has less text than this.",
    )


def _room_for_input(task_manager: Json) -> float:
    """Returns the MiB of direct memory of a slot that Flink does not use itself."""
    memory = task_manager["memoryConfiguration"]
    off_heap = (memory["frameworkOffHeap"] + memory["taskOffHeap"]) / MIB
    return max(0.0, off_heap - _READ_MIB) / max(1, task_manager["slotsNumber"])


def jar_names(paths: Iterable[object]) -> list[str]:
    """Returns the names of files without their folders."""
    return [str(path).rpartition("/")[2] for path in paths]


def _logged(log: str | None) -> list[str] | None:
    """Returns the jars of the class path in the beginning of a log, or None if there is none."""
    match = _LOGGED.search(log or "")
    return None if match is None else jar_names(match.group(1).strip().split(":"))


def _comes_first(jars: Sequence[str]) -> bool:
    """Returns whether there are Beam's jars, and Java finds the class of our jar before theirs."""
    beam = [place for place, jar in enumerate(jars) if _CORE_JAR.fullmatch(jar)]
    return bool(beam) and _FLOW_JAR in jars[: beam[0]]
