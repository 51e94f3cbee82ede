"""Fetching engines into a cache folder: each whole or not at all, and only once.

The cache is `$XDG_CACHE_HOME/beam_dpne` (`~/.cache/beam_dpne`); any part of it may be deleted at any
time and is fetched again. Versions are those of `deploy/versions.env`.
"""

import contextlib
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

VERSIONS_FILE = pathlib.Path(__file__).with_name("versions.env")


class MissingToolError(RuntimeError):
    """A program that a download or an engine needs is not there, or is of another release."""


class DownloadError(RuntimeError):
    """A download failed; the message says which command, and how it ended."""


@functools.cache
def versions() -> Mapping[str, str]:
    """Returns the keys and values of `deploy/versions.env`."""
    lines = VERSIONS_FILE.read_text(encoding="utf-8").splitlines()
    kept = (line.strip() for line in lines if line.strip() and not line.startswith("#"))
    return {key: value for key, _, value in (line.partition("=") for line in kept)}


def cache() -> pathlib.Path:
    """Returns the cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(home) / "beam_dpne"


def flink_distribution() -> pathlib.Path:
    """Returns the folder of Flink's distribution, `lib` and `bin`; fetches it from PyPI (230 MB).

    Raises:
      MissingToolError: if this Python has no pip.
      DownloadError: if the download failed.
    """
    version = versions()["FLINK_VERSION"]
    return once(f"flink-{version}", lambda folder: _fetch_flink(folder, version))


def maven_jars(name: str, artifacts: Sequence[str]) -> pathlib.Path:
    """Returns the folder of the jars that Maven artifacts need to run, themselves included.

    Args:
      name: of the folder in the cache; it must change when the artifacts do.
      artifacts: each as group:artifact:version.

    Raises:
      MissingToolError: if there is no Maven or no Java.
      DownloadError: if the download failed.
    """
    return once(name, lambda folder: _fetch_maven(folder, artifacts))


def flink_job_server_jars() -> pathlib.Path:
    """Returns the folder of the jars of Beam's job server for Flink; see `maven_jars`."""
    of = versions()
    artifact, version = of["BEAM_FLINK_ARTIFACT"], of["BEAM_FLINK_VERSION"]
    return maven_jars(f"{artifact}-{version}", [f"org.apache.beam:{artifact}:{version}"])


def iceberg_jars() -> list[pathlib.Path]:
    """Returns the jars of an expansion service for Iceberg; see `maven_jars`."""
    of = versions()
    version = of["BEAM_ICEBERG_VERSION"]
    names = ("io-iceberg", "managed", "expansion-service")
    folder = maven_jars(
        f"iceberg-expansion-{version}",
        [
            *(f"org.apache.beam:beam-sdks-java-{name}:{version}" for name in names),
            f"com.github.jbellis:jamm:{of['JAMM_VERSION']}",
            f"org.apache.hadoop:hadoop-mapreduce-client-core:{of['HADOOP_MAPREDUCE_VERSION']}",
        ],
    )
    # It holds the classes of hadoop-common again, of an older version and without all that they need.
    return [jar for jar in folder.glob("*.jar") if not jar.name.startswith("hadoop-client-api")]


def prism() -> pathlib.Path:
    """Returns the path of Beam's Prism runner; builds it from its Go module (a minute).

    Raises:
      MissingToolError: if there is no Go.
      DownloadError: if the build failed.
    """
    version = versions()["BEAM_VERSION"]
    return once(f"prism-{version}", lambda folder: _fetch_prism(folder, version)) / "prism"


def once(name: str, make: Callable[[pathlib.Path], None]) -> pathlib.Path:
    """Returns a folder of the cache; makes it if it is not there, in one step.

    Args:
      name: of the folder; it must change when its content does.
      make: fills a folder; it is renamed into place when whole, so that what a killed process has
        left is never taken for it.
    """
    folder = cache() / name
    if folder.is_dir():
        return folder
    cache().mkdir(parents=True, exist_ok=True)
    with _locked(cache() / f"{name}.lock"):
        if not folder.is_dir():
            for killed in cache().glob(f"{name}.part-*"):
                shutil.rmtree(killed)
            print(f"Making {folder} ...", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(prefix=f"{name}.part-", dir=cache()) as part:
                whole = pathlib.Path(part) / "whole"
                whole.mkdir()
                make(whole)
                whole.rename(folder)
    return folder


def require(tool: str, remedy: str) -> str:
    """Returns the path of a program.

    Raises:
      MissingToolError: if it is not in PATH; the message says how to get it.
    """
    path = shutil.which(tool)
    if not path:
        raise MissingToolError(f"{tool} must be in PATH, and is not; {remedy}.")
    return path


def run(command: Sequence[str], *, environment: Mapping[str, str] | None = None) -> None:
    """Runs a command to its end.

    Raises:
      DownloadError: if it failed, with the end of what it printed.
    """
    settings = {**os.environ, **(environment or {})}
    ended = subprocess.run(
        command,
        env=settings,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if ended.returncode:
        said = "\n".join(ended.stdout.splitlines()[-15:])
        raise DownloadError(f"exit status {ended.returncode} of {' '.join(command)}\n{said}")


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
    """Holds a lock: two processes do not fetch the same thing at the same time."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch_flink(folder: pathlib.Path, version: str) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as download:
        _pip_download(f"apache-flink-libraries=={version}", download)
        (archive,) = pathlib.Path(download).glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            for member in tar:
                if match := re.fullmatch(r"[^/]+/deps/((?:lib|bin)/[^/]+\.jar)", member.name):
                    _extract(tar, member, folder / match.group(1))


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, path: pathlib.Path) -> None:
    source = tar.extractfile(member)
    if source is None:
        raise DownloadError(f"{member.name} must be a file, and is not one.")
    path.parent.mkdir(exist_ok=True)
    with source, path.open("wb") as target:
        shutil.copyfileobj(source, target)


def _pip_download(requirement: str, folder: str) -> None:
    pip = [sys.executable, "-m", "pip"]
    if subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode:
        raise MissingToolError(
            f"pip must be in {sys.executable}, and is not; run python3 -m ensurepip there."
        )
    options = ["--no-deps", "--no-binary", ":all:", "--disable-pip-version-check", "--quiet"]
    run([*pip, "download", *options, "--dest", folder, requirement])


def _fetch_maven(folder: pathlib.Path, artifacts: Sequence[str]) -> None:
    require("java", "install openjdk-17-jre-headless")
    maven = require("mvn", "install maven (3.6 or newer)")
    pom = folder.parent / "pom.xml"
    pom.write_text(_pom(artifacts), encoding="utf-8")
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
    run([maven, "-q", "-B", "-f", str(pom), *goal, f"-DoutputDirectory={folder}"])
    if not any(folder.glob("*.jar")):
        raise DownloadError(f"Maven copied no jars for {', '.join(artifacts)}.")


def _pom(artifacts: Sequence[str]) -> str:
    names = ("groupId", "artifactId", "version")
    dependencies = "".join(
        "<dependency>"
        + "".join(
            f"<{tag}>{escape(part)}</{tag}>"
            for tag, part in zip(names, artifact.split(":"), strict=True)
        )
        + "</dependency>"
        for artifact in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>beam_dpne</groupId><artifactId>engine</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def _fetch_prism(folder: pathlib.Path, version: str) -> None:
    go = require("go", "install Go 1.24 or newer from https://go.dev/dl")
    module = f"github.com/apache/beam/sdks/v2/go/cmd/prism@v{version}"
    # GOOS or GOARCH of the caller would send the binary elsewhere.
    run([go, "install", module], environment={"GOBIN": str(folder), "GOOS": "", "GOARCH": ""})
