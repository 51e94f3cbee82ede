"""python docs/make_yaml.py

Writes docs/yaml-transforms.md from the schemas that Beam YAML reads; so does the build of the site.
"""

import pathlib
import re

from apache_beam.portability.api import schema_pb2
from apache_beam.yaml.yaml_provider import InlineProvider

from beam_dpne import yaml

PAGE = pathlib.Path(__file__).with_name("yaml-transforms.md")
_NAMES = {"INT64": "integer", "DOUBLE": "number", "STRING": "text", "BOOLEAN": "true or false"}
_ORDER = (
    "ReadDocuments",
    "PrivateNgrams",
    "PrivateSetUnion",
    "BayesianCounts",
    "CountPhrases",
    "WriteRelease",
)
_BEGINNING = """# YAML: all transforms

This page is made from the schemas that Beam YAML reads. A key that is left out, or null, has its
default. [Beam YAML](yaml.md) has a whole pipeline.
"""


def _type(kind: schema_pb2.FieldType) -> str:
    if kind.WhichOneof("type_info") == "array_type":
        return f"{_type(kind.array_type.element_type)}, or a list"
    return _NAMES[schema_pb2.AtomicType.Name(kind.atomic_type)]


def _escaped(text: str) -> str:
    return re.sub(r"([*<>|\[\]])", r"\\\1", text)


def page() -> str:
    """Returns the page of all transforms."""
    parts = [_BEGINNING]
    for name in _ORDER:
        transform = getattr(yaml, name)
        rows = [
            f"| `{field.name}` | {_type(field.type)} | {_escaped(field.description)} |\n"
            for field in InlineProvider.config_schema_from_callable(transform).fields
        ]
        about = InlineProvider.description_from_callable(transform)
        parts.append(f"\n## {name}\n\n{about}\n\n| key | type | meaning |\n|---|---|---|\n")
        parts += rows
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
