"""Sources of Beam that give rows wrong names; documents that come from them are refused.

Beam 2.77 turns tables of Arrow and data frames of pandas into rows by the position of their columns: it
takes the names from the beginning of the input and pairs them with the values of all later tables. A
table with another order of columns, for instance of another file, then has its users in the field of
the texts. No later step can see this, so that the pipeline is refused when it is built.
"""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PCollection

_TABLES = ("pyarrow", "pandas")
# Classes are compared by name, so that Beam's data frames and pandas are not imported for this.
_UNBATCH = "apache_beam.dataframe.schemas.UnbatchPandas"
_READERS = {
    "apache_beam.io.parquetio.ReadFromParquet": "ReadFromParquet(as_rows=True)",
    "apache_beam.dataframe.io.ReadViaPandas": "ReadFromCsv, ReadFromJson or another reader of pandas",
}


def require_rows_by_name(documents: PCollection) -> None:
    """Checks that no step before the documents turns tables into rows by position.

    Side inputs are followed too, since some of Beam's steps join what they combine as a side input: all
    rows may come back from one. A pipeline that only an expansion service sees has no steps before its
    inputs, so that nothing is refused there.

    Raises:
      ValueError: There is such a step.
    """
    for step in steps_before(documents):
        if _pairs_by_position(step):
            raise ValueError(
                f"documents must not come from {_source_of(step)}. There Beam pairs values with the "
                "names of fields by their position, so that users and texts change places where files "
                "or records have their fields in different orders, and a release may hold the text of "
                "a single user. Read the files by name, with ReadDocuments of beam_dpne.reading (in "
                "Beam YAML, too), ReadFromParquetBatched, or ReadFromParquet without as_rows, which "
                "gives dicts."
            )


def steps_before(documents: PCollection) -> Iterator[Any]:
    """Yields the steps from which elements come, and the steps around them, each once."""
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


def _pairs_by_position(step: Any) -> bool:
    """Returns whether a step hands tables or data frames on as rows."""
    if _UNBATCH in _names_of_classes(step.transform):
        return True
    function = getattr(step.transform, "fn", None)
    if not isinstance(function, beam.DoFn) or not _yields_batches(function):
        return False
    kind = function.get_output_batch_type(Any)
    return str(getattr(kind, "__module__", "")).partition(".")[0] in _TABLES


def _yields_batches(function: beam.DoFn) -> bool:
    """Returns whether the results of a function are batches, which Beam makes rows of if need be."""
    in_elements = getattr(function.process_batch, "_beam_yields_elements", False)
    is_batched = getattr(function.process_batch, "__func__", None) is not beam.DoFn.process_batch
    return getattr(function.process, "_beam_yields_batches", False) or (
        is_batched and not in_elements
    )


def _source_of(step: Any) -> str:
    """Returns the source to which a step belongs, in the words of its user, and the step's label."""
    around = step
    while around is not None:
        for name in _names_of_classes(around.transform):
            if name in _READERS:
                return f"{_READERS[name]}, which is the step {around.full_label!r}"
        around = around.parent
    return f"tables or data frames that become rows in the step {step.full_label!r}"


def _names_of_classes(transform: Any) -> list[str]:
    return [f"{kind.__module__}.{kind.__qualname__}" for kind in type(transform).__mro__]
