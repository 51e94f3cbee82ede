"""Public texts dealt to made-up users, in a process whose memory is not the benchmarks'.

python -m tests.benchmarks.dealt TEXTS TARGET
"""

import pathlib
import sys

from pipelines.experiments.dealing import WORDS_OF_LONG, write_dealt

if __name__ == "__main__":
    write_dealt(sys.argv[1], WORDS_OF_LONG, pathlib.Path(sys.argv[2]))
