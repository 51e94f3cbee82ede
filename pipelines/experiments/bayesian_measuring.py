"""Measuring one run of the experiments of private n-gram probabilities, against the private data."""

import dataclasses
import functools
import math
import pathlib
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_dpne.bayesian.backoff import adapted_model
from beam_dpne.bayesian.posterior import discounted
from beam_dpne.bayesian.public_counts_files import read_public_counts, read_shorter_counts
from beam_dpne.bayesian.public_orders import PublicOrders
from beam_dpne.evaluation.corpus import Corpus, read_corpus
from beam_dpne.mechanism.randomness import RunKey, keyed_bits
from beam_dpne.reading.files import match_inputs
from pipelines.experiments.bayesian_baselines import laplaces
from pipelines.experiments.bayesian_mechanisms import TOKENIZER, World, release
from pipelines.experiments.bayesian_membership import attack, counterexample, pair_of
from pipelines.experiments.bayesian_runs import PUBLIC, BayesianRun
from pipelines.experiments.corpora import Source
from pipelines.experiments.divergence import best_floor, kl_divergence, with_floor
from pipelines.experiments.exact_counts import ExactCounts, count_exactly
from pipelines.experiments.perplexity import CoveredSentences, covered_sentences, perplexity
from pipelines.experiments.running_text import ids_of, judge
from pipelines.experiments.saved_corpora import load_corpus, save_corpus, user_hashes

LENGTH = 3
LARGEST_VOCABULARY = 60_000
_HELD_OUT = 10
_FIRST_KEY = RunKey.from_hex("0" * 64)


class BayesianData:
    """The private and the public data, which are read once and counted exactly once."""

    def __init__(self, private: Source, public: str, cache: pathlib.Path):
        """Prepares the data and reads nothing yet.

        Args:
          private: The users' texts.
          public: Path of the public text.
          cache: Local directory for the tokenized texts, as secret as the texts.
        """
        self.private = private
        self.public = public
        self._cache = cache
        self._kept: tuple[Any, World] | None = None
        self._covered: dict[int, CoveredSentences] = {}

    @functools.cached_property
    def corpus(self) -> Corpus:
        """The private texts, tokenized."""
        try:
            return load_corpus(self._cache)
        except FileNotFoundError:
            files = match_inputs([self.private.path])
            save_corpus(read_corpus(files, self.private.reading, TOKENIZER), self._cache)
            return load_corpus(self._cache)

    @functools.cached_property
    def exact(self) -> ExactCounts:
        """Exact counts of the largest vocabulary."""
        public = read_public_counts(
            self.public, length=LENGTH, tokenizer=TOKENIZER, vocabulary_size=LARGEST_VOCABULARY
        )
        return count_exactly(self.corpus, public)

    @functools.cached_property
    def public_orders(self) -> PublicOrders:
        """All public n-grams, of which a language model is made."""
        given = {"length": LENGTH, "tokenizer": TOKENIZER}
        longest = read_public_counts(self.public, **given)
        shorter, is_text = read_shorter_counts(self.public, **given)
        is_whole = is_text or int(longest.counts.min()) <= 1
        return PublicOrders.of([*shorter, longest], is_whole=is_whole)

    def world(self, run: BayesianRun) -> World:
        """Returns the data of a run; the last data are kept."""
        wanted = run.vocabulary_size, run.users, run.public_noise, run.held_out
        if self._kept is None or self._kept[0] != wanted:
            exact = self._sized(self.exact.most_frequent(run.vocabulary_size), run)
            if run.public_noise:
                exact = _worse_public(exact, run.public_noise)
            self._kept = wanted, World(exact, self.corpus.users)
        return self._kept[1]

    def trained(self, held_out: bool) -> npt.NDArray[np.bool_]:
        """Returns whether a model is made of each user: (u,) bool."""
        if not held_out:
            return np.ones(len(self.corpus.users), dtype=bool)
        return self._draws() % np.uint64(_HELD_OUT) != 0

    def sentences(self, vocabulary_size: int) -> CoveredSentences:
        """Returns the private sentences that a vocabulary covers."""
        if vocabulary_size not in self._covered:
            public = self.exact.most_frequent(vocabulary_size).public
            self._covered[vocabulary_size] = covered_sentences(self.corpus, public)
        return self._covered[vocabulary_size]

    def _sized(self, exact: ExactCounts, run: BayesianRun) -> ExactCounts:
        """Returns data with the number of users that was asked for; larger numbers are drawn."""
        if run.held_out:
            return exact.of_users(self.trained(held_out=True))
        if run.users is None:
            return exact
        if run.users > exact.users:
            return exact.resampled(run.users, seed=run.key)
        order = np.argsort(self._draws(), kind="stable")
        chosen = np.zeros(exact.users, dtype=bool)
        chosen[order[: run.users]] = True
        return exact.of_users(chosen)

    def _draws(self) -> npt.NDArray[np.uint64]:
        everybody = np.arange(len(self.corpus.users))
        return user_hashes(self.corpus, _FIRST_KEY.sub_key("parts of the users"), everybody)


def measure(run: BayesianRun, data: BayesianData, run_key: RunKey) -> dict[str, Any]:
    """Makes a run and returns its measurements, as JSON types; they are as secret as the data.

    Args:
      run: The run.
      data: Its data.
      run_key: Key of all noise.
    """
    if run.kind != "counterexample":
        _ = data.exact  # not counted as time of the run
    started = time.monotonic()
    result = _MEASURES[run.kind](run, data, run_key)
    return {"seconds": time.monotonic() - started, **result}


def _divergence(run: BayesianRun, data: BayesianData, run_key: RunKey) -> dict[str, Any]:
    world = data.world(run)
    return _judged(world.exact.distribution, release(world, run, run_key))


def _judged(private: npt.NDArray[np.float64], found: npt.NDArray[np.float64]) -> dict[str, Any]:
    """Returns the divergence with the common floor, with none, and with the best one in hindsight."""
    exact = kl_divergence(private, found)
    best, share = best_floor(private, found)
    return {
        "divergence": kl_divergence(private, with_floor(found)),
        "without_floor": exact if math.isfinite(exact) else None,
        "best_floor": best,
        "best_share": share,
    }


def _perplexity(run: BayesianRun, data: BayesianData, run_key: RunKey) -> dict[str, Any]:
    world = data.world(run)
    sentences = data.sentences(run.vocabulary_size)
    judged = ~data.trained(run.held_out) if run.held_out else data.trained(False)
    rows = sentences.of(judged)
    joint = with_floor(release(world, run, run_key))
    return {
        # A small vocabulary covers no sentence of a few users.
        "perplexity": perplexity(joint, world.exact.public.grams, rows) if rows.size else None,
        "words": int(rows.size),
        "sentences": int(judged[sentences.authors].sum()),
    }


def _running_text(run: BayesianRun, data: BayesianData, run_key: RunKey) -> dict[str, Any]:
    """Judges the model that `--arpa` writes, on all texts of the users it is not made of."""
    world, orders = data.world(run), data.public_orders
    released = world.exact.public
    joint = release(world, run, run_key)
    if run.mechanism == PUBLIC:
        joint = discounted(released.counts)
    model = adapted_model(orders, orders.rows_of(released), joint)
    ids = ids_of(data.corpus, ~data.trained(held_out=True), orders.words)
    whole, single = judge(model, ids, LENGTH), judge(model, ids, 1)
    return {
        "perplexity": whole.known,
        "with_unknown": whole.every,
        "own_words": single.known,
        "unknown": whole.unknown,
    }


def _membership(run: BayesianRun, data: BayesianData, run_key: RunKey) -> dict[str, Any]:
    return attack(pair_of(data.world(run), run, run_key), run, run_key)


def _counterexample(run: BayesianRun, data: BayesianData, run_key: RunKey) -> dict[str, Any]:
    return attack(counterexample(), run, run_key)


def _worse_public(exact: ExactCounts, scale: float) -> ExactCounts:
    """Adds Laplace noise to the public counts; the rows stay where they are, in the old order."""
    public = exact.public
    bits = keyed_bits(_FIRST_KEY.sub_key("public noise"), np.arange(len(public)), 0)
    noisy = np.rint(np.maximum(public.counts + scale * laplaces(bits), 0)).astype(np.int64)
    return dataclasses.replace(exact, public=dataclasses.replace(public, counts=noisy))


_MEASURES = {
    "divergence": _divergence,
    "perplexity": _perplexity,
    "running_text": _running_text,
    "membership": _membership,
    "counterexample": _counterexample,
}
