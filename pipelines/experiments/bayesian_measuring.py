"""Measuring one run of the experiments of private n-gram probabilities, against the private data."""

import dataclasses
import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_dpne.elements import arrays
from beam_dpne.lists.public_counts import read_public_counts
from beam_dpne.mechanism.randomness import RunKey, keyed_bits
from pipelines.experiments.bayesian_judging import (
    best_floor,
    covered_sentences,
    infer_membership,
    kl_divergence,
    perplexity,
    with_floor,
)
from pipelines.experiments.bayesian_mechanisms import TOKENIZER, Setting, laplaces, release
from pipelines.experiments.corpora import Data, Source
from pipelines.experiments.exact_counts import ExactCounts, count_exactly
from pipelines.experiments.studies import Run

LENGTH = 3
LARGEST_VOCABULARY = 60_000
_HELD_OUT = 10
_FIRST_KEY = RunKey.from_hex("0" * 64)


class BayesianData(Data):
    """The private and the public data, which are read once and counted exactly once."""

    def __init__(self, private: Source, public: str):
        """Reads nothing yet; `public` is the path of the public text, or of its counts."""
        super().__init__(private)
        self.public = public
        self.covered = functools.lru_cache(self._covered)
        self.sized = functools.lru_cache(maxsize=1)(self._sized)

    @functools.cached_property
    def exact(self) -> ExactCounts:
        """Exact counts of the largest vocabulary."""
        public = read_public_counts(
            self.public, length=LENGTH, tokenizer=TOKENIZER, vocabulary_size=LARGEST_VOCABULARY
        )
        return count_exactly(self.corpus, public)

    def trained(self, held_out: bool) -> npt.NDArray[np.bool_]:
        """Returns whether a model is made of each user: (u,) bool."""
        return (self._draws % np.uint64(_HELD_OUT) != 0) | (not held_out)

    def _covered(self, vocabulary_size: int):
        """Returns the private sentences that a vocabulary covers."""
        return covered_sentences(self.corpus, self.exact.most_frequent(vocabulary_size).public)

    def _sized(
        self,
        vocabulary_size: int,
        users: int | None,
        public_noise: float,
        held_out: bool,
        seed: int,
    ) -> ExactCounts:
        """Returns data with a vocabulary, and as many users; larger numbers of users are drawn."""
        exact = self.exact.most_frequent(vocabulary_size)
        if held_out:
            exact = exact.of_users(self.trained(held_out=True))
        elif users is not None and users > exact.users:
            exact = exact.resampled(users, seed=seed)
        elif users is not None:
            order = np.argsort(self._draws, kind="stable")
            exact = exact.of_users(np.isin(np.arange(exact.users), order[:users]))
        return _worse_public(exact, public_noise) if public_noise else exact

    @functools.cached_property
    def _draws(self) -> npt.NDArray[np.uint64]:
        names = self.corpus.users.cast("large_binary")
        return arrays.hash_words(_FIRST_KEY.sub_key("parts of the users"), names)[:, 0]


def measure(run: Run, data: BayesianData, run_key: RunKey) -> dict[str, Any]:
    """Makes a run and returns its measurements, which are as secret as the data.

    Args:
      run: The run.
      data: Its data.
      run_key: Key of all noise.
    """
    setting: Setting = run.plan
    size = setting.vocabulary_size
    exact = data.sized(
        size,
        setting.users,
        setting.public_noise,
        setting.held_out,
        run.key if setting.users else 0,
    )
    if setting.kind == "membership":
        return {"probability": infer_membership(exact, setting, run_key)}
    found = release(exact, setting, run.key, run_key)
    if setting.kind == "divergence":
        private = exact.distribution
        return {
            "divergence": kl_divergence(private, with_floor(found)),
            "best_floor": best_floor(private, found),
        }
    sentences = data.covered(size)
    judged = ~data.trained(True) if setting.held_out else data.trained(False)
    rows = sentences.rows[judged[sentences.users]]
    return {
        # A small vocabulary covers no sentence of a few users.
        "perplexity": perplexity(with_floor(found), exact.public.grams, rows)
        if rows.size
        else None,
        "words": int(rows.size),
        "sentences": int(judged[sentences.authors].sum()),
    }


def _worse_public(exact: ExactCounts, scale: float) -> ExactCounts:
    """Adds Laplace noise to the public counts; the rows stay where they are, in the old order."""
    public = exact.public
    bits = keyed_bits(_FIRST_KEY.sub_key("public noise"), np.arange(len(public)), 0)
    noisy = np.rint(np.maximum(public.counts + scale * laplaces(bits), 0)).astype(np.int64)
    return dataclasses.replace(exact, public=dataclasses.replace(public, counts=noisy))
