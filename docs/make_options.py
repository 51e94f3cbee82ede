"""The page of all parameters, which the build of the site makes from their definitions."""

import pathlib
import re

from beam_dpne.cli.commands import COMMANDS
from beam_dpne.validation import Parameter, parameters_of

PAGE = pathlib.Path(__file__).with_name("options.md")
_BEGINNING = """# All parameters

The build of the site makes this page from the definitions of the parameters. They are the options
of `beam-dpne`, the keys of Beam YAML and the fields of the Python objects alike. `beam-dpne COMMAND
--help` prints an example, what must be given and a line for each option; `--help-all` prints the text
of this page. Messages of `beam-dpne` name a parameter as its option (`--overwrite`). A list of numbers,
choices or columns has commas between its members; of other lists each member is given by an option of
its own (`--text_field title --text_field body`). `--plan FILE` names a JSON file that may hold any
parameter of its command, by its name; a parameter that is in the file must not be given as an option,
too. `plan PROGRAM` and `audit PROGRAM` take all parameters of that program's plan.

Options of Apache Beam, such as `--runner`, may follow the options of `ngrams`, `set-union` and
`bayesian`; the embedded runner (`FnApiRunner`) is the default.

The exit status is 0 if the command is done, 1 if the run failed, 2 if a parameter is wrong, 130 if
the command was interrupted and 143 if it was terminated; an engine's job is cancelled in the last
two cases. A failed run publishes nothing: a directory without `ledger.json` is no release. If a
worker dies just after it wrote the ledger, the release is complete all the same, and the message
asks you to look for the ledger.
"""


def escaped(text: str) -> str:
    """Returns a text as Markdown that shows the same characters."""
    return re.sub(r"([*<>|\[\]])", r"\\\1", text)


def page() -> str:
    """Returns the page."""
    parts = [_BEGINNING]
    for command in COMMANDS:
        parts.append(f"\n## beam-dpne {command.name}\n\n{command.description}\n")
        for title, kinds in command.load_groups().items():
            rows = [
                _row(each, command.positional) for kind in kinds for each in parameters_of(kind)
            ]
            head = "| parameter | values | default | meaning |\n|---|---|---|---|\n"
            table = f":::{{container}} parameters\n\n{head}{''.join(rows)}\n:::\n"
            parts.append(f"\n### {command.name}: {title}\n\n{table}")
    return "".join(parts)


def _row(each: Parameter, positional: str) -> str:
    shown = each.name.upper() if each.name == positional else f"--{each.name}"
    cells = (each.must_be, each.shown_default, each.help)
    return f"| `{shown}` | {' | '.join(map(escaped, cells))} |\n"
