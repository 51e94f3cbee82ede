"""Fetching engines into a cache folder: each whole or not at all, and only once.

The cache is `$XDG_CACHE_HOME/beam_dpne` (`~/.cache/beam_dpne`); any part of it may be deleted and is
fetched again. Versions are those of `deploy/versions.env`.
"""

import fcntl
import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence

VERSIONS_FILE = pathlib.Path(__file__).with_name("versions.env")


class DeployError(RuntimeError):
    """An engine cannot be fetched, started or asked; the message says what to do."""


@functools.cache
def versions() -> Mapping[str, str]:
    """Returns the keys and values of `deploy/versions.env`."""
    text = VERSIONS_FILE.read_text(encoding="utf-8")
    return dict(re.findall(r"(?m)^(\w+)=(.*\S)", text))


def cache() -> pathlib.Path:
    """Returns the cache folder.

    Raises:
      DeployError: the user has no home folder, and no other one is named.
    """
    if home := os.environ.get("XDG_CACHE_HOME"):
        return pathlib.Path(home) / "beam_dpne"
    try:
        return pathlib.Path.home() / ".cache" / "beam_dpne"
    except RuntimeError:
        raise DeployError(
            "XDG_CACHE_HOME must name a folder for what is fetched, since this user has no home folder."
        ) from None


def once(name: str, make: Callable[[pathlib.Path], None]) -> pathlib.Path:
    """Returns a folder of the cache; makes it if it is not there, in one step.

    Args:
      name: of the folder; it must change when its content does.
      make: fills a folder, which is renamed into place when whole.
    """
    folder = cache() / name
    if folder.is_dir():
        return folder
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            print(f"Making {folder} ...", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(prefix=f"{name}.part-", dir=cache()) as part:
                whole = pathlib.Path(part) / "whole"
                whole.mkdir()
                make(whole)
                whole.rename(folder)
    return folder


def require(tool: str, remedy: str) -> str:
    """Returns the path of a program; raises DeployError with the remedy if it is not in PATH."""
    path = shutil.which(tool)
    if not path:
        raise DeployError(f"{tool} must be in PATH, and is not; {remedy}.")
    return path


def run(command: Sequence[str], **environment: str) -> str:
    """Runs a command to its end and returns what it wrote to stdout.

    Raises:
      DeployError: if it failed, with the end of what it printed.
    """
    settings = {**os.environ, **environment}
    ended = subprocess.run(command, env=settings, text=True, capture_output=True, check=False)
    if ended.returncode:
        said = "\n".join((ended.stdout + ended.stderr).splitlines()[-15:])
        raise DeployError(f"exit status {ended.returncode} of {' '.join(command)}\n{said}")
    return ended.stdout


def prism() -> pathlib.Path:
    """Returns the path of Beam's Prism runner; builds it from its Go module (a minute)."""
    version = versions()["BEAM_VERSION"]
    return go_program(f"github.com/apache/beam/sdks/v2/go/cmd/prism@v{version}")


def go_program(module: str) -> pathlib.Path:
    """Returns the path of a program that Go builds from PATH@VERSION."""
    path, _, version = module.partition("@")
    name = path.rpartition("/")[2]

    def build(folder: pathlib.Path) -> None:
        go = require("go", "install Go 1.24 or newer from https://go.dev/dl")
        # GOOS or GOARCH of the caller would send the binary elsewhere.
        run([go, "install", module], GOBIN=str(folder), GOOS="", GOARCH="")

    return once(f"{name}-{version.removeprefix('v')}", build) / name


def flink_distribution() -> pathlib.Path:
    """Returns the folder of Flink's distribution, `lib` and `bin`; fetches it from PyPI (230 MB)."""
    version = versions()["FLINK_VERSION"]
    return once(f"flink-{version}", lambda folder: _fetch_flink(folder, version))


def flink_job_server_jars() -> pathlib.Path:
    """Returns the folder of the jars of Beam's job server for Flink."""
    of = versions()
    artifact = of["BEAM_FLINK_ARTIFACT"]
    version = of["BEAM_FLINK_VERSION"]
    return maven_jars(f"{artifact}-{version}", [f"org.apache.beam:{artifact}:{version}"])


def spark_jars() -> pathlib.Path:
    """Returns the folder of the jars of Spark and of Beam's job server for it."""
    of = versions()
    artifact, beam, spark = (
        of[key] for key in ("BEAM_SPARK_ARTIFACT", "BEAM_SPARK_VERSION", "SPARK_VERSION")
    )
    wanted = [
        f"org.apache.beam:{artifact}:{beam}",
        f"org.apache.spark:spark-sql_2.12:{spark}",
        f"org.apache.spark:spark-streaming_2.12:{spark}",
        f"org.slf4j:slf4j-api:{of['SLF4J_VERSION']}",
    ]
    return maven_jars(f"{artifact}-{beam}-spark-{spark}", wanted)


def maven_jars(name: str, artifacts: Sequence[str]) -> pathlib.Path:
    """Returns the folder of the jars that Maven artifacts need to run, themselves included.

    Args:
      name: of the folder in the cache; it must change when the artifacts do.
      artifacts: each as group:artifact:version.
    """
    return once(name, lambda folder: _fetch_maven(folder, artifacts))


def _fetch_maven(folder: pathlib.Path, artifacts: Sequence[str]) -> None:
    require("java", "install openjdk-17-jre-headless")
    maven = require("mvn", "install maven (3.6 or newer)")
    dependencies = "".join(
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
        "</dependency>".format(*one.split(":"))
        for one in artifacts
    )
    pom = folder.parent / "pom.xml"
    pom.write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>beam_dpne</groupId><artifactId>engine</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>",
        encoding="utf-8",
    )
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
    run([maven, "-q", "-B", "-f", str(pom), *goal, f"-DoutputDirectory={folder}"])


def _fetch_flink(folder: pathlib.Path, version: str) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as download:
        pip = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--quiet"]
        options = ["--no-deps", "--no-binary", ":all:", "--dest", download]
        run([*pip, *options, f"apache-flink-libraries=={version}"])
        (archive,) = pathlib.Path(download).glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            for member in tar:
                if match := re.fullmatch(r"[^/]+/deps/((?:lib|bin)/[^/]+\.jar)", member.name):
                    path = folder / match.group(1)
                    path.parent.mkdir(exist_ok=True)
                    with tar.extractfile(member) as source, path.open("wb") as target:
                        shutil.copyfileobj(source, target)
