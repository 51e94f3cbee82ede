"""The experiments of private n-gram probabilities: the paper's figures and table, as lists of runs.

Every mechanism has δ = 1e-7, C = 1 and W = 30, except where W is varied. The paper has W = |U|/1000,
and C = 1 below a million users, 10 from there on. Nothing was chosen by looking at these data.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pipelines.experiments.bayesian_mechanisms import (
    ANONYMITY,
    COUNTS,
    EXACT,
    LAPLACE,
    LAPLACE_PUBLIC,
    LOG_GLOBAL,
    PAPER,
    PRIVATE,
    PUBLIC,
    PUBLIC_PLUS_ONE,
    Setting,
)
from pipelines.experiments.studies import Cell, Experiment, Made, Measured, Row, mean_of

PARTS = (
    *("epsilon", "users", "users_paper_limit", "vocabulary", "public_quality", "k_anonymity"),
    *("perplexity", "membership"),
)
LABELS = {
    COUNTS: "counts (ours)",
    LOG_GLOBAL: "log_global, by a bound over all databases",
    PAPER: "the paper's mechanism (no guarantee)",
    LAPLACE: "Laplace",
    LAPLACE_PUBLIC: "Laplace with public data, as printed",
    PUBLIC: "public only",
    PUBLIC_PLUS_ONE: "public only, 1 added",
    ANONYMITY: "k-anonymity (no guarantee)",
    PRIVATE: "private, unprotected",
}
TARGET_EPSILON = 0.1
TABLE_EPSILON = 0.2
TARGET_VOCABULARY = 50_000
MEMBERSHIP_VOCABULARY = 10_000
TABLE_VOCABULARIES = (10_000, 60_000)
TABLE_ANONYMITY = 50
PAPER_USERS_A_CONTRIBUTION = 1000
CORPUS = "titles"
COMPARED = (COUNTS, LOG_GLOBAL, PAPER, LAPLACE, LAPLACE_PUBLIC, PUBLIC, PUBLIC_PLUS_ONE)
FEW = (COUNTS, PAPER, LAPLACE, LAPLACE_PUBLIC, PUBLIC)
IN_TABLE = (PRIVATE, ANONYMITY, COUNTS, LOG_GLOBAL, PAPER, LAPLACE_PUBLIC, LAPLACE, PUBLIC)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale:
    """The number of runs, by the values of the parameters.

    Attributes:
      keys: Numbers of the run keys of the curves over ε; the others have the first one.
      epsilons, users, vocabularies, public_noises, anonymities: Values of the varied parameters; a
        number of users of None means all users of the data.
      attacked: Values of ε for membership inference.
      draws: Number of draws of each world for the paper's statistic.
      vocabulary_size: V where it is not varied.
      table_vocabularies: Values of V for perplexities.
    """

    keys: tuple[int, ...] = (1, 2, 3)
    epsilons: tuple[float, ...] = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
    users: tuple[int | None, ...] = (1_000, 10_000, 30_000, None, 300_000, 1_000_000, 4_400_000)
    vocabularies: tuple[int, ...] = (1_000, 3_000, 10_000, 30_000, 60_000)
    public_noises: tuple[float, ...] = (0.0, 1.0, 3.0, 10.0, 30.0, 100.0)
    anonymities: tuple[int, ...] = (2, 5, 10, 20, 50, 100, 200, 500)
    attacked: tuple[float, ...] = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
    draws: int = 60
    vocabulary_size: int = TARGET_VOCABULARY
    table_vocabularies: tuple[int, ...] = TABLE_VOCABULARIES

    def within(self, largest: int) -> "Scale":
        """Returns the same scale with no vocabulary larger than the public counts."""

        def cut(sizes: Iterable[int]) -> tuple[int, ...]:
            return tuple(sorted({min(size, largest) for size in sizes}))

        return dataclasses.replace(
            self,
            vocabulary_size=min(self.vocabulary_size, largest),
            vocabularies=cut(self.vocabularies),
            table_vocabularies=cut(self.table_vocabularies),
        )


DEFAULT = Scale()
QUICK = Scale(
    keys=(1,),
    epsilons=(0.1, 5.0),
    users=(1_000, None, 20_000),
    vocabularies=(500, 2_000),
    public_noises=(0.0, 10.0),
    anonymities=(2, 10),
    attacked=(0.5, 5.0),
    draws=10,
    vocabulary_size=2_000,
    table_vocabularies=(500, 2_000),
)


def all_experiments(scale: Scale, everybody: int) -> Iterator[Experiment]:
    """Yields all experiments.

    Args:
      scale: The number of runs.
      everybody: The number of all users.
    """
    size = scale.vocabulary_size
    target = TARGET_EPSILON
    users = [everybody if number is None else number for number in scale.users]

    def with_users(number: int) -> dict[str, Any]:
        chosen = None if number == everybody else number
        return {"epsilon": target, "users": chosen, "vocabulary_size": size}

    yield _divergence(
        "epsilon",
        "KL divergence from the private distribution over ε",
        "ε",
        _curves(COMPARED, scale.epsilons, lambda at: _at(at, size), scale.keys),
        "The paper's Figure 1, which has 4.4 million users. The paper's mechanism is tuned as "
        "printed, by a noisy choice among 40 candidates, and its curve jumps with that choice.",
    )
    yield _divergence(
        "users",
        f"KL divergence over the number of users, ε = {target:g}",
        "users",
        _curves(FEW, users, with_users),
        f"The paper's Figure 2. There are {everybody:,} users. Larger numbers are drawn from them "
        "with replacement, so that they are no new users: the curve shows the cost of noise, and "
        "not the gain from more data. The divergence is from the distribution of the same users.",
    )
    yield _divergence(
        "users_paper_limit",
        f"KL divergence over the number of users, W = |U|/1000, ε = {target:g}",
        "users",
        _curves(
            FEW,
            [number for number in users if number >= PAPER_USERS_A_CONTRIBUTION],
            lambda number: {
                **with_users(number),
                "max_contributions": number // PAPER_USERS_A_CONTRIBUTION,
            },
        ),
        "As before, but with the paper's limit of contributions.",
    )
    yield _divergence(
        "vocabulary",
        f"KL divergence over the size of the vocabulary, ε = {target:g}",
        "trigrams in the vocabulary",
        _curves(FEW, scale.vocabularies, lambda at: _at(target, at)),
        "The paper's Figure 3.",
    )
    yield _divergence(
        "public_quality",
        f"KL divergence over noise added to the public counts, ε = {target:g}",
        "scale of the Laplace noise",
        _curves(
            (COUNTS, PAPER, PUBLIC, LAPLACE),
            scale.public_noises,
            lambda at: {**_at(target, size), "public_noise": at},
        ),
        "The paper's Figure 4. The vocabulary stays that of the true public counts.",
    )
    yield _divergence(
        "k_anonymity",
        "KL divergence of k-anonymity over K",
        "K",
        _curves(
            (ANONYMITY,), scale.anonymities, lambda at: {"anonymity": at, "vocabulary_size": size}
        ),
        "The paper's Figure 5; compare with the curve of `counts` over ε.",
    )
    yield Experiment(
        part="perplexity",
        name="perplexity",
        title=f"Word perplexity of trigram models, ε = {TABLE_EPSILON:g}, K = {TABLE_ANONYMITY}",
        corpus=CORPUS,
        table=perplexities,
        rows=_curves(
            IN_TABLE,
            list(itertools.product(scale.table_vocabularies, (False, True))),
            lambda at: {
                **_at(TABLE_EPSILON, at[0]),
                "kind": "perplexity",
                "held_out": at[1],
                "anonymity": TABLE_ANONYMITY,
            },
        ),
        swept="vocabulary",
        notes=(
            "The paper's Table 1 (60 K n-grams; private 29.48, K-anonymity 35.51, Bayesian DP 35.55, "
            "public 43.00, Laplace with public data 580.46, Laplace 894.32): sentences all of whose "
            "trigrams are in the vocabulary, no back-off. *All*: the sentences of all users, who "
            "also make the models. *Held out*: models of nine tenths of the users, sentences of the "
            "others.",
        ),
    )
    yield Experiment(
        part="membership",
        name="membership",
        title="Membership inference of the user of most trigrams, over ε",
        corpus=CORPUS,
        table=inferences,
        rows=_curves(
            (COUNTS, PAPER, LAPLACE),
            scale.attacked,
            lambda at: {
                **_at(at, min(MEMBERSHIP_VOCABULARY, size)),
                "kind": "membership",
                "draws": scale.draws,
            },
        ),
        swept="ε",
        notes=(
            "The paper's Figure 6: how often the distribution of the user is nearer to the release "
            "with the user. The paper's mechanism is not tuned here (S = 0.01, ρ = ½). A low curve of "
            "the paper's mechanism is no guarantee: where one user alone has a word, its noise is "
            "thousands of times larger with that user, so that the noise shows whether the user is "
            "there.",
        ),
    )


def _at(epsilon: float, vocabulary_size: int) -> dict[str, Any]:
    return {"epsilon": epsilon, "vocabulary_size": vocabulary_size}


def _divergence(name: str, title: str, swept: str, rows: tuple[Row, ...], note: str) -> Experiment:
    return Experiment(
        part=name,
        name=name,
        title=title,
        corpus=CORPUS,
        table=divergences,
        rows=rows,
        swept=swept,
        notes=(note,),
    )


def _curves(
    names: Iterable[str],
    values: Iterable[Any],
    settings_of: Callable[[Any], dict[str, Any]],
    keys: tuple[int, ...] = (1,),
) -> tuple[Row, ...]:
    """Returns the rows of curves, value by value, so that the data of a value are made once."""
    rows = []
    for at in values:
        for name in names:
            given = {"kind": "divergence", **settings_of(at)}
            if name in EXACT:
                given.pop("epsilon", None)
            setting = Setting(mechanism=name, **given)
            rows.append(
                Row(label=name, at=at, plan=setting, keys=keys[:1] if name in EXACT else keys)
            )
    return tuple(rows)


# Tables


def _curve(measured: Measured, label: str, name: str) -> list[Cell]:
    return [_mean(found, name) for row, found in measured if row.label == label]


def _labels(measured: Measured) -> list[str]:
    return list(dict.fromkeys(row.label for row, _ in measured))


def _mean(found, name: str) -> float | None:
    value = mean_of(found, name)
    return None if value is None else float(f"{value:.5g}")


def divergences(experiment: Experiment, measured: Measured) -> Made:
    """A line for each mechanism, and a column for each value."""
    rows = [
        (LABELS[label] + suffix, *_curve(measured, label, name))
        for name, suffix in (("divergence", ""), ("best_floor", ", best floor in hindsight"))
        for label in _labels(measured)
    ]
    values = (f"{experiment.swept} = {at:,g}" for at in experiment.values)
    return ("mechanism", *values), rows, ()


def perplexities(experiment: Experiment, measured: Measured) -> Made:
    """A line for each mechanism, and a column for each vocabulary and kind of users."""
    labels = _labels(measured)
    rows = [(LABELS[label], *_curve(measured, label, "perplexity")) for label in labels]
    for label, name in (("words judged", "words"), ("sentences", "sentences")):
        counts = (found[0][name] for row, found in measured if row.label == labels[0])
        rows.append((label, *counts))
    headings = (
        f"{size:,} trigrams, {'held out' if held_out else 'all'}"
        for size, held_out in experiment.values
    )
    return ("mechanism", *headings), rows, ()


def inferences(experiment: Experiment, measured: Measured) -> Made:
    """A line for each mechanism and value of ε."""
    rows = [
        (LABELS[label], row.at, _mean(found, "probability"))
        for label in _labels(measured)
        for row, found in measured
        if row.label == label
    ]
    return ("mechanism", "ε claimed", "inference probability"), rows, ()
