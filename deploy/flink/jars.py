"""The jars of a Flink cluster for Beam: who needs which, and three that are made here."""

import hashlib
import pathlib
import re
import shutil
import zipfile
from collections.abc import Sequence

from deploy.downloads import flink_distribution, flink_job_server_jars, once, run
from deploy.java import javac

SOURCES = pathlib.Path(__file__).with_name("planner")
FLOW_SOURCES = pathlib.Path(__file__).with_name("flow")
_PLANNER, _WHOLE = "planner.jar", "beam-job-server.jar"
# Flink's start scripts put jars into the class path in the order of their names: before beam-sdks-….
_FLOW = "beam-flow-control.jar"
_SIGNATURES = re.compile(r"META-INF/[^/]+\.(SF|RSA|DSA|EC)$")
_MANIFEST = "Manifest-Version: 1.0\nMulti-Release: true\n"


def flink_class_path() -> list[pathlib.Path]:
    """Returns the jars of JobManager and TaskManagers: Flink's distribution, and Beam.

    Raises:
      MissingToolError: if a tool for a download is missing.
      DownloadError: if a download failed.
    """
    return [flink_distribution() / "lib", *beam_jars()]


def beam_jars() -> list[pathlib.Path]:
    """Returns Beam's jars without the parts of Flink among them, which the distribution has.

    The first has a class that stands in for one of Beam's.
    """
    return [flow_jar(), *(jar for jar in _closure() if not jar.name.startswith("flink-"))]


def job_server_class_path() -> list[pathlib.Path]:
    """Returns the jars of Beam's job server; raises as `flink_class_path`, and without a compiler.

    The job server sends its whole class path to Flink with every job, file by file, so that 160 files
    take 15 s: they are merged into one.
    """
    log = sorted((flink_distribution() / "lib").glob("log4j-*.jar"))
    return [planner_jar(), whole_jar(), *log]


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


def planner_jar() -> pathlib.Path:
    """Returns a jar with two classes of Flink's planner, and one that sends no jars with a job.

    Flink's own two do not end on a plan of many lengths. Flink plans a batch job in the process that
    submits it, here the job server, where this jar comes before Flink's and Beam's; TaskManagers and
    JobManager do not need it.

    Raises:
      MissingToolError: if there is no Java compiler.
      DownloadError: if the sources cannot be compiled, or Flink's jars not be fetched.
    """
    return _compiled(SOURCES, "planner", _PLANNER)


def flow_jar() -> pathlib.Path:
    """Returns a jar with the class by which TaskManagers send to harnesses no more than these take.

    Raises:
      MissingToolError: if there is no Java compiler.
      DownloadError: if the source cannot be compiled, or Beam's jars not be fetched.
    """
    return _compiled(FLOW_SOURCES, "flow", _FLOW)


def whole_jar() -> pathlib.Path:
    """Returns one jar with all that Beam's job server needs."""
    name = f"whole-{flink_job_server_jars().name}"
    return once(name, lambda folder: merge(_closure(), folder / _WHOLE)) / _WHOLE


def merge(jars: Sequence[pathlib.Path], target: pathlib.Path) -> None:
    """Writes the content of jars into one: of equal names the first counts, as in a class path.

    Lists of services are joined; signatures, manifests and module descriptions, which belong to single
    jars, are left out.
    """
    seen = {"META-INF/MANIFEST.MF", "module-info.class"}
    services: dict[str, list[str]] = {}
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as whole:
        whole.writestr("META-INF/MANIFEST.MF", _MANIFEST)
        for path in jars:
            with zipfile.ZipFile(path) as jar:
                for name in jar.namelist():
                    if name.startswith("META-INF/services/") and not name.endswith("/"):
                        services.setdefault(name, []).append(jar.read(name).decode())
                    elif name not in seen and not _SIGNATURES.match(name):
                        seen.add(name)
                        whole.writestr(name, jar.read(name))
        for name, lists in services.items():
            whole.writestr(name, "\n".join(lists))


def _closure() -> list[pathlib.Path]:
    return sorted(flink_job_server_jars().glob("*.jar"))


def _compiled(folder: pathlib.Path, kind: str, jar: str) -> pathlib.Path:
    """Returns a jar with the classes of a folder's sources, compiled once."""
    sources = sorted(folder.glob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    name = f"flink-{kind}-{flink_job_server_jars().name}-{digest}"
    return once(name, lambda target: _compile(sources, target / jar)) / jar


def _compile(sources: Sequence[pathlib.Path], target: pathlib.Path) -> None:
    classes = target.parents[1] / "classes"
    classpath = str(flink_job_server_jars() / "*")
    run([javac(), "-nowarn", "-d", str(classes), "-cp", classpath, *map(str, sources)])
    with zipfile.ZipFile(target, "w") as jar:
        for path in sorted(classes.rglob("*.class")):
            jar.write(path, path.relative_to(classes))
