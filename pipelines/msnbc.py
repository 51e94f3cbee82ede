"""python pipelines/msnbc.py

Runs the paper's MSNBC experiment on the data beside this file and prints it beside Table 5;
`--strategy adaptive` runs ours under the same privacy.
"""

import pathlib
import sys

from beam_dpne.cli import loading

DATA = pathlib.Path(__file__).parent / "data" / "msnbc990928.seq.gz"


def main() -> int:
    """Runs the experiment with the arguments of the process."""
    from beam_dpne.cli import msnbc

    return msnbc.main(sys.argv[1:], DATA)


if __name__ == "__main__":
    sys.exit(loading.run(main))
