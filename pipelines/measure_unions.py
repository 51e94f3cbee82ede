"""python pipelines/measure_unions.py [--input FILE] [--epsilon 3] [--limits 100,300,1000]
                                    [--policies sips,mad2r] [--keys 3] [--counts]

Measures how many items each policy of set union releases, and how many the default releases with more
shards, and in what time; or, with --counts, how good the numbers of users are. NOT private: for public
data only.
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]

if __name__ == "__main__":
    # The experiments are in the repository, not in the installed package.
    sys.path.insert(0, str(ROOT))
    from pipelines.experiments.unions import main

    sys.exit(main(sys.argv[1:], ROOT / "pipelines" / "data"))
