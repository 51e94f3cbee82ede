"""python pipelines/set_union.py --input FILE --output DIR --epsilon 3 --delta 1e-7

Launches `beam-dpne set-union`; what templates and schedulers start.
"""

import sys

from beam_dpne.cli.start import main

if __name__ == "__main__":
    sys.exit(main(["set-union", *sys.argv[1:]]))
