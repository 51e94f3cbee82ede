"""python pipelines/ngrams.py --input FILE --output DIR --epsilon 4 --delta 1e-7

Launches `beam-dpne ngrams`; what templates and schedulers start.
"""

import sys

from beam_dpne.cli.main import program

if __name__ == "__main__":
    sys.exit(program(["ngrams", *sys.argv[1:]]))
