"""python pipelines/reproduce_papers.py --output DIR

Runs the experiments of the DPNE and DPSU papers and ours beside them: CSV, PNG and a summary. NOT
private: for public data only. `--titles FILE` names texts that do not ship with the repository.
"""

import pathlib
import sys

from beam_dpne.cli.reproduce import main

DATA = pathlib.Path(__file__).parent / "data"

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], DATA))
