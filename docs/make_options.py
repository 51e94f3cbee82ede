"""python docs/make_options.py

Writes docs/options.md from the tables of options that the programs' parsers and launch forms use.
"""

import pathlib
import re
from collections.abc import Mapping, Sequence

from beam_dpne.cli.options import Option
from beam_dpne.cli.options_by_command import (
    ACCOUNT,
    AUDIT,
    BAYESIAN,
    EVALUATE,
    EXPORT,
    NGRAMS,
    PLAN,
    REPORT,
    SET_UNION,
)

PAGE = pathlib.Path(__file__).with_name("options.md")
COMMANDS: Mapping[str, Mapping[str, Sequence[Option]]] = {
    "ngrams": NGRAMS,
    "set-union": SET_UNION,
    "bayesian": BAYESIAN,
    "plan": PLAN,
    "evaluate": EVALUATE,
    "account": ACCOUNT,
    "export": EXPORT,
    "report": REPORT,
    "audit": AUDIT,
}
_ABOUT = {
    "ngrams": "It releases the n-grams that many users share.",
    "set-union": "It releases the items that many users share.",
    "bayesian": "It estimates a probability for every n-gram of a public vocabulary.",
    "plan": "It shows how many users an n-gram needs, forecasts a release from public text, and writes "
    "the plan to a file. It reads no private data.",
    "evaluate": "It compares a release with the private data that it came from. Its output is not "
    "private, and is for the operator only.",
    "account": "It adds up what several releases about the same users have spent, and keeps a budget. "
    "It reads ledgers only.",
    "export": "It writes a release in the format of another system. It reads the release alone.",
    "report": "It describes a release and its guarantee in one file, made from the release alone.",
    "audit": "It attacks the mechanism of a plan with made-up data, and reads no other data. Its exit "
    "status is 3 if a lower bound is above the claim, and 4 if a planted mistake went unnoticed.",
}
_BEGINNING = """# All options

This page is generated from the same tables as the parsers, the help texts and the launch forms:
`python docs/make_options.py` writes it, and a test compares it with them. `beam-dpne COMMAND --help`
prints the same text. Options of Apache Beam, such as `--runner`, may follow the options of `ngrams`,
`set-union` and `bayesian`; the embedded runner (`FnApiRunner`) is the default.

The exit status is 0 if the command is done, 1 if the run failed, 2 if a parameter is wrong, 130 if the
command was interrupted, 143 if it was terminated and 129 if its terminal was closed; an engine's job
is cancelled in the last three cases. A second signal ends the command at once. A failed run publishes
nothing: a directory without `ledger.json` is no release. If a worker dies just after it wrote the
ledger, the release is complete all the same, and the message asks you to look for the ledger.
"""


def escaped(text: str) -> str:
    """Returns a help text as Markdown that shows the same characters."""
    return re.sub(r"([*<>|\[\]])", r"\\\1", text)


def shown_name(option: Option) -> str:
    """Returns the name of an option as it is given on the command line."""
    return option.name.upper() if option.positional else f"--{option.name}"


def options_page() -> str:
    """Returns the page of all options."""
    parts = [_BEGINNING]
    for command, groups in COMMANDS.items():
        parts.append(f"\n## beam-dpne {command}\n\n{_ABOUT[command]}\n")
        for title, options in groups.items():
            rows = [
                f"| `{shown_name(option)}` | {escaped(option.default_text)} | "
                f"{escaped(option.help)} |\n"
                for option in options
            ]
            head = f"\n### {command}: {title}\n\n| option | default | meaning |\n|---|---|---|\n"
            parts.append(head + "".join(rows))
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(options_page(), encoding="utf-8")
