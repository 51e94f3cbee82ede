"""python docs/make_yaml.py

Writes docs/yaml-transforms.md from the schemas that Beam YAML reads, and the provider listing of this
version, beam_dpne/yaml/provider.yaml. It also puts this version into the names of transforms in the
pipelines to copy and in the pages about them.
"""

import pathlib
import re

from apache_beam.portability.api import schema_pb2
from apache_beam.yaml.yaml_provider import InlineProvider

from beam_dpne import yaml
from beam_dpne.version import __version__
from beam_dpne.yaml.__main__ import LISTING, listing

PAGE = pathlib.Path(__file__).with_name("yaml-transforms.md")
_NAMES = {"INT64": "integer", "DOUBLE": "number", "STRING": "text", "BOOLEAN": "true or false"}
_ORDER = ("ReadDocuments", "PrivateNgrams", "PrivateSetUnion", "BayesianCounts", "WriteRelease")
_BEGINNING = """# YAML: all transforms

This page is generated from the schemas that Beam YAML reads, which come from the programs' tables of
options: `python docs/make_yaml.py` writes it, and a test compares it with them. A key that is left out,
or null, has its default. [Beam YAML](yaml.md) has a whole pipeline.
"""


def _type(kind: schema_pb2.FieldType) -> str:
    if kind.WhichOneof("type_info") == "array_type":
        return f"{_type(kind.array_type.element_type)}, or a list"
    return _NAMES[schema_pb2.AtomicType.Name(kind.atomic_type)]


def _escaped(text: str) -> str:
    return re.sub(r"([*<>|\[\]])", r"\\\1", text)


def transforms_page() -> str:
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


def versioned_files() -> list[pathlib.Path]:
    """Returns the files that name transforms by version."""
    root = PAGE.parents[1]
    folders = (("pipelines/yaml", "*.yaml"), ("pipelines/java", "**/*.java"), ("docs", "*.md"))
    return [path for folder, glob in folders for path in sorted((root / folder).glob(glob))]


def with_version(text: str) -> str:
    """Returns a text in which all names of transforms have this version."""
    names = "|".join(yaml.__all__)
    versioned = rf"beam_dpne.yaml.{yaml.version_name(__version__)}.\1"
    return re.sub(rf"\bbeam_dpne\.yaml\.(?:v\d\w*\.)?({names})\b", versioned, text)


if __name__ == "__main__":
    for path in versioned_files():
        text = path.read_text(encoding="utf-8")
        if text != with_version(text):
            path.write_text(with_version(text), encoding="utf-8")
    PAGE.write_text(transforms_page(), encoding="utf-8")
    LISTING.write_text(listing(), encoding="utf-8")
