"""The doctor's canary: a small job without data whose workers report their versions.

Its stages take the output of the stage before as a side input, as pipelines of this package do. Each
worker reports in the names of counters, which reach the launcher without shared storage.
"""

import dataclasses
import json
import secrets
import sys

import apache_beam as beam
from apache_beam.internal.cloudpickle import cloudpickle
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics, MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import AsIter
from apache_beam.runners.runner import PipelineResult

_NAMESPACE = "beam_dpne.doctor"
_STAGES = 3
# Workers need not have this module: its code travels with the job.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@dataclasses.dataclass(frozen=True)
class Report:
    """What one harness said in one stage.

    Attributes:
      host: name of the machine or pod.
      pid: process id of the harness.
      stage: number of the stage, from 0.
      python: version of Python.
      beam: version of apache-beam.
      beam_dpne: version of beam_dpne; None if it cannot be imported.
      sees_file: whether the launcher's file exists for the worker; None if there was none.
    """

    host: str
    pid: int
    stage: int
    python: str
    beam: str
    beam_dpne: str | None
    sees_file: bool | None


class _Look(beam.DoFn):
    """Reports by a counter, and passes elements on."""

    def __init__(self, stage: int, file: str | None):
        self.stage = stage
        self.file = file

    def setup(self):
        """Looks once for each harness and stage."""
        import os
        import platform
        import socket

        try:
            from beam_dpne.version import __version__ as ours
        except ImportError:
            ours = None
        said = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "stage": self.stage,
            "python": platform.python_version(),
            "beam": beam.__version__,
            "beam_dpne": ours,
            "sees_file": None if self.file is None else FileSystems.exists(self.file),
        }
        self.report = Metrics.counter(_NAMESPACE, json.dumps(said, sort_keys=True))

    def process(self, element, *_others):
        """Counts an element."""
        self.report.inc()
        yield element


def build(options: PipelineOptions, *, parallelism: int, file: str | None) -> beam.Pipeline:
    """Returns the canary, not yet run.

    Args:
      options: Beam's options of the job.
      parallelism: tasks of each stage; there are several elements for each.
      file: path of a file that the launcher has written and workers look for, or None.
    """
    pipeline = beam.Pipeline(options=options)
    elements = pipeline | beam.Create(list(range(8 * parallelism))) | beam.Reshuffle()
    seen = elements | "Look 0" >> beam.ParDo(_Look(0, file))
    for stage in range(1, _STAGES):
        side = AsIter(seen)
        seen = elements | f"Look {stage}" >> beam.ParDo(_Look(stage, file), side)
    return pipeline


def reports(result: PipelineResult) -> list[Report]:
    """Returns what the harnesses of a finished canary said."""
    found = result.metrics().query(MetricsFilter().with_namespace(_NAMESPACE))["counters"]
    return [Report(**json.loads(metric.key.metric.name)) for metric in found]


def job_name() -> str:
    """Returns a name by which the canary is found at Flink."""
    return f"beam-dpne-doctor-{secrets.token_hex(4)}"
