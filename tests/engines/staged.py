"""Jobs for Dataflow as they were staged on an emulator: their steps, and what hides in them."""

import base64
import bz2
import contextlib
import itertools
import json
import pickletools
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from apache_beam.portability.api import beam_runner_api_pb2 as api

from beam_dpne.randomness import RunKey
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


def documented_steps(max_length: int) -> dict[str, Step]:
    """The table of steps in deploy/dataflow/README.md, for a number of lengths."""
    text = README.read_text().partition("<!-- table: steps -->")[2]
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in text.splitlines()
        if line.startswith("| `")
    ]
    assert len(rows) > 20
    return dict(step for row in rows for step in expanded(row, max_length))


def expanded(row: list[str], max_length: int) -> Iterator[tuple[str, Step]]:
    """The steps of one row: one for each length that it is for, or one."""
    name, kind, lengths, side_input = (cell.strip("`") for cell in row[:4])
    holds = {"": True, "T = 1": max_length == 1}
    wanted: Iterable[int] = range(1, max_length + 1)
    if lengths in holds and "/k/" not in name:
        wanted = [0] if holds[lengths] else []
    elif lengths:
        bound = int(lengths.split()[-1])
        wanted = [k for k in wanted if (k >= bound if "≥" in lengths else k == bound)]
    for k in wanted:
        sides = {side_input} - {""}
        sides = {side.replace("/k-1/", f"/{k - 1}/").replace("/k/", f"/{k}/") for side in sides}
        yield name.replace("/k/", f"/{k}/"), Step(kind, frozenset(sides))


def unpacked(data: bytes) -> bytes:
    """The data, and after it all pickles in it, which Beam compresses and writes in base64."""
    return b"\n".join([data, *map(unpacked, pickles_in(data))])


def pickles_in(data: bytes) -> Iterator[bytes]:
    for start in re.finditer(rb"QlpoO|eJ|eN", data):
        text = re.match(rb"[A-Za-z0-9+/]*", data[start.start() :])
        whole = text.group()[: len(text.group()) // 4 * 4] if text else b""
        decompressor = zlib.decompressobj() if whole[:1] == b"e" else bz2.BZ2Decompressor()
        with contextlib.suppress(OSError, zlib.error, EOFError):
            yield decompressor.decompress(base64.b64decode(whole))


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
    assert {"user", "subset", "noise", "spurious draw"} <= set(purposes)
    for purpose, length in itertools.product(purposes, range(4)):
        for name, key in (("given", run_key), ("of the run", bound)):
            for round_number in range(2):
                derived = f"{purpose}/{length}/{round_number} from {name}"
                keys[derived] = key.sub_key(purpose, length, round_number)
    hexadecimal = {f"{name} in hex": key.hex().encode() for name, key in keys.items()}
    return keys | hexadecimal


def sources() -> str:
    return "\n".join(path.read_text() for path in (ROOT / "beam_dpne").rglob("*.py"))
