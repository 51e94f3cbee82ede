"""Sources of Beam that give rows wrong names; documents that come from them are refused.

Beam 2.77 turns tables of Arrow and data frames of pandas into rows by the position of their columns: it
takes the names from the beginning of the input and pairs them with the values of all later tables. A
table with another order of columns, for instance of another file, then has its users in the field of
the texts. No later step can see this, so that the pipeline is refused when it is built.
"""

from collections.abc import Iterator
from typing import Any

from apache_beam.pvalue import PCollection

# Classes are compared by name, so that Beam's data frames and pandas are not imported for this.
_BY_POSITION = {"_ArrowTableToBeamRows", "DataFrameToRowsFn", "UnbatchPandas"}


def require_rows_by_name(documents: PCollection) -> None:
    """Raises ValueError if a step before the documents turns tables into rows by position."""
    for step in steps_before(documents):
        kinds = {type(step.transform), type(getattr(step.transform, "fn", None))}
        if any(kind.__name__ in _BY_POSITION for kind in kinds):
            raise ValueError(
                f"documents must not come from the step {step.full_label!r}, where Beam pairs values "
                "with the names of fields by their position, so that users and texts may change "
                "places. Read the files by name, with ReadDocuments, ReadFromParquetBatched, or "
                "ReadFromParquet without as_rows."
            )


def steps_before(documents: PCollection) -> Iterator[Any]:
    """Yields the steps from which elements come, also by side inputs, and the steps around them."""
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
