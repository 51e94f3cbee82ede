"""A Prefect flow with one release for each month, which is its parameter."""

import os
import subprocess
import sys

from prefect import flow, task

from beam_dpne import read_release
from beam_dpne.errors import ReleaseError

MESSAGES = os.environ.get("MESSAGES", "/srv/messages/*.parquet")
RELEASES = os.environ.get("RELEASES", "/srv/releases")
BUDGET = ("--epsilon", "1", "--delta", "1e-7")  # Of each month anew, for the same people.


@task(retries=2, retry_delay_seconds=60, persist_result=False)
def release_ngrams(output: str) -> None:
    """Makes a release, unless an earlier try has published it."""
    try:
        read_release(output)
    except ReleaseError:
        program = [sys.executable, "-m", "beam_dpne", "ngrams", "--quiet"]
        subprocess.run([*program, "--input", MESSAGES, "--output", output, *BUDGET], check=True)


@flow
def monthly_release(month: str) -> dict[str, float]:
    """Makes the release of a month; returns what it spent, from the ledger."""
    output = f"{RELEASES}/{month}"
    release_ngrams(output)
    release = read_release(output)
    release.verify()
    return {"epsilon": release.epsilon, "delta": release.delta}


if __name__ == "__main__":
    print(monthly_release(sys.argv[1]))
