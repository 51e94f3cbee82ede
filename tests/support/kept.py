"""Elements of a pipeline, kept in this process for the test that ran it.

The embedded runners' workers are threads of this process, so that a function of this module, which they
find by its name, appends to lists that the test reads.
"""

import apache_beam as beam
from apache_beam.pvalue import PCollection

_lists: list[list] = []


def keep(collection: PCollection, label: str = "Keep") -> list:
    """Returns a list that has the elements of a collection after the pipeline has run."""
    _lists.append([])
    _ = collection | label >> beam.Map(_append, number=len(_lists) - 1)
    return _lists[-1]


def _append(element: object, number: int) -> None:
    _lists[number].append(element)
