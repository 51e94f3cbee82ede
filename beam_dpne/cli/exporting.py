"""`beam-dpne export`: a release in the format of another system."""

import argparse

from beam_dpne.cli import display
from beam_dpne.cli.options import options_of, with_defaults
from beam_dpne.cli.options_by_command import EXPORT
from beam_dpne.errors import UsageError
from beam_dpne.exports.writing import KINDS, export


def run_command(parsed: argparse.Namespace, _beam_arguments: list[str]) -> None:
    """Exports a release to one file, and prints where it is and what is not in it."""
    values = with_defaults(parsed, options_of(EXPORT))
    if not values["release"]:
        raise UsageError("release must be given: beam-dpne export RELEASE --to KIND --output FILE.")
    for name in ("to", "output"):
        if not values[name]:
            raise UsageError(f"{name} must be given: --{name} {_EXAMPLES[name]}.")
    names = [name for kind in KINDS.values() for name in kind.settings]
    rendered = export(
        values["release"],
        values["to"],
        values["output"],
        overwrite=values["overwrite"],
        **{name: values[name] for name in names},
    )
    kind = KINDS[values["to"]]
    display.print_notice(f"beam-dpne: {values['output']} has the release as {kind.holds}.")
    display.print_notice(
        f"beam-dpne: the SHA-256 of its ledger is {rendered.source.ledger_sha256}."
    )
    for reason, count in rendered.left_out.items():
        display.print_notice(f"beam-dpne: left out: {count:,} {reason}.")


_EXAMPLES = {"to": "|".join(KINDS), "output": "FILE"}
