"""Starting Java programs: the right Java, and the command line."""

import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from deploy.downloads import MissingToolError, require

RELEASE = 17
# Java 17 closes its own packages; Flink, Spark and Kryo look into them.
OPENED = (
    *("java.lang", "java.lang.invoke", "java.util", "java.util.concurrent"),
    *("java.util.concurrent.atomic", "java.nio", "java.net", "java.io", "java.time"),
    *("sun.nio.ch", "sun.nio.cs", "sun.util.calendar", "sun.security.action"),
)


def java() -> str:
    """Returns the path of Java 17: that of JAVA_HOME, or else the first in PATH.

    Raises:
      MissingToolError: if there is none, or another release.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(pathlib.Path(home, "bin", "java")) if home else "java")
    where = f"JAVA_HOME={home}" if home else "PATH"
    remedy = "install openjdk-17-jre-headless, or set JAVA_HOME to a Java 17"
    if not found:
        raise MissingToolError(f"java must be release {RELEASE}, got none in {where}; {remedy}.")
    release = _release(found)
    if release != RELEASE:
        raise MissingToolError(
            f"java must be release {RELEASE}, got {release} at {found} ({where}); {remedy}."
        )
    return found


def javac() -> str:
    """Returns the path of the compiler beside `java`, or else the first in PATH.

    Raises:
      MissingToolError: if there is neither.
    """
    beside = pathlib.Path(java()).resolve().with_name("javac")
    if beside.exists():
        return str(beside)
    return require("javac", "install openjdk-17-jdk-headless: a JRE has no compiler")


def java_command(
    main: str,
    *arguments: str,
    jars: Sequence[pathlib.Path],
    heap_megabytes: int | None = None,
    properties: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> list[str]:
    """Returns the command that starts a Java main class.

    Args:
      main: the class.
      *arguments: those of the program.
      jars: folders, of which every jar is taken, or single jars; earlier ones win.
      heap_megabytes: size of the heap (-Xmx), in MiB; None if `options` set it.
      properties: Java's system properties (-D).
      options: further ones of the Java machine.

    Raises:
      MissingToolError: if there is no Java 17.
    """
    classpath = [str(path / "*") if path.is_dir() else str(path) for path in jars]
    return [
        java(),
        *([f"-Xmx{heap_megabytes}m"] if heap_megabytes is not None else []),
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED),
        *(f"-D{name}={value}" for name, value in (properties or {}).items()),
        *options,
        "-cp",
        os.pathsep.join(classpath),
        main,
        *arguments,
    ]


def _release(path: str) -> int:
    said = subprocess.run([path, "-version"], capture_output=True, text=True, check=False).stderr
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(match.group(1)) if match else 0
