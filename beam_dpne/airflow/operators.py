"""Operators: one release in each run of a task, and the one that starts programs on the worker.

A run has one directory. A try that finds the release of an earlier try there starts nothing, and the
programs refuse a directory with files of another run.
"""

import hashlib
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import psutil
from airflow.providers.apache.beam.hooks.beam import BeamHook
from airflow.sdk import Asset, AssetAlias, BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from beam_dpne.jobs.arguments import LOCAL, works_here
from beam_dpne.jobs.made import Made, typed_values, with_file
from beam_dpne.jobs.parameters import Running
from beam_dpne.jobs.programs import PROGRAMS
from beam_dpne.validation import did_you_mean

if TYPE_CHECKING:
    from beam_dpne.accounting.expense import Plan
    from beam_dpne.release.reading import Release as Published


class Release(BaseOperator):
    """The fields of a release, before those of an operator of Airflow that runs its program.

    The release is in `RELEASES/DAG/TASK/RUN`, followed by the index of a mapped task. The task returns
    the public facts of its ledger (`facts_of`), and adds to the asset alias `beam-dpne/DAG/TASK` an
    asset with the address of the release, with these facts as its extra.

    Args:
      program: `ngrams`, `set-union`, `bayesian` or `count`.
      releases: Directory of the releases of all runs; an absolute path or an address such as gs://….
      budget: Folder of a budget (`beam-dpne account --budget FOLDER --create`). A run that would exceed
        its cap is not started; neither is one if the budget cannot be read. None checks nothing. For
        releases of a series it is None, and `series` and `participants` name its folders, which are on
        the worker or, for an engine with workers elsewhere, on an object store.
      kwargs: Parameters of the program by name, such as `input`, `epsilon`, `delta` and `max_length`,
        none of which may come from the private data; and the fields of the operator of Airflow.

    Raises:
      ValueError: The program is unknown, or an option is the operator's own.
    """

    template_fields = ("releases", "budget", "options")

    def __init__(self, *, program: str, releases: str, budget: str | None = None, **kwargs: Any):
        if program not in PROGRAMS:
            hint = did_you_mean(program, PROGRAMS)
            raise ValueError(
                f"`program` must be one of {', '.join(PROGRAMS)}, got {program!r}.{hint}"
            )
        if budget is not None and kwargs.get("series") is not None:
            raise ValueError("`budget` must be left out with series, which keeps its own.")
        if refused := sorted(set(kwargs) & {"output", "overwrite"}):
            raise ValueError(f"{refused[0]} must be left out: each run writes to a new directory.")
        names = set(PROGRAMS[program].parameters) & set(kwargs)
        given = {name: kwargs.pop(name) for name in sorted(names)}
        super().__init__(**kwargs)
        self.program = program
        self.releases = releases
        self.budget = budget
        self.options = given
        self.alias = f"beam-dpne/{self.dag_id}/{self.task_id}"
        self.outlets = [*self.outlets, AssetAlias(self.alias)]

    def arguments(self, context: Mapping[str, Any]) -> dict[str, list[str]]:
        """Returns the texts of the options of this run by name; those without a value are left out."""
        known = PROGRAMS[self.program].parameters
        given = {**self._given, "output": self.directory(context)}
        return {name: known[name].texts(value) for name, value in given.items()}

    @property
    def _given(self) -> dict[str, Any]:
        return {name: value for name, value in self.options.items() if value is not None}

    def directory(self, context: Mapping[str, Any]) -> str:
        """Returns the directory of this run's release.

        Raises:
          AirflowFailException: The run's id would lead to another directory.
        """
        run_id = context["run_id"]
        if run_id in (".", "..") or "/" in run_id:
            raise AirflowFailException(f"run_id must be the name of a directory, got {run_id!r}.")
        folder = "/".join([self.releases.rstrip("/"), self.dag_id, self.task_id, run_id])
        index = getattr(context.get("ti"), "map_index", -1)
        return folder if index is None or index < 0 else f"{folder}/{index}"

    def job_name(self, context: Mapping[str, Any]) -> str:
        """Returns the name of this run's job at an engine, which is the same for all tries."""
        return f"beam-dpne-{hashlib.sha256(self.directory(context).encode()).hexdigest()[:16]}"

    @property
    def is_here(self) -> bool:
        """Whether the worker that runs the task does all the work of the run."""
        return False

    def start(self, context: Any) -> None:
        """Runs the program to its end, or defers the task; the operator of each engine defines it."""
        raise NotImplementedError

    def execute(self, context: Any) -> dict[str, Any]:
        """Publishes the release of this run, unless an earlier try has; returns its facts.

        Raises:
          UsageError, ValueError: A parameter is wrong, or is given in the plan file, too.
          BudgetError: The cap does not allow the run, the budget lacks a known release about the same
            people, or it cannot be read.
        """
        from beam_dpne.accounting.budget import open_budget
        from beam_dpne.jobs.budgets import checked_note
        from beam_dpne.jobs.series import check_series
        from beam_dpne.release.places import has_ledger

        directory = self.directory(context)
        # A wrong parameter is refused here, before anything starts.
        made = self._made(directory)
        check_series(made[Running], directory, is_here=self.is_here)
        if has_ledger(directory):
            self.log.info("An earlier try has published the release of this run.")
        else:
            if self.budget is not None:
                checked_note(open_budget(self.budget), made, self._plan(made), again=True)
            self.start(context)
        return self.finish(context)

    def _made(self, directory: str) -> Made:
        """Returns the parameters of a run, from the operator's arguments and its plan file."""
        program = PROGRAMS[self.program]
        groups = program.load_groups()
        given = typed_values({**self._given, "output": directory}, program.parameters)
        return Made(groups, with_file(given, groups))

    def _plan(self, made: Made) -> "Plan":
        """Returns the privacy parameters of a run."""
        from beam_dpne.accounting.expense import PLANS

        return made[PLANS[self.program]]

    def finish(self, context: Any) -> dict[str, Any]:
        """Checks the release of this run, settles its budget, and announces its asset.

        Raises:
          AirflowFailException: The release is of another program or budget than the task's.
        """
        from beam_dpne.accounting.budget import open_budget
        from beam_dpne.release.reading import read_release

        directory = self.directory(context)
        made = self._made(directory)
        plan = self._plan(made)
        facts = facts_of(directory, read_release(directory))
        wanted: dict[str, Any] = {"program": self.program}
        if made[Running].series is None:
            # A series gives each release its own epsilon and delta.
            wanted |= {"epsilon": plan.epsilon, "delta": plan.delta}
        if not wanted.items() <= facts.items():
            raise AirflowFailException(
                f"{directory} holds a release of another program or budget than this task's."
            )
        if self.budget is not None:
            open_budget(self.budget).settle(directory)
        uri = directory if "://" in directory else f"file://{directory}"
        context["outlet_events"][AssetAlias(self.alias)].add(Asset(uri), extra=facts)
        return facts


class ReleaseOperator(Release):
    """Publishes a release by Airflow's hook for Beam pipelines in Python.

    It runs in processes of the worker, or for instance on a Flink cluster through Beam's job server:
    `runner="PortableRunner"` and `pipeline_options` with `job_endpoint`, `environment_type`,
    `environment_config` and `parallelism`. (Airflow's operator for such pipelines does the same, and
    needs Google's provider even where no Google Cloud is used.)

    Args:
      runner: Runner of Beam, or "local" for the worker itself.
      py_interpreter: Python with beam-dpne; by default Airflow's own.
      pipeline_options: Options of Beam by name.
      kwargs: Fields of `Release`.

    Raises:
      ValueError: A field is wrong.
    """

    template_fields = (*Release.template_fields, "runner", "pipeline_options")

    def __init__(
        self,
        *,
        runner: str = LOCAL,
        py_interpreter: str = sys.executable,
        pipeline_options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.runner = runner
        self.py_interpreter = py_interpreter
        self.pipeline_options = dict(pipeline_options or {})

    @property
    def is_here(self) -> bool:
        """Whether the worker that runs the task does all the work of the run."""
        return works_here(self.runner, self.pipeline_options.get("environment_type"))

    def variables(self, context: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the options of Beam and those of the program by name."""
        given = {**self.pipeline_options, **self.arguments(context)}
        if self.runner == LOCAL:
            # Without options of Beam the program does not load it.
            return given
        return {"job_name": self.job_name(context), **given}

    def start(self, context: Any) -> None:
        """Runs `python -m beam_dpne PROGRAM` to its end."""
        BeamHook(runner=self.runner).start_python_pipeline(
            variables=self.variables(context),
            py_file=self.program,
            py_options=["-m", "beam_dpne"],
            py_interpreter=self.py_interpreter,
        )

    def on_kill(self) -> None:
        """Terminates the program, which then cancels its job; the task ends with it."""
        for child in psutil.Process().children(recursive=True):
            child.terminate()


def facts_of(directory: str, release: "Published") -> dict[str, Any]:
    """Returns what is worth handing on of a release, as JSON types; it is as public as the release.

    Returns:
      `path`, `program`, `epsilon`, `delta`, `released` (the number of rows), and for n-grams `lengths`
      (the same by length).
    """
    lengths = {str(each["length"]): each["released"] for each in release.lengths}
    facts: dict[str, Any] = {
        "path": directory,
        "program": release.program,
        "epsilon": release.epsilon,
        "delta": release.delta,
        "released": release.num_rows,
    }
    if lengths:
        facts["lengths"] = lengths
    return facts
