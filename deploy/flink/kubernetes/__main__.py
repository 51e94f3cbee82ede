"""Renders the manifests: python3 -m deploy.flink.kubernetes [--image ADDRESS].

Without --image, `session.yaml` beside this file is written; with it, the manifests with that image of
the workers are printed, for `kubectl apply --filename -`.
"""

import argparse
import pathlib
import re
import string
import sys
import textwrap

from deploy import java
from deploy.downloads import versions

HERE = pathlib.Path(__file__).parent
SOURCE, RENDERED = HERE / "session.yaml.in", HERE / "session.yaml"
JOB_MANAGER = "flink-jobmanager"


def render(image: str) -> str:
    """Returns the manifests.

    Args:
      image: of the workers, built from `templates/Dockerfile` with `--target workers`.
    """
    of = versions()
    # beam-runners-flink-1.19 is the library of the image beam_flink1.19_job_server.
    flink = of["BEAM_FLINK_ARTIFACT"].rpartition("-")[2]
    opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in java.OPENED]
    return string.Template(SOURCE.read_text(encoding="utf-8")).substitute(
        FLINK_IMAGE=f"flink:{of['FLINK_VERSION']}-scala_2.12-java{java.RELEASE}",
        JOB_SERVER_IMAGE=f"apache/beam_flink{flink}_job_server:{of['BEAM_FLINK_VERSION']}",
        WORKERS_IMAGE=image,
        JAVA_OPTIONS=" ".join(opened),
        CONFIG=_indented(configuration()),
        LOGGING=_indented((HERE.parent / "log4j.properties").read_text(encoding="utf-8")),
    )


def configuration() -> str:
    """Returns deploy/flink/config.yaml with the address of the JobManager's service."""
    text = (HERE.parent / "config.yaml").read_text(encoding="utf-8")
    changed, times = re.subn(r"(?m)^( *address:) localhost$", rf"\1 {JOB_MANAGER}", text)
    if times != 1:
        raise ValueError(
            f"config.yaml must name the JobManager's address localhost once, got {times} times."
        )
    return changed


def default_image() -> str:
    """Returns the name that README.md gives the workers' image: of this version, on no registry."""
    text = (HERE.parents[2] / "beam_dpne" / "version.py").read_text(encoding="utf-8")
    return f"beam-dpne-workers:{text.split('__version__ = ')[1].strip().strip(chr(34))}"


def _indented(text: str) -> str:
    return textwrap.indent(text, "    ").strip()


def main() -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--image", help="address of the workers' image")
    image = parser.parse_args().image
    if image:
        sys.stdout.write(render(image))
    else:
        RENDERED.write_text(render(default_image()), encoding="utf-8")


if __name__ == "__main__":
    main()
