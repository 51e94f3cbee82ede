"""python -m beam_dpne.yaml [--package REQUIREMENT]

Prints the path of the provider listing in this installation, for `- include: PATH` in a pipeline. With
`--package`, it prints a listing for an environment without this package instead: Beam then installs the
package in an environment made for it.
"""
# ruff: noqa: D415

import argparse
import pathlib

from beam_dpne import yaml
from beam_dpne.version import __version__

LISTING = pathlib.Path(__file__).with_name("provider.yaml")


def listing(package: str | None = None) -> str:
    """Returns the provider listing of this version.

    Args:
      package: requirement of pip, or path of a wheel, by which Beam installs this package; None if it
        is installed where the pipeline is built.
    """
    lines = ["- type: python", "  config: {}"]
    if package is not None:
        lines = ["- type: pythonPackage", "  config:", "    packages:", f"      - {package}"]
    names = [
        f"    {name}: beam_dpne.yaml.{yaml.version_name(__version__)}.{name}"
        for name in yaml.__all__
    ]
    return "\n".join([*lines, "  transforms:", *names, ""])


def main(arguments: list[str] | None = None) -> None:
    """Prints a path or a listing."""
    parser = argparse.ArgumentParser(prog="python -m beam_dpne.yaml", description=__doc__)
    parser.add_argument(
        "--package",
        nargs="?",
        const=f"beam-dpne=={__version__}",
        help="print a listing for which Beam installs this requirement or wheel "
        f"(beam-dpne=={__version__} if none is given)",
    )
    package = parser.parse_args(arguments).package
    print(LISTING if package is None else listing(package), end="\n" if package is None else "")


if __name__ == "__main__":
    main()
