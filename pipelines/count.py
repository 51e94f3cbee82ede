"""python pipelines/count.py --phrases FILE --input FILE --output DIR --epsilon 1 --delta 1e-6

Launches `beam-dpne count`; what templates and schedulers start.
"""

import sys

from beam_dpne.cli.main import program

if __name__ == "__main__":
    sys.exit(program(["count", *sys.argv[1:]]))
