"""python pipelines/set_union.py --input FILE --output DIR --epsilon 3 --delta 1e-7

Launches `beam-dpne set-union`; what templates and schedulers start.
"""

import sys

from beam_dpne.cli.main import program

if __name__ == "__main__":
    sys.exit(program(["set-union", *sys.argv[1:]]))
