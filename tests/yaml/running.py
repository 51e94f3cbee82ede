"""Runs pipelines of Beam YAML as its own program does, with the listing of this package."""

from collections.abc import Sequence
from typing import Any

import yaml
from apache_beam.yaml import main as yaml_main

from beam_dpne.yaml.__main__ import LISTING

RUNNER = "--runner=FnApiRunner"


def text_of(transforms: Sequence[Any], listing=LISTING, **more: Any) -> str:
    """Returns a pipeline of transforms as YAML."""
    spec = {
        "pipeline": {"type": "composite", "transforms": list(transforms)},
        "providers": [{"include": str(listing)}],
        **more,
    }
    return yaml.safe_dump(spec, sort_keys=False)


def run_yaml(transforms: Sequence[Any], *arguments: str, **more: Any) -> None:
    """Runs a pipeline of transforms."""
    yaml_main.run([f"--yaml_pipeline={text_of(transforms, **more)}", RUNNER, *arguments])
