"""Sources of Beam that give rows wrong names; documents that come from them are refused.

Beam 2.77 turns tables of Arrow and data frames of pandas into rows by the position of their columns: it
takes the names from the beginning of the input and pairs them with the values of all later tables. A
table with another order of columns, for instance of another file, then has its users in the field of
the texts. No later step can see this, so that the pipeline is refused when it is built.
"""

from collections.abc import Iterator
from typing import Any

from apache_beam.pvalue import PCollection

_OF_PANDAS = "ReadFromCsv, ReadFromJson or another reader or frame of pandas"
# By the name of Beam's class that pairs values with names, the source in the words of its user.
_BY_POSITION = {
    "_ArrowTableToBeamRows": "ReadFromParquet(as_rows=True)",
    "DataFrameToRowsFn": _OF_PANDAS,
    "UnbatchPandas": _OF_PANDAS,
}


def require_rows_by_name(documents: PCollection) -> None:
    """Checks that no step before the documents turns tables into rows by position.

    A pipeline that only an expansion service sees has no steps before its inputs, so that nothing is
    refused there.

    Raises:
      ValueError: There is such a step.
    """
    for step in steps_before(documents):
        part = getattr(step.transform, "fn", step.transform)
        source = _BY_POSITION.get(type(part).__name__)
        if source is not None:
            raise ValueError(
                f"documents must not come from {source}, as in the step {step.full_label!r}. There "
                "Beam pairs values with the names of fields by their position, so that users and texts "
                "change places where files or records have their fields in different orders, and a "
                "release may hold the text of a single user. Read the files by name, with "
                "ReadDocuments, ReadFromParquetBatched, or ReadFromParquet without as_rows."
            )


def steps_before(documents: PCollection) -> Iterator[Any]:
    """Yields the steps from which elements come, also as side inputs, and the steps around them."""
    seen: set[int] = set()
    waiting: list[Any] = [documents]
    while waiting:
        step = getattr(waiting.pop(), "producer", None)
        inputs = getattr(step, "inputs", ())
        while step is not None and id(step) not in seen:
            seen.add(id(step))
            waiting.extend(side.pvalue for side in getattr(step, "side_inputs", ()))
            yield step
            # The inputs of a step around another one are those of its first inner steps, except where
            # it has no inner steps.
            waiting.extend(inputs)
            inputs, step = (), step.parent
