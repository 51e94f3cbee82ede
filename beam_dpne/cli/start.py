"""The start of the program `beam-dpne`."""

from collections.abc import Sequence

from beam_dpne.cli import loading


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `beam-dpne` as the whole of this process, and returns the exit status.

    Args:
      arguments: by default those of the process.
    """

    def program() -> int:
        from beam_dpne.cli.main import main

        return main(arguments)

    return loading.run(program)
