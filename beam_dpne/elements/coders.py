"""The one coder of batches of arrays in Beam."""

from typing import Any

import apache_beam as beam

from beam_dpne.elements.encoding import HEAD_BYTES, array_bytes, decode, encode


class BatchCoder(beam.coders.Coder):
    """The coder of one dataclass of arrays; see `encoding`."""

    def __init__(self, batch_type: type):
        """Takes the dataclass of the batches."""
        self.batch_type = batch_type

    def encode(self, value: Any) -> bytes:
        """Returns the bytes of a batch."""
        return encode(value)

    def decode(self, encoded: bytes) -> Any:
        """Returns the batch of the bytes."""
        return decode(self.batch_type, encoded)

    def estimate_size(self, value: Any) -> int:
        """Returns a bound on the bytes that `encode` makes, without making them.

        Beam asks for the sizes of most elements when elements are few and large; its own answer is to
        encode them one time more.
        """
        return HEAD_BYTES if getattr(value, "stored", None) else HEAD_BYTES + array_bytes(value)

    @classmethod
    def from_type_hint(cls, typehint: Any, registry: Any) -> "BatchCoder":
        """Returns the coder of a registered type."""
        return cls(typehint)

    def to_type_hint(self) -> Any:
        """Returns the type of the batches, which notebooks need."""
        return self.batch_type

    def is_deterministic(self) -> bool:
        """Batches are values, never keys."""
        return False


def register_batches(*batch_types: type) -> None:
    """Makes `BatchCoder` the coder of dataclasses in Beam's registry."""
    for batch_type in batch_types:
        beam.coders.registry.register_coder(batch_type, BatchCoder)
