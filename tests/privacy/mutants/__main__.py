"""Plants each mistake in a copy of the package, and reports which of them no test notices.

    .venv/bin/python -m tests.privacy.mutants [--only NAME ...] [--jobs N]

Exit status: 0 if every mistake is noticed or argued to be harmless, 1 if one survives.
"""

import argparse
import os
import pathlib
import sys
import time
from collections.abc import Sequence

from tests.privacy.mutants import MUTANTS, SUITE
from tests.privacy.mutants.run import KILLED, Result, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the mistakes that the arguments choose; returns the exit status."""
    given = _parser().parse_args(arguments)
    chosen = [mutant for mutant in MUTANTS if _is_chosen(mutant.name, mutant.file, given.only)]
    if not chosen:
        print(f"only must match the name or the file of a mutant, got {' '.join(given.only)}.")
        return 2
    start = time.monotonic()
    results = run(SUITE, chosen, jobs=given.jobs, report=_print)
    bad = [result for result in results if not result.is_fine]
    argued = sum(result.mutant.harmless is not None for result in results)
    killed = sum(result.outcome == KILLED for result in results)
    print(
        f"{len(results)} mutants, {killed} killed, {argued} argued to be harmless, {len(bad)} not "
        f"noticed or broken; {(time.monotonic() - start) / 60:.1f} minutes"
    )
    for result in bad:
        print(
            f"{result.outcome} {result.mutant.name} in {result.mutant.file}: {result.mutant.matters}"
        )
        if result.by:
            print(f"  {result.by}")
    return int(bool(bad))


def _is_chosen(name: str, file: str, only: Sequence[str]) -> bool:
    """Whether one of the words is a part of the name or of the file's path; all are without words."""
    return not only or any(word in name or word in file for word in only)


def _print(result: Result) -> None:
    place = pathlib.PurePath(result.mutant.file).stem
    print(
        f"{result.outcome:9} {result.seconds:6.1f} s  {place:18} {result.mutant.name}"
        + (f"  ({result.by.rpartition('::')[2]})" if result.by else ""),
        flush=True,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.privacy.mutants", description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="parts of names or files")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="copies at work")
    return parser


if __name__ == "__main__":
    sys.exit(main())
