"""The experiments of private n-gram probabilities as lists of runs: the paper's figures and table.

Every mechanism has δ = 1e-7, C = 1 and W = 30, except where W is varied. The paper has W = |U|/1000,
and C = 1 below a million users, 10 from there on. Nothing was chosen by looking at these data.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pipelines.experiments.bayesian_runs import (
    ANONYMITY,
    COUNTS,
    EXACT,
    LAPLACE,
    LAPLACE_PUBLIC,
    LOG_GLOBAL,
    PAPER,
    PAPER_USERS_A_CONTRIBUTION,
    PRIVATE,
    PUBLIC,
    PUBLIC_PLUS_ONE,
    BayesianRun,
)
from pipelines.experiments.experiments import Experiment, Row

TARGET_EPSILON, TABLE_EPSILON = 0.1, 0.2
TARGET_VOCABULARY = 50_000
TABLE_VOCABULARIES = (10_000, 60_000)
TABLE_ANONYMITY = 50
MEMBERSHIP_VOCABULARY = 10_000
CORPUS = "titles"
COMPARED = (COUNTS, LOG_GLOBAL, PAPER, LAPLACE, LAPLACE_PUBLIC, PUBLIC, PUBLIC_PLUS_ONE)
FEW = (COUNTS, PAPER, LAPLACE, LAPLACE_PUBLIC, PUBLIC)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale:
    """The number of runs, by the values of the parameters.

    Attributes:
      keys: Numbers of the run keys of the curves over ε and of targets.
      few_keys: Numbers of the run keys of the other curves.
      epsilons, users, contributions, vocabularies, public_noises, anonymities: Values of the varied
        parameters; a number of users of None means all users of the data.
      attacked: Values of ε for membership inference.
      spoken: Values of ε for running text.
      draws: Number of draws of each world for the paper's statistic.
      vocabulary_size: V where it is not varied.
      table_vocabularies: Values of V for perplexities.
    """

    keys: tuple[int, ...] = (1, 2, 3)
    few_keys: tuple[int, ...] = (1,)
    epsilons: tuple[float, ...] = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
    users: tuple[int | None, ...] = (1_000, 10_000, 30_000, None, 300_000, 1_000_000, 4_400_000)
    contributions: tuple[int, ...] = (3, 10, 30, 122, 300)
    vocabularies: tuple[int, ...] = (1_000, 3_000, 10_000, 30_000, 60_000)
    public_noises: tuple[float, ...] = (0.0, 1.0, 3.0, 10.0, 30.0, 100.0)
    anonymities: tuple[int, ...] = (2, 5, 10, 20, 50, 100, 200, 500)
    attacked: tuple[float, ...] = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
    spoken: tuple[float, ...] = (0.2, 1.0, 4.0)
    draws: int = 60
    vocabulary_size: int = TARGET_VOCABULARY
    table_vocabularies: tuple[int, ...] = TABLE_VOCABULARIES

    def within(self, largest: int) -> "Scale":
        """Returns the same scale with no vocabulary larger than the public counts."""
        return dataclasses.replace(
            self,
            vocabulary_size=min(self.vocabulary_size, largest),
            vocabularies=tuple(sorted({min(size, largest) for size in self.vocabularies})),
            table_vocabularies=tuple(
                sorted({min(size, largest) for size in self.table_vocabularies})
            ),
        )


DEFAULT = Scale()
QUICK = Scale(
    keys=(1,),
    epsilons=(0.1, 5.0),
    users=(1_000, None, 20_000),
    contributions=(3, 30),
    vocabularies=(500, 2_000),
    public_noises=(0.0, 10.0),
    anonymities=(2, 10),
    attacked=(0.5, 5.0),
    spoken=(1.0,),
    draws=10,
    vocabulary_size=2_000,
    table_vocabularies=(500, 2_000),
)


def all_experiments(scale: Scale, everybody: int) -> tuple[Experiment, ...]:
    """Returns all experiments.

    Args:
      scale: The number of runs.
      everybody: The number of all users.
    """
    return (
        _epsilons(scale),
        _users(scale, everybody),
        _users_of_paper(scale, everybody),
        _contributions(scale),
        _vocabularies(scale),
        _public_quality(scale),
        _anonymities(scale),
        _perplexities(scale),
        _running_texts(scale),
        _attacks(scale),
        _counterexample(scale),
    )


def _epsilons(scale: Scale) -> Experiment:
    return _divergence(
        name="epsilon",
        title="KL divergence from the private distribution over ε",
        swept="ε",
        rows=_curves(
            COMPARED,
            scale.epsilons,
            scale.keys,
            lambda at: {"epsilon": at, "vocabulary_size": scale.vocabulary_size},
        ),
        notes=(
            "The paper's Figure 1, which has 4.4 million users. The paper's mechanism is tuned as "
            "printed, by a noisy choice among 40 candidates, and its curve jumps with that choice.",
        ),
    )


def _users(scale: Scale, everybody: int) -> Experiment:
    return _divergence(
        name="users",
        title=f"KL divergence over the number of users, ε = {TARGET_EPSILON:g}",
        swept="users",
        rows=_user_curves(scale, everybody, _numbers_of_users(scale, everybody)),
        notes=(
            f"The paper's Figure 2. There are {everybody:,} users. Larger numbers are drawn from them "
            "with replacement, so that they are no new users: the curve shows the cost of noise, and "
            "not the gain from more data. The divergence is from the distribution of the same users.",
        ),
    )


def _users_of_paper(scale: Scale, everybody: int) -> Experiment:
    numbers = _numbers_of_users(scale, everybody)
    return _divergence(
        name="users_paper_limit",
        title=f"KL divergence over the number of users, W = |U|/1000, ε = {TARGET_EPSILON:g}",
        swept="users",
        rows=_user_curves(
            scale,
            everybody,
            [number for number in numbers if number >= PAPER_USERS_A_CONTRIBUTION],
            lambda number: {"max_contributions": number // PAPER_USERS_A_CONTRIBUTION},
        ),
        notes=("As before, but with the paper's limit of contributions.",),
    )


def _numbers_of_users(scale: Scale, everybody: int) -> list[int]:
    return [everybody if number is None else number for number in scale.users]


def _user_curves(
    scale: Scale,
    everybody: int,
    numbers: Sequence[int],
    more: Callable[[int], dict[str, Any]] = lambda number: {},
) -> tuple[Row, ...]:
    """Returns the curves over the number of users; `more` has the settings that depend on it."""
    return _curves(
        FEW,
        numbers,
        scale.few_keys,
        lambda at: {
            "epsilon": TARGET_EPSILON,
            "users": None if at == everybody else int(at),
            "vocabulary_size": scale.vocabulary_size,
            **more(int(at)),
        },
    )


def _contributions(scale: Scale) -> Experiment:
    return _divergence(
        name="contributions",
        title=f"KL divergence over W, ε = {TARGET_EPSILON:g}",
        swept="W",
        rows=_curves(
            FEW,
            scale.contributions,
            scale.few_keys,
            lambda at: {
                "epsilon": TARGET_EPSILON,
                "max_contributions": int(at),
                "vocabulary_size": scale.vocabulary_size,
            },
        ),
        notes=("The paper's W is a thousandth of the number of users.",),
    )


def _vocabularies(scale: Scale) -> Experiment:
    return _divergence(
        name="vocabulary",
        title=f"KL divergence over the size of the vocabulary, ε = {TARGET_EPSILON:g}",
        swept="trigrams in the vocabulary",
        rows=_curves(
            FEW,
            scale.vocabularies,
            scale.few_keys,
            lambda at: {"epsilon": TARGET_EPSILON, "vocabulary_size": int(at)},
        ),
        notes=("The paper's Figure 3.",),
    )


def _public_quality(scale: Scale) -> Experiment:
    return _divergence(
        name="public_quality",
        title=f"KL divergence over noise added to the public counts, ε = {TARGET_EPSILON:g}",
        swept="scale of the Laplace noise",
        rows=_curves(
            (COUNTS, PAPER, PUBLIC, LAPLACE),
            scale.public_noises,
            scale.few_keys,
            lambda at: {
                "epsilon": TARGET_EPSILON,
                "public_noise": at,
                "vocabulary_size": scale.vocabulary_size,
            },
        ),
        notes=("The paper's Figure 4. The vocabulary stays that of the true public counts.",),
    )


def _anonymities(scale: Scale) -> Experiment:
    curves = _curves(
        (ANONYMITY,),
        scale.anonymities,
        scale.few_keys,
        lambda at: {"anonymity": int(at), "vocabulary_size": scale.vocabulary_size},
    )
    return _divergence(
        name="k_anonymity",
        title="KL divergence of k-anonymity over K",
        swept="K",
        rows=curves,
        notes=("The paper's Figure 5; compare with the curve of `counts` over ε.",),
    )


def _perplexities(scale: Scale) -> Experiment:
    names = (PRIVATE, ANONYMITY, COUNTS, LOG_GLOBAL, PAPER, LAPLACE_PUBLIC, LAPLACE, PUBLIC)
    values = itertools.product(scale.table_vocabularies, (False, True))
    rows = []
    for position, (size, held_out) in enumerate(values):
        for name in names:
            settings = {"vocabulary_size": size, "held_out": held_out}
            settings |= {} if name in EXACT else {"epsilon": TABLE_EPSILON}
            settings |= {"anonymity": TABLE_ANONYMITY} if name == ANONYMITY else {}
            runs = _runs("perplexity", name, scale.few_keys, settings)
            rows.append(Row(label=name, at=float(position), runs=runs))
    return Experiment(
        corpus=CORPUS,
        name="perplexity",
        title=f"Word perplexity of trigram models, ε = {TABLE_EPSILON:g}, K = {TABLE_ANONYMITY}",
        kind="perplexity",
        swept="vocabulary",
        rows=tuple(rows),
        notes=(
            "The paper's Table 1 (60 K n-grams; private 29.48, K-anonymity 35.51, Bayesian DP 35.55, "
            "public 43.00, Laplace with public data 580.46, Laplace 894.32): sentences all of whose "
            "trigrams are in the vocabulary, no back-off. *All*: the sentences of all users, who "
            "also make the models. *Held out*: models of nine tenths of the users, sentences of the "
            "others.",
        ),
    )


def _running_texts(scale: Scale) -> Experiment:
    curves = _curves(
        (PUBLIC, COUNTS, PRIVATE),
        scale.spoken,
        scale.few_keys,
        lambda at: {
            "epsilon": at,
            "vocabulary_size": scale.vocabulary_size,
            "held_out": True,
        },
        kind="running_text",
    )
    return Experiment(
        corpus=CORPUS,
        name="running_text",
        title="Word perplexity of running text under the model that `--arpa` writes",
        kind="running_text",
        swept="ε",
        rows=curves,
        notes=(
            "All texts of a tenth of the users, by models of the others and the public counts. "
            "*Public only* is the model of the public counts alone, *private* the same model moved to "
            "the exact private distribution. *Own single words*: under the file's order 1 alone.",
        ),
    )


def _attacks(scale: Scale) -> Experiment:
    curves = _curves(
        (COUNTS, PAPER, LAPLACE),
        scale.attacked,
        scale.few_keys,
        lambda at: {
            "epsilon": at,
            "vocabulary_size": min(MEMBERSHIP_VOCABULARY, scale.vocabulary_size),
            "draws": scale.draws,
        },
        kind="membership",
    )
    return Experiment(
        corpus=CORPUS,
        name="membership",
        title="Membership inference of the user of most trigrams, over ε",
        kind="membership",
        swept="ε",
        rows=curves,
        notes=(
            "The paper's Figure 6 is on the left: how often the distribution of the user is nearer to "
            "the release with the user. On the right is the lower bound of ε, at 95 %, by the "
            "likelihood ratio, which is the best possible test. The paper's mechanism is not tuned "
            "here (S = 0.01, ρ = ½). A low curve of the paper's mechanism is no guarantee: see the "
            "next experiment.",
        ),
    )


def _counterexample(scale: Scale) -> Experiment:
    curves = _curves(
        (COUNTS, PAPER, LAPLACE),
        scale.attacked,
        scale.few_keys,
        lambda at: {"epsilon": at, "vocabulary_size": 50},
        kind="counterexample",
    )
    return Experiment(
        corpus=CORPUS,
        name="counterexample",
        title="The same attack where one user is the only one of a word",
        kind="counterexample",
        swept="ε",
        rows=curves,
        data="made up",
        notes=(
            "5,000 users have 49 words each, and one user has a word alone (C = 1, S = 0.01). With "
            "that user the paper's noise is thousands of times larger, so that the noise reveals "
            "whether the user is there.",
        ),
    )


def _divergence(**fields: Any) -> Experiment:
    """Returns an experiment on KL divergence, with the other fields of `Experiment`."""
    return Experiment(corpus=CORPUS, kind="divergence", **fields)


def _curves(
    names: Iterable[str],
    values: Sequence[float],
    keys: tuple[int, ...],
    settings_of: Callable[[float], dict[str, Any]],
    *,
    kind: str = "divergence",
) -> tuple[Row, ...]:
    """Returns the rows of curves, value by value, so that the data of a value are made once."""
    rows = []
    for at in values:
        for name in names:
            settings = settings_of(at)
            if name in EXACT:
                settings.pop("epsilon", None)
            rows.append(Row(label=name, at=float(at), runs=_runs(kind, name, keys, settings)))
    return tuple(rows)


def _runs(kind: str, name: str, keys: tuple[int, ...], settings) -> tuple[BayesianRun, ...]:
    chosen = keys[:1] if name in EXACT else keys
    return tuple(BayesianRun(kind=kind, mechanism=name, key=key, **settings) for key in chosen)
