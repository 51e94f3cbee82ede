"""The start of the program `beam-dpne`.

While its modules are loaded, Ctrl-C ends it without a traceback; then `Interrupts` takes signals.
"""

import signal


def main() -> int:
    """Runs `beam-dpne` with the arguments of the process, and returns the exit status."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from beam_dpne.cli.main import main as run

    return run()
