"""Jobs for Dataflow as they were staged on an emulator, and what hides in them."""

import base64
import bz2
import contextlib
import json
import pickletools
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from apache_beam.portability.api import beam_runner_api_pb2 as api

if TYPE_CHECKING:
    from tests.engines.storage import Bucket


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


def read_back(bucket: "Bucket", folder: str, template: str, job_name: str) -> Staged:
    """Reads a job back from the emulator."""
    job = json.loads(bucket.files(template)[""])
    url = job["environment"]["sdkPipelineOptions"]["options"]["pipelineUrl"]
    files = bucket.files(f"{folder}/{job_name}.")
    graph = api.Pipeline.FromString(bucket.files(url.removeprefix(bucket.path()))[""])
    # Beam's own folder in the staging location ends with the time.
    return Staged(job, graph, {name.partition("/")[2]: data for name, data in files.items()})


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
