"""python -m beam_dpne.yaml [--package REQUIREMENT | serve --port PORT]

Prints the path of the provider listing in this installation, for `- include: PATH` in a pipeline. With
`--package`, it prints a listing for an environment without this package instead: Beam then installs the
package in an environment made for it. With `serve`, it starts an expansion service for pipelines of
other languages, which constructs the transforms of this version and nothing else.
"""
# ruff: noqa: D415

import argparse
import functools
import logging
import pathlib
import sys

from beam_dpne import yaml
from beam_dpne.errors import UsageError
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
    """Prints a path or a listing, or serves."""
    parser = argparse.ArgumentParser(prog="python -m beam_dpne.yaml", description=__doc__)
    parser.add_argument(
        "--package",
        nargs="?",
        const=f"beam-dpne=={__version__}",
        help="print a listing for which Beam installs this requirement or wheel "
        f"(beam-dpne=={__version__} if none is given)",
    )
    commands = parser.add_subparsers(dest="command", metavar="serve")
    _add_serve(commands.add_parser("serve", help="start an expansion service"))
    given = vars(parser.parse_args(arguments))
    package, command = given.pop("package"), given.pop("command")
    if command == "serve":
        from beam_dpne.yaml.service import serve

        logging.basicConfig(level=logging.INFO)
        try:
            serve(**given, ready=functools.partial(print, flush=True))
        except UsageError as error:
            sys.exit(str(error))
    elif package is None:
        print(LISTING)
    else:
        print(listing(package), end="")


def _add_serve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=int, required=True, help="port to listen on")
    parser.add_argument(
        "--host",
        default="localhost",
        help="name or address to listen on; the default is localhost",
    )
    parser.add_argument(
        "--serve_loopback_worker",
        action="store_true",
        help="run the steps in this process too, for programs on this machine; it needs localhost",
    )
    parser.add_argument("--environment_type", help="workers that run the steps, e.g. EXTERNAL")
    parser.add_argument(
        "--environment_config", help="their configuration, e.g. localhost:50000 for EXTERNAL"
    )
    parser.add_argument(
        "--tokenizer",
        dest="tokenizers",
        metavar="PACKAGE.MODULE:FUNCTION",
        action="append",
        default=[],
        help="tokenizer of yours that pipelines may name; give the option again for another one",
    )
    parser.add_argument(
        "--folder",
        dest="folders",
        metavar="FOLDER",
        action="append",
        default=[],
        help="folder in which pipelines may name files to read and write; whoever reaches the port can "
        "do so as the user of the service. Give the option again for another one.",
    )


if __name__ == "__main__":
    main()
