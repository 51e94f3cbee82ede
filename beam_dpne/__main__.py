"""`python -m beam_dpne`: the program `beam-dpne`, where the folder of programs is not in PATH."""

import sys

from beam_dpne.cli.main import program

if __name__ == "__main__":
    sys.exit(program())
