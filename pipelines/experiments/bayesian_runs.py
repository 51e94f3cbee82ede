"""Descriptions of the runs of experiments with private n-gram probabilities."""

import dataclasses
from typing import Any, ClassVar

from beam_dpne.bayesian.plan import BayesianPlan
from pipelines.experiments.paper_probabilities import NO_GUARANTEE, Paper

LAPLACE = "laplace"
LAPLACE_PUBLIC = "laplace_public"
PUBLIC = "public"
PUBLIC_PLUS_ONE = "public_plus_one"
ANONYMITY = "k_anonymity"
PRIVATE = "private"
PAPER, PAPER_CLAIM = "paper_brute_force", "paper_claim1"
PAPER_SENSITIVITIES = {PAPER: "brute_force", PAPER_CLAIM: "claim1"}
COUNTS, LOG_GLOBAL = "counts", "log_global"
# Without noise: one key is as good as another.
EXACT = (PUBLIC, PUBLIC_PLUS_ONE, ANONYMITY, PRIVATE)
PAPER_DECAYS = (1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3, 1e4)
PAPER_PUBLIC_WEIGHTS = (0.1, 0.3, 0.5, 0.7, 0.9)
LABELS = {
    COUNTS: "counts (ours)",
    LOG_GLOBAL: "log_global, by a bound over all databases",
    PAPER: "the paper's mechanism (no guarantee)",
    PAPER_CLAIM: "the paper's, by Claim 1 (no guarantee)",
    LAPLACE: "Laplace",
    LAPLACE_PUBLIC: "Laplace with public data, as printed",
    PUBLIC: "public only",
    PUBLIC_PLUS_ONE: "public only, 1 added",
    ANONYMITY: "k-anonymity (no guarantee)",
    PRIVATE: "private, unprotected",
}
DELTA = 1e-7
MAX_COUNT, MAX_CONTRIBUTIONS = 1, 30
PAPER_USERS_A_CONTRIBUTION = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class BayesianRun:
    """One mechanism under one setting, and the kind of its measurement.

    Attributes:
      kind: "divergence", "perplexity", "running_text", "membership", "counterexample" or "pipeline".
      mechanism: A mode, or a baseline above.
      epsilon: ε, or None where there is none.
      vocabulary_size: V.
      users: Number of users, or None for all. If it is larger than the number in the data, users are
        drawn with replacement.
      public_noise: Scale of Laplace noise added to the public counts, which makes them worse.
      anonymity: K of k-anonymity.
      held_out: Whether the model is made of nine tenths of the users and judged on the sentences of the
        others.
      draws: Number of draws of each world for membership inference.
      max_contributions: W.
      key: Number of the run key.
      corpus: Name of the data.
    """

    kind: str
    mechanism: str
    epsilon: float | None = None
    vocabulary_size: int = 50_000
    users: int | None = None
    public_noise: float = 0.0
    anonymity: int | None = None
    held_out: bool = False
    draws: int = 0
    max_contributions: int = MAX_CONTRIBUTIONS
    key: int = 1
    corpus: str = "titles"
    order: ClassVar[int] = 0

    @property
    def description(self) -> str:
        """Description in one line for the operator."""
        values = dataclasses.asdict(self)
        default = {field.name: field.default for field in dataclasses.fields(self)}
        return ", ".join(
            f"{name} {value}" for name, value in values.items() if value != default[name]
        )

    @property
    def budget(self) -> tuple[float | None, float | None]:
        """ε and δ, with None where there is none."""
        return self.epsilon, None if self.epsilon is None else DELTA

    @property
    def plan(self) -> BayesianPlan:
        """The plan of the product's mechanism; all mechanisms have its limits."""
        return BayesianPlan(
            epsilon=self.epsilon or 1.0,
            delta=DELTA,
            vocabulary_size=self.vocabulary_size,
            max_count=MAX_COUNT,
            max_contributions=self.max_contributions,
        )

    @property
    def paper(self) -> Paper:
        """The parameters of a run of the paper's mechanism.

        It is tuned as printed, except for membership inference, where the worlds are to differ by the
        user alone.
        """
        tuned = {"decays": PAPER_DECAYS, "public_weights": PAPER_PUBLIC_WEIGHTS}
        return Paper(
            epsilon=self.epsilon or 1.0,
            delta=DELTA,
            max_count=MAX_COUNT,
            sensitivity=PAPER_SENSITIVITIES[self.mechanism],
            **(tuned if self.kind in ("divergence", "perplexity") else {}),
        )

    @property
    def is_private(self) -> bool:
        """Whether the mechanism has a guarantee."""
        return self.mechanism in (COUNTS, LOG_GLOBAL, LAPLACE, PUBLIC, PUBLIC_PLUS_ONE)

    @property
    def longest(self) -> int:
        """1, since nothing is counted by length here."""
        return 1

    def parameters(self) -> dict[str, Any]:
        """Returns everything on which the result depends except the data, as JSON types."""
        fields = dataclasses.asdict(self)
        fields["delta"], fields["max_count"] = DELTA, MAX_COUNT
        del fields["corpus"]
        return {
            "kind": "bayesian",
            "privacy": "" if self.is_private else NO_GUARANTEE,
            "run": fields,
        }
