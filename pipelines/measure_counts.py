"""python pipelines/measure_counts.py [--input FILE] [--epsilon 4] [--max_length 7] [--keys 3]

Measures how well released numbers of users agree with the truth, over several run keys, beside the
scores of the paper's algorithm, and how many n-grams the counts cost. NOT private: for public data only.
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]

if __name__ == "__main__":
    # The experiments are in the repository, not in the installed package.
    sys.path.insert(0, str(ROOT))
    from pipelines.experiments.counts import main

    sys.exit(main(sys.argv[1:], ROOT / "pipelines" / "data"))
