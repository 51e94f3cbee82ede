"""What a program does with arguments that are not its own: they name a runner, or are mistakes."""

import argparse
from collections.abc import Collection, Sequence

from beam_dpne.errors import UsageError
from beam_dpne.validation import did_you_mean

# The name of no runner: the local driver runs the job, which it also does without a name.
LOCAL = "local"
# Beam's embedded runner, which does the work in this process, by its names in small letters; what Beam
# calls DirectRunner may start Prism, or download it.
EMBEDDED = ("fnapirunner", "embedded", "directrunner")
# Engines whose worker is the launcher unless they are told otherwise. Beam's own DirectRunner, which
# Beam YAML takes, is Prism or the embedded runner.
_WITH_LAUNCHER = ("prismrunner", "switchingdirectrunner")
# Engines that find their workers by Beam's option environment_type.
_WITH_ENVIRONMENT = (*_WITH_LAUNCHER, "portablerunner", "flinkrunner", "sparkrunner")


def runner_of(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """Returns the name of the runner of Beam, or None for the local driver; and the other arguments."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--runner", default=LOCAL)
    parsed, others = parser.parse_known_args(list(arguments))
    name = None if parsed.runner.lower() == LOCAL else parsed.runner
    return name, others


def works_here(runner: str, environment_type: str | None) -> bool:
    """Whether the launcher's process does all the work, alone or as the one worker of an engine.

    Args:
      runner: the name of the runner.
      environment_type: Beam's option of this name, by which an engine finds workers; None if it is not
        given.

    >>> works_here("DirectRunner", None), works_here("PrismRunner", None)
    (True, True)
    >>> works_here("PortableRunner", "loopback"), works_here("PortableRunner", None)
    (True, False)
    >>> works_here("DataflowRunner", "loopback")
    False
    """
    name = runner.rpartition(".")[2].lower()
    if name in (LOCAL, *EMBEDDED):
        return True
    if environment_type is None:
        return name in _WITH_LAUNCHER
    return name in _WITH_ENVIRONMENT and environment_type.upper() == "LOOPBACK"


def misspelt(arguments: Sequence[str], known: Collection[str]) -> list[str]:
    """Returns the options among arguments that are nearly one of the known options."""
    options = [each for each in arguments if each.startswith("--")]
    return [each for each in options if did_you_mean(_name_of(each), known)]


def _name_of(argument: str) -> str:
    return argument.partition("=")[0].lstrip("-")


def unknown_argument(argument: str, known: Collection[str]) -> UsageError:
    """Returns the error about an argument that is none of the known options."""
    option, _, _ = argument.partition("=")
    if option.startswith("--") and _name_of(argument) in known:
        return UsageError(f"{option} must be left out: its value is given by itself. See --help.")
    if option.startswith("-"):
        hint = did_you_mean(_name_of(argument), known, "--")
        return UsageError(f"there is no option {option}.{hint} See --help.")
    remedy = "See --help."
    if "input" in known:
        remedy = "If a glob became it, quote the glob, or give --input once for each file."
    if "input" in known and "release" in known:
        remedy = f"A release is given by --release {argument}. {remedy}"
    return UsageError(f"there is no argument {argument}. {remedy}")
