"""A worker process that opens a stored set: `python -m tests.support.set_worker ENCODED_IN_HEX`.

It says on stdout that the set is open, and at each line that it reads on stdin which keys it has.
"""

import sys

from beam_dpne.elements.batches import StandingGramsCoder
from tests.support import far_files  # Registers the scheme.

if __name__ == "__main__":
    standing = StandingGramsCoder().decode(bytes.fromhex(sys.argv[1]))
    print(f"opened {far_files.far('')}", flush=True)
    for _ in sys.stdin:
        print(standing.keys.tolist(), flush=True)
