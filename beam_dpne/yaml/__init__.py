"""The transforms of this package for Beam YAML; `provider.yaml` beside this file lists them."""

from beam_dpne.yaml.transforms import (
    BayesianCounts,
    CountPhrases,
    PrivateNgrams,
    PrivateSetUnion,
    ReadDocuments,
    WriteRelease,
)

__all__ = [
    "BayesianCounts",
    "CountPhrases",
    "PrivateNgrams",
    "PrivateSetUnion",
    "ReadDocuments",
    "WriteRelease",
]
