"""Renders the manifests: python3 -m deploy.flink.kubernetes [--registry ADDRESS [--tag TAG]].

Without --registry, `session.yaml` beside this file is written; with it, the manifests with the images
of that registry are printed, for `kubectl apply --filename -`.
"""

import argparse
import pathlib
import re
import string
import sys
import textwrap

from deploy import java

HERE = pathlib.Path(__file__).parent
SOURCE, RENDERED = HERE / "session.yaml.in", HERE / "session.yaml"
JOB_MANAGER = "flink-jobmanager"
# Built as README.md says: from deploy/flink/Dockerfile, the last from templates/Dockerfile.
FLINK, JOB_SERVER, WORKERS = "beam-dpne-flink", "beam-dpne-flink-job-server", "beam-dpne-workers"


def render(*, registry: str = "", tag: str = "") -> str:
    """Returns the manifests.

    Args:
      registry: host and path of the images, without a slash at the end; "" names none.
      tag: of the images; the version of beam_dpne by default.
    """
    opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in java.OPENED]
    prefix = f"{registry}/" if registry else ""
    images = {
        name: f"{prefix}{image}:{tag or version()}"
        for name, image in (("FLINK", FLINK), ("JOB_SERVER", JOB_SERVER), ("WORKERS", WORKERS))
    }
    return string.Template(SOURCE.read_text(encoding="utf-8")).substitute(
        **{f"{name}_IMAGE": image for name, image in images.items()},
        JOB_MANAGER_MEMORY=process_memory("jobmanager"),
        TASK_MANAGER_MEMORY=process_memory("taskmanager"),
        JAVA_OPTIONS=" ".join(opened),
        CONFIG=_indented(configuration()),
        LOGGING=_indented((HERE.parent / "log4j.properties").read_text(encoding="utf-8")),
    )


def configuration() -> str:
    """Returns deploy/flink/config.yaml without comments, for pods instead of one machine.

    Pods listen on all of their addresses, TaskManagers find out their own, and the JobManager has
    that of its service.

    Raises:
      ValueError: if config.yaml names localhost where this does not know what to put instead.
    """
    text = (HERE.parent / "config.yaml").read_text(encoding="utf-8")
    for pattern, instead in (
        (r" *(#.*)?\n", ""),
        (r"( *address:) localhost\n", rf"\1 {JOB_MANAGER}\n"),
        (r"( *bind-(?:host|address):) localhost\n", r"\1 0.0.0.0\n"),
        (r" *host: localhost\n", ""),
    ):
        text = re.sub(f"(?m)^{pattern}", instead, text)
    if left := re.findall(r".*localhost.*", text):
        raise ValueError(
            f"config.yaml must name localhost only as address, host or bind-…, got {left[0].strip()}; "
            "extend configuration()."
        )
    return text


def process_memory(role: str) -> str:
    """Returns the memory of `jobmanager` or `taskmanager` in config.yaml, as Kubernetes writes it.

    Raises:
      ValueError: if it is not there, or not in MiB (m) or GiB (g).
    """
    part = rf"(?m)^{role}:\n(?: .*\n)*?  memory:\n    process:\n      size: (\d+)([mg])$"
    found = re.search(part, configuration())
    if not found:
        raise ValueError(
            f"config.yaml must grant {role}.memory.process.size in m or g, first in memory, got none."
        )
    return f"{found[1]}{found[2].upper()}i"


def version() -> str:
    """Returns the version of beam_dpne, which need not be installed here."""
    text = (HERE.parents[2] / "beam_dpne" / "version.py").read_text(encoding="utf-8")
    return text.split("__version__ = ")[1].strip().strip('"')


def _indented(text: str) -> str:
    return textwrap.indent(text, "    ").strip()


def main() -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--registry", help="host and path of the images, such as host/folder")
    parser.add_argument("--tag", help="of the images (%(default)s)", default=version())
    given = parser.parse_args()
    if given.registry:
        sys.stdout.write(render(registry=given.registry.rstrip("/"), tag=given.tag))
    elif given.tag != version():
        parser.error("--tag must come with --registry")
    else:
        RENDERED.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
