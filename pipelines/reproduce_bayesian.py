"""python pipelines/reproduce_bayesian.py --output DIR

Runs the experiments of "N-grams Bayesian Differential Privacy" and ours beside them: CSV, PNG and a
summary. NOT private: for public data only. `--titles FILE` and `--public FILE` name others than the
sample and the public counts that ship with the repository.
"""

import pathlib
import sys

from beam_dpne.cli.reproduce_bayesian import main

DATA = pathlib.Path(__file__).parent / "data"

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], DATA))
