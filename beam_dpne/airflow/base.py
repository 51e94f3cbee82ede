"""The common part of the operators of all engines: fields, the directory of a run, and retries.

A task has one directory for each run. No try may publish a second release there: a try that finds the
release has nothing left to do, and the programs refuse a directory with files of another.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow.sdk import Asset, AssetAlias, BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from beam_dpne.airflow.budget import note_start, planned_budget
from beam_dpne.airflow.options import arguments, is_template, paths_of
from beam_dpne.airflow.releases import described, find_ledger, release_around

_FIELDS = ("input", "epsilon", "delta", "run_key_file")


class Release(BaseOperator):
    """A task that publishes one release in each run; an operator of an engine adds how it runs.

    The release is in `RELEASES/DAG/TASK/RUN`, followed by the index of a mapped task. The task returns
    the public part of its ledger (`releases.described`). It adds to the asset alias
    `beam-dpne/DAG/TASK` an asset with the address of the release; the extra of the event has the same
    without `path` and `parts`.

    Every field but `program` is a template. Fields that are no templates are checked when the DAG is
    parsed, and all of them before anything starts.

    Args:
      program: `ngrams`, `set-union` or `bayesian`.
      input: Path, glob, folder or address of the input, or a list of several.
      releases: Directory of the releases of all runs; an absolute path or an address.
      epsilon: Privacy budget ε of one run; None if `options` name a plan.
      delta: Privacy budget δ of one run; None if `options` name a plan.
      options: Other options of the program by name, e.g. `{"max_length": 3, "strict": True}`. None of
        them may come from the private data.
      run_key_file: File with the run key, for input that never changes; None for a fresh key in each
        try.
      budget: Folder of the budget that the run must not exceed; None checks nothing.
      kwargs: Fields of every operator, such as `task_id` and `retries`.

    Raises:
      ValueError: A field is wrong.
    """

    template_fields = (*_FIELDS, "releases", "options", "budget")
    # Whether paths must be on Google Cloud Storage, and the options that make no sense on the engine.
    remote: ClassVar[bool] = False
    without: Mapping[str, str] = {}

    def __init__(
        self,
        *,
        program: str,
        input: str | Sequence[str],
        releases: str,
        epsilon: float | str | None = None,
        delta: float | str | None = None,
        options: Mapping[str, Any] | None = None,
        run_key_file: str | None = None,
        budget: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.program = program
        self.input = input
        self.releases = releases
        self.epsilon = epsilon
        self.delta = delta
        self.options = options
        self.run_key_file = run_key_file
        self.budget = budget
        # Whether somebody has stopped the task; Airflow lets the task's code go on after `on_kill`.
        self.stopped = False
        self.alias = f"beam-dpne/{self.dag_id}/{self.task_id}"
        self.outlets = [*self.outlets, AssetAlias(self.alias)]
        self.arguments()

    def arguments(self) -> list[str]:
        """Returns the program's arguments without `--output`, as far as they are no templates.

        Raises:
          ValueError: One is wrong.
        """
        return arguments(
            self.program,
            fields={name: getattr(self, name) for name in _FIELDS},
            options=self.options,
            releases=self.releases,
            without=self.without,
            remote=self.remote,
        )

    def directory(self, context: Mapping[str, Any]) -> str:
        """Returns the directory of this run's release.

        Raises:
          AirflowFailException: The run's id would lead to another directory.
        """
        run_id = context["run_id"]
        if run_id in (".", "..") or "/" in run_id:
            raise AirflowFailException(f"run_id must be the name of a directory, got {run_id!r}.")
        parts = [self.releases.rstrip("/"), self.dag_id, self.task_id, run_id]
        index = getattr(context.get("ti"), "map_index", -1)
        return "/".join([*parts, str(index)] if index is not None and index >= 0 else parts)

    def engine_name(self, context: Mapping[str, Any]) -> str:
        """Returns the name of this run's job at an engine, which is the same for all tries."""
        name = hashlib.sha256(self.directory(context).encode()).hexdigest()[:16]
        return f"beam-dpne-{name}"

    def execute(self, context: Any) -> dict[str, Any]:
        """Publishes the release of this run, unless an earlier try has; returns its description."""
        self.stopped = False
        directory = self.directory(context)
        if find_ledger(directory) is None:
            self._check_before_start(directory)
            self.start(context)
        else:
            self.log.info(
                "An earlier try has published the release of this run; nothing is started."
            )
        return self.finish(context)

    def start(self, context: Any) -> None:
        """Runs the program to its end, or defers the task; the operator of each engine defines it."""
        raise NotImplementedError

    def finish(self, context: Any) -> dict[str, Any]:
        """Checks the release of this run, announces its asset, and returns its description.

        Raises:
          AirflowFailException: There is no release, it is damaged, or it is not of this task's program
            and budget.
        """
        directory = self.directory(context)
        ledger = find_ledger(directory)
        if ledger is None:
            raise AirflowFailException(
                f"{directory} has no ledger.json: nothing was published there."
            )
        epsilon, delta = self._spends()
        guarantee = ledger["guarantee"]
        found = (ledger["program"], guarantee["epsilon"], guarantee["delta"])
        if found != (self.program, epsilon, delta):
            raise AirflowFailException(
                f"{directory} holds a release of another program or budget than this task's, so it is "
                "not the release of this run. Two tasks must not have one directory."
            )
        result = described(directory, ledger)
        extra = {name: value for name, value in result.items() if name not in ("path", "parts")}
        uri = directory if "://" in directory else f"file://{directory}"
        context["outlet_events"][AssetAlias(self.alias)].add(Asset(uri), extra=extra)
        return result

    def _spends(self) -> tuple[float, float]:
        """Returns ε and δ of this run."""
        plan = (self.options or {}).get("plan")
        if plan is not None:
            return planned_budget(plan)
        return float(str(self.epsilon)), float(str(self.delta))

    def _check_before_start(self, directory: str) -> None:
        """Raises an error if a rendered field is wrong, or the budget does not suffice."""
        given = self.arguments()
        fields = {name: getattr(self, name) for name in self.template_fields if name != "budget"}
        left = [name for name, value in fields.items() if is_template(value)]
        if left:
            raise AirflowFailException(
                f"{left[0]} must be rendered to a value, and it is a template."
            )
        for name, path in paths_of(self.program, given):
            release = release_around(path)
            if release is not None:
                raise AirflowFailException(
                    f"{name} must be outside every release, got {name}={path}, which is in {release}."
                )
        if self.budget is not None:
            note_start(self.budget, *self._spends(), self.program, directory)
