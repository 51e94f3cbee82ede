"""Results of runs, one file for each; a run whose result is there is not made again."""

import contextlib
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from beam_dpne.evaluation.secrecy import PUBLIC, SECRET, Secrecy
from pipelines.experiments.corpora import Source
from pipelines.experiments.experiments import Row
from pipelines.experiments.runs import AnyRun, Result, fingerprint


class Results:
    """A directory of results, in files named by the fingerprints of their runs."""

    def __init__(self, folder: pathlib.Path, sources: Mapping[str, Source], keys: str):
        """Makes the directory if needed.

        Args:
          folder: Directory of the results.
          sources: The data by name.
          keys: Text that identifies the run keys for which numbers of keys stand.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._sources = sources
        self._keys = keys
        self._read: dict[AnyRun, Result] = {}

    def find(self, run: AnyRun) -> Result | None:
        """Returns the result of a run, or None if there is none."""
        if run not in self._read:
            with contextlib.suppress(FileNotFoundError):
                text = self._path(run).read_text(encoding="utf-8")
                self._read[run] = json.loads(text)["result"]
        return self._read.get(run)

    def of(self, row: Row) -> list[Result]:
        """Returns the results of a row that are there."""
        found = (self.find(run) for run in row.runs)
        return [result for result in found if result is not None]

    def keep(self, run: AnyRun, result: Mapping[str, Any]) -> None:
        """Writes a result as a whole or not at all."""
        self._read.pop(run, None)
        notice = self._sources[run.corpus].secrecy.notice
        whole = {"notice": notice, "run": run.parameters(), "result": result}
        write_file(self._path(run), json.dumps(whole, indent=1, ensure_ascii=False) + "\n")

    def _path(self, run: AnyRun) -> pathlib.Path:
        name = fingerprint(run, self._sources[run.corpus].digest, self._keys)
        return self._folder / f"{name}.json"


def write_marked(folder: pathlib.Path, name: str, data: str | bytes, secrecy: Secrecy) -> str:
    """Writes a file under a name with its mark, and removes it under the name of another mark.

    Returns:
      The marked name.
    """
    marked = secrecy.prefix + name
    write_file(folder / marked, data)
    for other in (SECRET, PUBLIC):
        if other.prefix != secrecy.prefix:
            (folder / (other.prefix + name)).unlink(missing_ok=True)
    return marked


def write_file(path: pathlib.Path, data: str | bytes) -> None:
    """Writes a file under a temporary name, then renames it."""
    written = path.with_name(f".{path.name}.tmp")
    written.write_bytes(data.encode() if isinstance(data, str) else data)
    os.replace(written, path)
