"""A Dagster asset with one release for each month; its partition names the directory."""

import os
import subprocess
import sys

from dagster import (
    AssetExecutionContext,
    Definitions,
    MaterializeResult,
    MonthlyPartitionsDefinition,
    RetryPolicy,
    asset,
)

from beam_dpne import read_release
from beam_dpne.errors import ReleaseError

MESSAGES = os.environ.get("MESSAGES", "/srv/messages/*.parquet")
RELEASES = os.environ.get("RELEASES", "/srv/releases")
BUDGET = ("--epsilon", "1", "--delta", "1e-7")  # Of each month anew, for the same people.


@asset(
    partitions_def=MonthlyPartitionsDefinition(start_date="2026-01-01"),
    retry_policy=RetryPolicy(max_retries=2, delay=60),
)
def released_ngrams(context: AssetExecutionContext) -> MaterializeResult:
    """N-grams that many users share, under user-level differential privacy."""
    output = f"{RELEASES}/{context.partition_key}"
    try:
        release = read_release(output)  # An earlier try has published it.
    except ReleaseError:
        program = [sys.executable, "-m", "beam_dpne", "ngrams", "--quiet"]
        subprocess.run([*program, "--input", MESSAGES, "--output", output, *BUDGET], check=True)
        release = read_release(output)
    release.verify()
    spent = {"epsilon": release.epsilon, "delta": release.delta}
    return MaterializeResult(metadata={**spent, "rows": release.num_rows, "path": release.path})


defs = Definitions(assets=[released_ngrams])
