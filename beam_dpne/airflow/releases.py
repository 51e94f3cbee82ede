"""Releases as a task sees them: found by their ledgers, checked, and described for what comes next.

Storage is reached by Airflow's own object storage, with Airflow's connections.
"""

import hashlib
from typing import Any, cast

from airflow.sdk import ObjectStoragePath
from airflow.sdk.exceptions import AirflowFailException

LEDGER = "ledger.json"
# A temporary folder of a run, which its launcher names so.
_RUN_FOLDER = ".beam_dpne-"


def find_ledger(directory: str) -> dict[str, Any] | None:
    """Returns the ledger of the release in a directory, or None if there is none.

    Raises:
      AirflowFailException: There is a `ledger.json` that is not a whole ledger of beam-dpne. No try may
        go on beside it.
    """
    path = ObjectStoragePath(directory) / LEDGER
    # A listing that this process has kept could miss the ledger.
    path.fs.invalidate_cache()
    return read_ledger(path) if path.exists() else None


def read_ledger(path: ObjectStoragePath) -> dict[str, Any]:
    """Returns a ledger.

    Raises:
      AirflowFailException: It is not a whole ledger of a schema that this version reads.
    """
    # Beam takes two seconds to load, and the parsing of DAGs imports this module.
    from beam_dpne.errors import ReleaseError
    from beam_dpne.release.files import parse_ledger

    try:
        return parse_ledger(path.read_bytes(), str(path))
    except ReleaseError as error:
        raise AirflowFailException(f"{error} Look at it before going on.") from None


def release_around(path: str) -> str | None:
    """Returns the directory of the release that a path is in, or None.

    The path itself may be that directory, and it may be a glob.
    """
    scheme, separator, rest = path.rpartition("://")
    while rest.strip("/"):
        folder = f"{scheme}{separator}{rest}"
        if not set("*?[") & set(rest) and (ObjectStoragePath(folder) / LEDGER).exists():
            return folder
        rest = rest.rstrip("/").rpartition("/")[0]
    return None


def described(directory: str, ledger: dict[str, Any]) -> dict[str, Any]:
    """Checks that a release is whole, and returns the part of its ledger that is worth handing on.

    Returns:
      JSON types: `path`, `ledger` (its path), `program`, `epsilon`, `delta`, `released` (the number of
      rows), for n-grams `lengths` (the same by length), and `parts` (name, rows, SHA-256, bytes). All
      of it is public, as the ledger is.

    Raises:
      AirflowFailException: A part is missing or damaged.
    """
    for part in ledger["parts"]:
        path = ObjectStoragePath(directory) / part["name"]
        if not path.exists() or _sha256(path) != part["sha256"]:
            raise AirflowFailException(f"{path} is missing or damaged; the ledger lists it.")
    by_length = {str(length["length"]): length["released"] for length in ledger.get("lengths", ())}
    return {
        "path": directory,
        "ledger": f"{directory}/{LEDGER}",
        "program": ledger["program"],
        "epsilon": ledger["guarantee"]["epsilon"],
        "delta": ledger["guarantee"]["delta"],
        "released": sum(part["rows"] for part in ledger["parts"]),
        **({"lengths": by_length} if by_length else {}),
        "parts": ledger["parts"],
    }


def delete_run_folder(folder: str) -> None:
    """Deletes the temporary folder of a run, without which the run's job does not publish any more.

    Raises:
      ValueError: The path is not one of a temporary folder.
    """
    if not folder.rstrip("/").rpartition("/")[2].startswith(_RUN_FOLDER):
        raise ValueError(f"folder must be the temporary folder of a run, got {folder}.")
    path = ObjectStoragePath(folder)
    if path.exists():
        path.rmdir(recursive=True)


def _sha256(path: ObjectStoragePath) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := cast(bytes, file.read(1 << 20)):
            digest.update(block)
    return digest.hexdigest()
