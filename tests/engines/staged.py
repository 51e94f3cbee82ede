"""Jobs for Dataflow as they were staged on an emulator: their steps, and what hides in them."""

import base64
import bz2
import contextlib
import itertools
import json
import operator
import pickletools
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from apache_beam.portability.api import beam_runner_api_pb2 as api

from beam_dpne.mechanism.randomness import RunKey
from tests.conftest import ROOT

if TYPE_CHECKING:
    from tests.engines.storage import Bucket

README = ROOT / "deploy" / "dataflow" / "README.md"
KINDS = {
    "beam:transform:pardo:v1": "ParDo",
    "beam:transform:group_by_key:v1": "GroupByKey",
    "beam:transform:flatten:v1": "Flatten",
    "beam:transform:window_into:v1": "Window",
    "beam:transform:reshuffle:v1": "Reshuffle",
}


class Step(NamedTuple):
    """What a step is, and which steps' output it has as side inputs."""

    kind: str
    side_inputs: frozenset[str]


class Staged(NamedTuple):
    """A job as it was staged.

    Attributes:
      job: the request to the service.
      graph: the pipeline.
      files: everything under the staging location, by name.
    """

    job: Mapping[str, Any]
    graph: api.Pipeline
    files: Mapping[str, bytes]

    def everything(self) -> bytes:
        return b"\n".join([json.dumps(self.job).encode(), *self.files.values()])

    def steps(self) -> dict[str, Step]:
        """The graph's steps by name; what Beam makes of a Create or a Reshuffle is one step."""
        transforms = self.graph.components.transforms
        steps, pending = {}, list(self.graph.root_transform_ids)
        while pending:
            transform = transforms[pending.pop()]
            children = [transforms[key].unique_name for key in transform.subtransforms]
            kind = KINDS.get(transform.spec.urn, transform.spec.urn)
            if f"{transform.unique_name}/Impulse" in children:
                kind = "Create"
            if children and kind not in ("Create", "Reshuffle"):
                pending += transform.subtransforms
            else:
                steps[transform.unique_name] = Step(kind, frozenset(self.side_inputs(transform)))
        return steps

    def side_inputs(self, transform: api.PTransform) -> Iterator[str]:
        if transform.spec.urn == "beam:transform:pardo:v1":
            payload = api.ParDoPayload.FromString(transform.spec.payload)
            for name in payload.side_inputs:
                yield self.producer(transform.inputs[name])

    def producer(self, collection: str) -> str:
        (name,) = (
            transform.unique_name
            for transform in self.graph.components.transforms.values()
            if not transform.subtransforms and collection in transform.outputs.values()
        )
        return name


def read_back(bucket: "Bucket", folder: str, template: str, job_name: str) -> Staged:
    """Reads a job back from the emulator."""
    job = json.loads(bucket.files(template)[""])
    url = job["environment"]["sdkPipelineOptions"]["options"]["pipelineUrl"]
    files = bucket.files(f"{folder}/{job_name}.")
    graph = api.Pipeline.FromString(bucket.files(url.removeprefix(bucket.path()))[""])
    # Beam's own folder in the staging location ends with the time.
    return Staged(job, graph, {name.partition("/")[2]: data for name, data in files.items()})


def documented_steps(max_length: int, *, one_round: bool = False) -> dict[str, Step]:
    """The tables of steps in deploy/dataflow/README.md, for a number of lengths."""
    rows = table_rows("steps")
    if one_round:
        # Rows of the second table replace those of the same step; these two are not needed.
        common = [row for row in rows if not re.search("/k/|/EveryRange/", row[0])]
        return expanded([*common, *table_rows("steps of one_round")], [1] * max_length)
    return expanded(rows, [3] * max_length)


def table_rows(name: str) -> list[list[str]]:
    """The cells of a table, after the comment that names it."""
    _, found, text = README.read_text().partition(f"<!-- table: {name} -->\n")
    assert found
    lines = text.partition("\n\n")[0].splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]
    assert len(rows) > 10
    return rows


def expanded(rows: list[list[str]], rounds: list[int]) -> dict[str, Step]:
    """The steps of all rows: one for each length and round that it is for, or one."""
    steps = {}
    for name, kind, wanted, side_inputs, _ in rows:
        for values in places(name.strip("`"), rounds):
            if holds(wanted, values):
                beside = named_beside(side_inputs, values, rounds)
                steps[at(name.strip("`"), values, rounds)] = Step(kind, frozenset(beside))
    return steps


def named_beside(side_inputs: str, values: dict[str, int], rounds: list[int]) -> Iterator[str]:
    """The steps that a cell names, under its conditions; "each k" is for all lengths."""
    for side, only in re.findall(r"`([^`]+)`(?: \(([^)]*)\))?", side_inputs):
        each = range(1, len(rounds) + 1) if only.startswith("each k") else [values["k"]]
        for own in ({**values, "k": k} for k in each):
            if holds(only, own):
                yield at(side, own, rounds)


def places(name: str, rounds: list[int]) -> Iterator[dict[str, int]]:
    """Where a step is: T, and the length k, the round r and the last round R, if its name has them."""
    max_length = len(rounds)
    for k in range(1, max_length + 1) if re.search("/(Length)?k(/|$)", name) else [1]:
        last = rounds[k - 1]
        for r in range(1, last + 1) if "/r/" in name else [1]:
            yield {"T": max_length, "k": k, "r": r, "R": last}


def holds(wanted: str, values: Mapping[str, int]) -> bool:
    """Whether all conditions, such as "k ≥ 2, r < R", hold."""
    compare = {"=": operator.eq, "≥": operator.ge, "<": operator.lt}
    return all(
        compare[sign](values[left], values[right] if right in values else int(right))
        for left, sign, right in re.findall(r"(\w) (\S) (\w+)", wanted)
    )


def at(name: str, values: Mapping[str, int], rounds: list[int]) -> str:
    """A step's name with its length and its round; R is the last round of the length before it."""
    parts, length = [], 0
    for part in name.replace("Lengthk", f"Length{values['k']}").split("/"):
        symbol, _, less = part.partition("-")
        if symbol not in ("k", "r", "R"):
            parts.append(part)
            continue
        number = (rounds[length - 1] if symbol == "R" else values[symbol]) - int(less or 0)
        length = number if symbol == "k" else length
        parts.append(str(number))
    return "/".join(parts)


def unpacked(data: bytes) -> bytes:
    """The data, and after it all pickles in it, which Beam compresses and writes in base64."""
    return b"\n".join([data, *map(unpacked, pickles_in(data))])


def pickles_in(data: bytes) -> Iterator[bytes]:
    for start in re.finditer(rb"QlpoO|eJ|eN", data):
        text = re.match(rb"[A-Za-z0-9+/]*={0,2}", data[start.start() :])
        whole = text.group()[: len(text.group()) // 4 * 4] if text else b""
        decompressor = zlib.decompressobj() if whole[:1] == b"e" else bz2.BZ2Decompressor()
        with contextlib.suppress(OSError, zlib.error, EOFError):
            data_inside = decompressor.decompress(base64.b64decode(whole))
            # Chance makes such letters as well, and a beginning of what could be a stream after them.
            if decompressor.eof:
                yield data_inside


def keys_in(job: Staged) -> set[bytes]:
    """The constants in the graph's pickles that are as long as a key, and as random.

    32 random bytes have fewer than 20 different values with a probability of 1.5e-10; code, which is
    pickled as well, has few.
    """
    return {
        argument
        for transform in job.graph.components.transforms.values()
        for pickled in pickles_in(transform.spec.payload)
        for _, argument, _ in pickletools.genops(pickled)
        if isinstance(argument, bytes) and len(argument) == 32 and len(set(argument)) >= 20
    }


def secrets_of(run_key: RunKey, context: str) -> Mapping[str, bytes]:
    """The key, that of the run, and all that steps derive from it: as bytes and in hexadecimal."""
    bound = run_key.bound_to(context)
    keys = {"given": run_key.__reduce__()[1][0], "of the run": bound.__reduce__()[1][0]}
    purposes = re.findall(r'sub_key\(\s*"([^"]+)"', sources())
    assert {"user", "subset", "noise", "spurious draw", "item noise"} <= set(purposes)
    numbers = itertools.product(range(4), repeat=2)
    for purpose, (length, round_number) in itertools.product(purposes, numbers):
        for name, key in (("given", run_key), ("of the run", bound)):
            derived = f"{purpose}/{length}/{round_number} from {name}"
            keys[derived] = key.sub_key(purpose, length, round_number)
    hexadecimal = {f"{name} in hex": key.hex().encode() for name, key in keys.items()}
    return keys | hexadecimal


def sources() -> str:
    return "\n".join(path.read_text() for path in (ROOT / "beam_dpne").rglob("*.py"))
