"""python pipelines/msnbc.py

Runs the paper's MSNBC experiment on the data beside this file and prints it beside Table 5;
`--strategy adaptive` runs ours under the same privacy.
"""

import pathlib
import sys

from beam_dpne.cli.msnbc import main

DATA = pathlib.Path(__file__).parent / "data" / "msnbc990928.seq.gz"

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], DATA))
