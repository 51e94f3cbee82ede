"""What Beam's engines display of a transform: its public parameters and nothing else.

Whoever may look at a job sees the display data of its transforms, also people without access to the
data. So only values that are known to be public are shown: those of plain types, and a plan. Everything
else is left out: run keys, folders of temporary storage (`SetStore`), functions, and PCollections.

Input patterns, the directory of a release and that of rejected records are shown, as by Beam's own
sources and sinks. The operator chose these names, and they do not depend on the content of a file.
"""

import dataclasses
import json
import numbers
from collections.abc import Mapping
from typing import Any

import apache_beam as beam
from apache_beam.transforms.display import DisplayDataItem

from beam_dpne.version import __version__

Shown = str | int | float | bool
# A list of input patterns may be long, and engines limit the size of a job's graph.
_MOST_VALUES = 10


class DisplayedTransform(beam.PTransform):
    """Base of all public transforms, which gives each of them display data.

    A subclass is a dataclass. Its fields are displayed under their names, the plan's parameters under
    theirs, and the version of the package as `beam_dpne_version`. None is left out.
    """

    def shown_parameters(self) -> dict[str, Any]:
        """Returns values by name, from which `shown` picks those that are displayed.

        A subclass changes an entry that is public but not of a plain type, and removes one that is of
        a plain type but should not be displayed.
        """
        if not dataclasses.is_dataclass(self):
            return {}
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def display_data(self) -> dict[str, Any]:
        """Returns the items that an engine displays."""
        shown_values = {**shown(self.shown_parameters()), "beam_dpne_version": __version__}
        return {
            name: DisplayDataItem(value, label=name.replace("_", " ").capitalize())
            for name, value in shown_values.items()
        }


def shown(parameters: Mapping[str, Any]) -> dict[str, Shown]:
    """Returns the parameters that are displayed; those of a plan follow the others.

    >>> shown({"partitions": 8, "text_field": ["subject", "body"], "run_key": object(), "store": None})
    {'partitions': 8, 'text_field': 'subject, body'}
    """
    plan = parameters.get("plan")
    # House rule: a plan is frozen, public and complete, so that all of its fields may be shown.
    of_plan = {} if plan is None else dataclasses.asdict(plan)
    values = {name: _plain(value) for name, value in {**of_plan, **parameters}.items()}
    return {name: value for name, value in values.items() if value is not None}


def _plain(value: Any) -> Shown | None:
    """Returns a value as a type that Beam displays, or None if it is not to be displayed."""
    if isinstance(value, str | bool):
        return value
    # Exact types, since Beam drops an item of any other type, such as NumPy's.
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, list | tuple):
        return _joined(value)
    return None


def _joined(values: list[Any] | tuple[Any, ...]) -> str | None:
    """Returns the first of a list's values as one text, or None if they are not all plain."""
    plain = [_plain(value) for value in values[:_MOST_VALUES]]
    if not plain or None in plain:
        return None
    more = len(values) - len(plain)
    texts = [value if isinstance(value, str) else json.dumps(value) for value in plain]
    return ", ".join(texts) + (f" and {more} more" if more else "")
