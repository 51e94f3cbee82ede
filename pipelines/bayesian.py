"""python pipelines/bayesian.py --public FILE --input FILE --output DIR --epsilon 0.2 --delta 1e-7

Launches `beam-dpne bayesian`; what templates and schedulers start.
"""

import sys

from beam_dpne.cli.main import program

if __name__ == "__main__":
    sys.exit(program(["bayesian", *sys.argv[1:]]))
