"""The transforms of this package for Beam YAML; `provider.yaml` beside this file lists them."""

from beam_dpne.yaml.transforms import (
    BayesianCounts,
    PrivateNgrams,
    PrivateSetUnion,
    ReadDocuments,
    WriteRelease,
)

__all__ = ["BayesianCounts", "PrivateNgrams", "PrivateSetUnion", "ReadDocuments", "WriteRelease"]
