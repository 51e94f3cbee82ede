"""`beam-dpne check`: prints what a run would read, and what may be wrong with it."""

from beam_dpne.cli import display
from beam_dpne.jobs import console
from beam_dpne.jobs.checking import HEADING, check_input
from beam_dpne.jobs.made import Made
from beam_dpne.jobs.parameters import Quiet


def check(made: Made, beam_arguments: list[str]) -> None:
    """Reads the input as a run does, and prints what is in it and what may be wrong.

    Raises:
      BeamDpneError, ValueError, FileNotFoundError: a run would be refused for the same reason.
    """
    found = check_input(made, beam_arguments, console.showing(quiet=made[Quiet].quiet))
    display.print_line(HEADING)
    display.print_line(found.about)
    display.print_table("Input", [found.numbers])
    for problem in found.problems:
        display.print_line(f"· {problem}")
