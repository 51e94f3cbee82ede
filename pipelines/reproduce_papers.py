"""python pipelines/reproduce_papers.py --output DIR

Runs the experiments of the DPNE and DPSU papers and ours beside them: CSV and a summary. NOT
private: for public data only. `--titles FILE` names texts that do not ship with the repository.
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]

if __name__ == "__main__":
    # The experiments are in the repository, not in the installed package.
    sys.path.insert(0, str(ROOT))
    from pipelines.experiments.papers import main

    sys.exit(main(sys.argv[1:], ROOT / "pipelines" / "data"))
