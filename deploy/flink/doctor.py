"""Whether a Flink cluster runs our jobs, line by line, from the answers of its REST interface alone.

`deploy/flink/README.md` has the reasons of the numbers.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from deploy.downloads import versions
from deploy.flink.jars import FLOW, PLANNER
from deploy.flink.rest import Rest

MIB = 1 << 20
# Flink divides managed memory among all sorts of a plan, two for each grouping, and each must hold an
# element of 4 MiB. Each round has a grouping, and so have the corpus and the numbers of users.
_SORT_MIB = 4.7
# A stage writes up to so many results at a time, each with a minimum of buffers, and reads others.
_RESULTS = 10
_READ_BUFFERS = 256
_BUFFER_MIB = 1 / 32
# The heap holds the output of a task twice, and Flink needs about as much again.
_HEAP_PER_TEXT = 6
_PLANNER_MARK = "beam_dpne.planner"


class Finding(NamedTuple):
    """One line: `status` is "ok", "limited" (a job runs, with the limit in the text) or "missing"."""

    status: str
    subject: str
    text: str


def look(address: str, *, rounds: int, parallelism: int) -> int:
    """Prints a line for each thing; returns 1 if something is missing without which no job runs.

    Args:
      address: of Flink's REST interface.
      rounds: rounds of all lengths of the job together.
      parallelism: tasks of each stage.
    """
    found = list(findings(Rest(address), rounds=rounds, parallelism=parallelism))
    for one in found:
        print(f"{one.status:8}{one.subject}: {one.text}")
    return int(any(one.status == "missing" for one in found))


def findings(rest: Rest, *, rounds: int, parallelism: int) -> Iterator[Finding]:
    """Yields a line for each thing that Flink's REST interface shows; see `look`."""
    try:
        flink = rest.get("/config")["flink-version"]
        settings = {one["key"]: one["value"] for one in rest.get("/jobmanager/config")}
        environment = rest.get("/jobmanager/environment")
        task_managers = list(rest.task_managers().values())
    except (OSError, ValueError, LookupError, TypeError) as error:
        why = f"no Flink answers at {rest.address} ({type(error).__name__}). Give rest.port (8081)."
        yield Finding("missing", "REST interface", why)
        return
    yield _version(flink)
    yield from _class_path(environment["classpath"], environment["jvm"]["options"])
    yield _wanted(settings, "classloader.resolve-order", "parent-first", "child-first")
    yield _wanted(settings, "restart-strategy.type", "fixed-delay", "none")
    yield _slots(task_managers, parallelism)
    if task_managers:
        yield from _memory(task_managers, settings, rounds)
    yield from _last_job(rest)


def _version(flink: str) -> Finding:
    wanted = versions()["FLINK_VERSION"].rpartition(".")[0]
    fits = flink.startswith(f"{wanted}.")
    return Finding("ok" if fits else "missing", "Flink", f"{flink}; {wanted} is supported.")


def _class_path(paths: Sequence[str], java_options: Sequence[str]) -> Iterator[Finding]:
    """Looks at the JobManager; TaskManagers of the same image have its class path."""
    names = [path.rpartition("/")[2] for path in paths]
    version, artifact = (versions()[f"BEAM_FLINK_{key}"] for key in ("VERSION", "ARTIFACT"))
    jar = f"{artifact}-{version}.jar"
    if jar in names:
        yield Finding("ok", "Beam's jars", f"{jar} is in the class path.")
    else:
        text = f"{jar} is not in the class path; Python starts anew for nearly every stage, and may"
        yield Finding(
            "limited", "Beam's jars", f"{text} hang. Copy flink-lib of `jars DIR` to lib."
        )
    core = next((place for place, name in enumerate(names) if "beam-sdks-java-core" in name), None)
    if core is not None and FLOW in names[:core]:
        yield Finding("ok", FLOW, "it comes before Beam's jars.")
    else:
        text = "it does not come before Beam's jars; a task with much input may fail with 'Direct"
        yield Finding("limited", FLOW, f"{text} buffer memory'. Copy it to lib on TaskManagers.")
    if any(option.startswith("-Xss") for option in java_options):
        yield Finding("ok", "Java's stack", "it was set with -Xss.")
    else:
        text = "env.java.opts.jobmanager has no -Xss16m; a job of 77 rounds overflows the stack."
        yield Finding("limited", "Java's stack", text)


def _wanted(settings: Mapping[str, str], key: str, wanted: str, default: str) -> Finding:
    found = settings.get(key, default)
    status = "ok" if found == wanted else "limited"
    return Finding(status, key, found if status == "ok" else f"{found}; set it to {wanted}.")


def _slots(task_managers: Sequence[Mapping[str, Any]], parallelism: int) -> Finding:
    total = sum(one["slotsNumber"] for one in task_managers)
    free = sum(one["freeSlots"] for one in task_managers)
    text = (
        f"{len(task_managers)} TaskManagers, {free} of {total} slots free, for {parallelism} tasks."
    )
    status = "ok" if free else "limited"
    if not total:
        status = "missing"
    return Finding(status, "TaskManagers", text)


def _memory(
    task_managers: Sequence[Mapping[str, Any]], settings: Mapping[str, str], rounds: int
) -> Iterator[Finding]:
    def least(*kinds: str) -> float:
        """The smallest memory of some kinds that a slot has, in MiB."""
        return (
            min(
                sum(one["memoryConfiguration"][kind] for kind in kinds) / max(1, one["slotsNumber"])
                for one in task_managers
            )
            / MIB
        )

    name = "taskmanager.network.sort-shuffle.min-buffers"
    buffers = _RESULTS * int(settings.get(name, 512)) + _READ_BUFFERS
    for subject, kind, need, remedy in (
        ("Managed memory", "managedMemory", 2 * (2 + rounds) * _SORT_MIB, "raise it"),
        ("Network memory", "networkMemory", buffers * _BUFFER_MIB, f"raise it, or set {name}: 64"),
    ):
        has = least(kind)
        text = f"{has:.0f} MiB for each slot; {rounds} rounds in all need {need:.0f}"
        fits = has >= need
        yield Finding(
            "ok" if fits else "missing", subject, f"{text}." if fits else f"{text}: {remedy}."
        )
    heap = least("taskHeap", "frameworkHeap")
    text = f"{heap:.0f} MiB for each slot, for {heap / _HEAP_PER_TEXT:.0f} MiB of text in each task"
    yield Finding("ok", "Java heap", f"{text}; give --parallelism accordingly.")


def _last_job(rest: Rest) -> Iterator[Finding]:
    """Names the kinds of the last job's failures; their texts may quote data, and stay at Flink."""
    jobs = list(rest.jobs().values())
    if not jobs:
        return
    job = jobs[-1]
    kinds = [one["exceptionName"].rpartition(".")[2] for one in rest.exceptions(job["jid"])]
    text = f"{job['name']}: {job['state']}, {', '.join(kinds) or 'no failures'}."
    yield Finding("ok" if not kinds else "limited", "Last job", text)
    config = rest.get(f"/jobs/{job['jid']}/config").get("execution-config", {})
    if _PLANNER_MARK in config.get("user-config", {}):
        yield Finding("ok", PLANNER, "the last job was planned with it.")
    else:
        text = "the last job was planned without it, which takes more than 100 s from 15 rounds on."
        advice = "Start the job server with it first on its class path."
        yield Finding("limited", PLANNER, f"{text} {advice}")
