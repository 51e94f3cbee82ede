"""`beam-dpne ngrams`, `set-union` and `bayesian`: the run, and what is printed of its release."""

import sys
import time

from beam_dpne.cli import display, streams
from beam_dpne.documents.tokenizers import Tokenizer
from beam_dpne.errors import kind_of
from beam_dpne.jobs import console
from beam_dpne.jobs.inputs import SECRET
from beam_dpne.jobs.made import Made
from beam_dpne.jobs.parameters import Quiet, Rejecting, Writing
from beam_dpne.jobs.preparing import prepare
from beam_dpne.jobs.running import run as run_job
from beam_dpne.release.reading import Release, read_release


def run(
    made: Made, beam_arguments: list[str], tokenizer: Tokenizer | None = None
) -> Release | None:
    """Releases what the parameters ask for, and prints it.

    Args:
      made: the groups of parameters of the command.
      beam_arguments: options of Beam.
      tokenizer: replaces the one that the parameters name.

    Returns:
      The release, or None if only a template was written, or the release cannot be read.

    Raises:
      RunError: if the run failed; a release is complete only if its ledger is there.
    """
    quiet = made[Quiet].quiet
    showing = console.showing(quiet=quiet)
    prepared = prepare(made, beam_arguments, showing, tokenizer)
    started = time.monotonic()
    ended = run_job(made, prepared, showing)
    if ended.is_template:
        return None
    output = made[Writing].output
    release = None
    try:
        if ended.records is not None:
            rejects = made[Rejecting].rejects
            for told in ended.records.told(rejects, "--rejects DIR", quiet=quiet):
                console.print_notice(f"{told}. {SECRET}")
        release = read_release(output)
        display.print_release(release, output, time.monotonic() - started, quiet=quiet)
        sys.stdout.flush()
    except BaseException as error:
        # Whoever repeated this run would spend its budget twice, so its display cannot fail it.
        streams.drop_output()
        streams.say_whole(f"It could not be shown ({kind_of(error)}).")
    if not quiet:
        streams.say_published(output)
    return release
