"""python pipelines/reproduce_bayesian.py --output DIR

Runs the experiments of "N-grams Bayesian Differential Privacy" and ours beside them: CSV and a
summary. NOT private: for public data only. `--titles FILE` and `--public FILE` name others than the
sample and the public counts that ship with the repository.
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]

if __name__ == "__main__":
    # The experiments are in the repository, not in the installed package.
    sys.path.insert(0, str(ROOT))
    from pipelines.experiments.bayesian import main

    sys.exit(main(sys.argv[1:], ROOT / "pipelines" / "data"))
