"""Records the releases under fixed keys anew: `python -m tests.golden`.

It refuses while a recorded release has changed and the mechanism version has not: raise
`beam_dpne.key_context.MECHANISM_VERSION` first, and say in the commit why releases change.
"""

import json
import pathlib
import sys
import tempfile

from beam_dpne.key_context import MECHANISM_VERSION
from tests.golden.cases import CASES, release_digest, write_inputs

RECORDED = pathlib.Path(__file__).with_name("releases.json")


def recorded() -> dict:
    """The mechanism version and the digests that are kept."""
    return json.loads(RECORDED.read_text())


def changed(before: dict, releases: dict[str, str]) -> list[str]:
    """Names the recorded releases that are others now under the same mechanism version."""
    if before["mechanism_version"] != MECHANISM_VERSION:
        return []
    kept = before["releases"]
    return [name for name in releases if name in kept and kept[name] != releases[name]]


def main() -> int:
    """Releases every case and writes the digests."""
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        write_inputs(place)
        releases = {name: release_digest(name, place) for name in CASES}
    if RECORDED.exists() and (others := changed(recorded(), releases)):
        print("Changed under one mechanism version:", *others, file=sys.stderr)
        return 1
    whole = {"mechanism_version": MECHANISM_VERSION, "releases": releases}
    RECORDED.write_text(json.dumps(whole, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
