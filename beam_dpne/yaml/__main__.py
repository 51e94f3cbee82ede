"""python -m beam_dpne.yaml [--package REQUIREMENT]

Prints the path of the provider listing in this installation, for `- include: PATH` in a pipeline. With
`--package`, it prints a listing for an environment without this package instead: Beam then installs the
package in an environment made for it.
"""
# ruff: noqa: D415

import argparse
import pathlib

LISTING = pathlib.Path(__file__).with_name("provider.yaml")


def listing(package: str) -> str:
    """Returns a listing by which Beam installs this package.

    Args:
      package: requirement of pip, or path of a wheel.
    """
    installed = "- type: pythonPackage\n  config:\n    packages:\n      - " + package
    return LISTING.read_text(encoding="utf-8").replace("- type: python\n  config: {}", installed)


def main(arguments: list[str] | None = None) -> None:
    """Prints a path or a listing."""
    parser = argparse.ArgumentParser(prog="python -m beam_dpne.yaml", description=__doc__)
    parser.add_argument(
        "--package", help="print a listing for which Beam installs this requirement or wheel"
    )
    package = parser.parse_args(arguments).package
    print(LISTING if package is None else listing(package).rstrip())


if __name__ == "__main__":
    main()
