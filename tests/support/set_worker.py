"""A worker process that opens a stored set: `python -m tests.support.set_worker ENCODED_IN_HEX`.

It says on stdout that the set is open, and at each line that it reads on stdin which keys it has.
"""

import sys

from beam_dpne.elements.coders import BatchCoder
from beam_dpne.ngrams.elements import PresentGrams
from tests.support import far_files  # Registers the scheme.

if __name__ == "__main__":
    present = BatchCoder(PresentGrams).decode(bytes.fromhex(sys.argv[1]))
    print(f"opened {far_files.far('')}", flush=True)
    for _ in sys.stdin:
        print(present.keys.tolist(), flush=True)
