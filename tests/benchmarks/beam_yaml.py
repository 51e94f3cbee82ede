"""Beam YAML beside the program: whole processes, the same records and parameters, file to release.

Both release the same bytes under one run key, of Parquet and of JSON lines. A third pipeline has a
filter between reading and releasing, so that records go through it row by row.
"""

import gzip
import pathlib
import shutil
from collections.abc import Mapping

import pyarrow.json as pj
import pyarrow.parquet as pq

from tests.benchmarks.inputs import ROOT
from tests.benchmarks.measure import interleaved
from tests.benchmarks.report import Figure, Report, cpu_seconds, megabytes, ratios, seconds
from tests.benchmarks.workloads import Setting

_PIPELINE = ROOT / "pipelines" / "yaml" / "parquet.yaml"
_BUDGET: Mapping[str, float] = {"epsilon": 4, "delta": 1e-7}
_TIMES_THE_PROGRAM = 1.15


def measure(setting: Setting) -> Report:
    """File to release of n-grams, of Parquet and of JSON lines."""
    key = setting.work / "run.key"
    key.write_text("5eed" * 16)
    lines = _unpacked(setting.reddit.data, setting.work / "titles.jsonl")
    one = _unpacked(setting.reddit.start_up, setting.work / "one.jsonl")
    parquet = _as_parquet(lines)
    data = {"jsonl": lines, "parquet": parquet, "filter": parquet, "one user": _as_parquet(one)}
    texts = {"filter": _with_filter(setting.work / "filter.yaml")}
    commands = {}
    for name, path in data.items():
        options = _options(path, key)
        commands[f"program, {name}"] = ["pipelines/ngrams.py", "--quiet", *options]
        commands[f"YAML, {name}"] = [*_yaml(texts.get(name, _PIPELINE)), *options]
    runs = interleaved(commands, setting.repeats)
    figures = []
    for name in data:
        yaml, program = runs[f"YAML, {name}"], runs[f"program, {name}"]
        target = None if name in ("one user", "filter") else _TIMES_THE_PROGRAM
        ratio = ratios(seconds(yaml), seconds(program))
        cpu_ratio = ratios(cpu_seconds(yaml), cpu_seconds(program))
        figures += [
            Figure("yaml", f"program, {name}, whole process", seconds(program), "s"),
            Figure("yaml", f"YAML, {name}, whole process", seconds(yaml), "s"),
            Figure("yaml", f"YAML / program, {name}, time", ratio, "×", target),
            Figure("yaml", f"YAML / program, {name}, CPU time", cpu_ratio, "×"),
            Figure("yaml", f"program, {name}, peak memory", megabytes(program), "MB"),
            Figure("yaml", f"YAML, {name}, peak memory", megabytes(yaml), "MB"),
        ]
    return Report(figures)


def _options(data: pathlib.Path, key: pathlib.Path) -> list[str]:
    given = {"input": data, "run_key_file": key, **_BUDGET}
    return [f"--{name}={value}" for name, value in given.items()]


def _yaml(pipeline: pathlib.Path) -> list[str]:
    """Beam's program, to which the other options are variables of the pipeline."""
    flags = "--jinja_variable_flags=input,output,run_key_file,epsilon,delta"
    program = ["-m", "apache_beam.yaml.main", "--runner=FnApiRunner"]
    return [*program, f"--yaml_pipeline_file={pipeline}", flags]


def _with_filter(target: pathlib.Path) -> pathlib.Path:
    """The pipeline with a filter that passes on all rows, which costs a step and the rows."""
    text = _PIPELINE.read_text(encoding="utf-8")
    step = (
        "    - type: Filter\n      name: All\n      input: Titles\n"
        "      config:\n        language: python\n        keep: text != user\n"
    )
    private = "    - type: PrivateNgrams\n"
    assert private in text
    text = text.replace(private, step + private).replace(
        "name: Ngrams\n      input: Titles", "name: Ngrams\n      input: All"
    )
    target.write_text(text, encoding="utf-8")
    return target


def _unpacked(source: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
    with gzip.open(source) as packed, target.open("wb") as file:
        shutil.copyfileobj(packed, file)
    return target


def _as_parquet(lines: pathlib.Path) -> pathlib.Path:
    target = lines.with_suffix(".parquet")
    pq.write_table(pj.read_json(lines), target)
    return target
