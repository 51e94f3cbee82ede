"""`beam-dpne plan`, and how the options make a plan."""

import argparse
import pathlib

from beam_dpne.cli import display
from beam_dpne.cli.errors import UsageError
from beam_dpne.cli.options import PRIVACY, with_defaults
from beam_dpne.plan import PrivacyPlan

_SINGLE = tuple(option for option in PRIVACY if option.name != "plan")


def run_command(given: argparse.Namespace, beam_arguments: list[str]) -> None:
    """Prints the table of a plan, and writes it where asked."""
    if beam_arguments:
        raise UsageError(f"beam-dpne plan has no option {beam_arguments[0].split('=')[0]}.")
    plan = plan_from_options(given)
    if given.output is not None:
        _write(given.output, plan.to_json())
    display.print_plan(plan)
    if given.output is not None:
        display.print_notice(f"beam-dpne: the plan is in {given.output}.")


def plan_from_options(given: argparse.Namespace) -> PrivacyPlan:
    """Returns the plan that the options describe, one by one or as a file.

    Raises:
      UsageError: if a parameter is missing, wrong, or given twice.
    """
    if given.plan is None:
        return _plan_from_single(given)
    both = [option.name for option in _SINGLE if getattr(given, option.name) is not None]
    if both:
        raise UsageError(f"--plan stands for the single parameters; leave out --{both[0]}.")
    return PrivacyPlan.from_json(_read(given.plan))


def _plan_from_single(given: argparse.Namespace) -> PrivacyPlan:
    values = with_defaults(given, _SINGLE)
    missing = [name for name in ("epsilon", "delta") if values[name] is None]
    if missing:
        raise UsageError(
            f"{' and '.join(missing)} must be given, there is no default: --epsilon is the privacy "
            "budget of the whole run, 1 to 4 is common for text; --delta is well below one over "
            "the number of users, e.g. 1e-7 for a million users."
        )
    return PrivacyPlan(**values)


def _read(path: str) -> str:
    """Reads a plan, local or on any Beam file system."""
    file = _file(path)
    try:
        return file.read_bytes().decode("utf-8")
    except Exception as error:
        raise UsageError(
            f"plan cannot be read, got {path} ({type(error).__name__}). Name a JSON file as written "
            "by `beam-dpne plan`."
        ) from None


def _write(path: str, text: str) -> None:
    file = _file(path)
    try:
        file.write_bytes(text.encode("utf-8"))
    except Exception as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise UsageError(f"output cannot be written, got {path} ({why}).") from None


def _file(path: str) -> "pathlib.Path | _RemoteFile":
    """Returns what reads and writes a file; raises AccessError if no storage of its kind can be."""
    return _RemoteFile(path) if "://" in path else pathlib.Path(path)


class _RemoteFile:
    """A file on one of Beam's file systems; Beam is imported late, since it takes two seconds."""

    def __init__(self, path: str) -> None:
        from apache_beam.io.filesystem import CompressionTypes
        from apache_beam.io.filesystems import FileSystems

        from beam_dpne.io.access import check_access
        from beam_dpne.io.schemes import connect_anonymously_to_emulators

        connect_anonymously_to_emulators()
        check_access([path], [])
        self._systems = FileSystems
        self._where = {"path": path, "compression_type": CompressionTypes.UNCOMPRESSED}

    def read_bytes(self) -> bytes:
        with self._systems.open(**self._where) as file:
            return file.read()

    def write_bytes(self, data: bytes) -> None:
        with self._systems.create(**self._where) as file:
            file.write(data)
