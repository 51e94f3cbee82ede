"""The jars of a Flink cluster for Beam: who needs which, and two that are compiled here."""

import hashlib
import pathlib
import shutil
import zipfile

from deploy.downloads import flink_distribution, flink_job_server_jars, once, require, run
from deploy.processes import java

HERE = pathlib.Path(__file__).parent
PLANNER = "planner.jar"
# Flink's start scripts put jars into the class path in the order of their names: before beam-sdks-….
FLOW = "beam-flow-control.jar"


def flink_class_path() -> list[pathlib.Path]:
    """Returns the jars of JobManager and TaskManagers: Flink's distribution, and Beam."""
    return [flink_distribution() / "lib", *beam_jars()]


def beam_jars() -> list[pathlib.Path]:
    """Returns Beam's jars without the parts of Flink among them, which the distribution has.

    The first has the class by which TaskManagers send to harnesses no more than these take.
    """
    beam = [jar for jar in _job_server() if not jar.name.startswith("flink-")]
    return [_compiled("flow", FLOW), *beam]


def job_server_class_path() -> list[pathlib.Path]:
    """Returns the jars of Beam's job server.

    The first has two classes of Flink's planner, whose own do not end on a plan of many lengths, one
    that sends no jars with a job, and one that asks more often whether a job has ended. Flink plans a
    batch job in the process that submits it, so that TaskManagers and JobManager do not need it.
    """
    log = sorted((flink_distribution() / "lib").glob("log4j-*.jar"))
    return [_compiled("planner", PLANNER), *_job_server(), *log]


def copy_jars(folder: pathlib.Path) -> None:
    """Writes the jars of a real cluster's images.

    Args:
      folder: gets `flink-lib`, what Flink's own lib folder needs besides, on JobManager and
        TaskManagers; and `job-server`, the class path of the job server, planner.jar first.
    """
    for name, jars in (("flink-lib", beam_jars()), ("job-server", job_server_class_path())):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for jar in jars:
            shutil.copy(jar, folder / name)


def _job_server() -> list[pathlib.Path]:
    return sorted(flink_job_server_jars().glob("*.jar"))


def _compiled(kind: str, jar: str) -> pathlib.Path:
    """Returns a jar with the classes of the sources in a folder beside this file, compiled once."""
    sources = sorted((HERE / kind).glob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    name = f"flink-{kind}-{flink_job_server_jars().name}-{digest}"
    return once(name, lambda folder: _compile(sources, folder / jar)) / jar


def _compile(sources: list[pathlib.Path], target: pathlib.Path) -> None:
    beside = pathlib.Path(java()).resolve().with_name("javac")
    remedy = "install openjdk-17-jdk-headless: a JRE has no compiler"
    compiler = str(beside) if beside.exists() else require("javac", remedy)
    classes = target.parents[1] / "classes"
    class_path = str(flink_job_server_jars() / "*")
    run([compiler, "-nowarn", "-d", str(classes), "-cp", class_path, *map(str, sources)])
    with zipfile.ZipFile(target, "w") as jar:
        for path in sorted(classes.rglob("*.class")):
            jar.write(path, path.relative_to(classes))
