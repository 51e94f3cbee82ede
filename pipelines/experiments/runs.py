"""Descriptions of the runs of experiments, under which results are filed."""

import dataclasses
from collections.abc import Hashable, Mapping
from typing import Any, ClassVar, Protocol

from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.set_union.plan import SetUnionPlan
from pipelines.experiments.union_policies import UnionParameters


@dataclasses.dataclass(frozen=True, kw_only=True)
class NgramRun:
    """A run of `PrivateNgrams`, and the evaluation of its release.

    Attributes:
      corpus: Name of the data.
      plan: The plan of the run.
      key: Number of the run key.
    """

    corpus: str
    plan: PrivacyPlan
    key: int
    order: ClassVar[int] = 0
    kind: ClassVar[str] = "ngrams"

    @property
    def description(self) -> str:
        """Description in one line for the operator."""
        plan = self.plan
        name = f"{plan.strategy}, {plan.user_budgets}" if plan.user_budgets else plan.strategy
        return f"{self.corpus}, {name}, T = {plan.max_length}, ε = {plan.epsilon:g}, key {self.key}"

    @property
    def budget(self) -> tuple[float, float]:
        """ε and δ."""
        return self.plan.epsilon, self.plan.delta

    @property
    def longest(self) -> int:
        """T, the longest length of the run."""
        return self.plan.max_length

    def parameters(self) -> dict[str, Any]:
        """Returns everything on which the result depends except the data, as JSON types."""
        return {"kind": self.kind, "plan": self.plan.to_dict(), "key": self.key}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BaselineRun:
    """A run of one of the DPNE paper's baselines.

    Attributes:
      corpus: Name of the data.
      baseline: "DPSU-all", "DPSU-even" or "DPSU-single".
      epsilon: ε.
      delta: δ.
      max_length: T.
      max_contributions: Δ of each length.
      key: Number of the run key.
    """

    corpus: str
    baseline: str
    epsilon: float
    delta: float
    max_length: int
    max_contributions: int
    key: int
    order: ClassVar[int] = 1

    @property
    def description(self) -> str:
        """Description in one line for the operator."""
        return f"{self.corpus}, {self.baseline}, T = {self.max_length}, key {self.key}"

    @property
    def budget(self) -> tuple[float, float]:
        """ε and δ."""
        return self.epsilon, self.delta

    @property
    def longest(self) -> int:
        """T, the longest length of the run."""
        return self.max_length

    def parameters(self) -> dict[str, Any]:
        """Returns everything on which the result depends except the data, as JSON types."""
        fields = dataclasses.asdict(self)
        del fields["corpus"]
        return {"kind": "baseline", **fields}


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnionRun:
    """A run of set union over the words of a corpus.

    Attributes:
      corpus: Name of the data.
      plan: The plan of the run, or the parameters of a policy that only the papers have.
      key: Number of the run key, which also orders the users.
    """

    corpus: str
    plan: SetUnionPlan | UnionParameters
    key: int
    order: ClassVar[int] = 3

    @property
    def description(self) -> str:
        """Description in one line for the operator."""
        limit = self.plan.max_contributions
        return f"{self.corpus}, {self.plan.policy}, Δ_0 = {limit}, key {self.key}"

    @property
    def budget(self) -> tuple[float, float]:
        """ε and δ."""
        return self.plan.epsilon, self.plan.delta

    @property
    def longest(self) -> int:
        """1, since a set union releases only single words."""
        return 1

    def parameters(self) -> dict[str, Any]:
        """Returns everything on which the result depends except the data, as JSON types."""
        return {"kind": "union", "plan": self.plan.to_dict(), "key": self.key}


class AnyRun(Hashable, Protocol):
    """A run under which a result may be filed."""

    order: ClassVar[int]

    @property
    def corpus(self) -> str:
        """Name of the data."""
        ...

    @property
    def key(self) -> int:
        """Number of the run key."""
        ...

    @property
    def description(self) -> str:
        """Description in one line for the operator."""
        ...

    @property
    def budget(self) -> tuple[float | None, float | None]:
        """ε and δ; None where there is none."""
        ...

    @property
    def longest(self) -> int:
        """T, the longest length of the run."""
        ...

    def parameters(self) -> dict[str, Any]:
        """Returns everything on which the result depends except the data, as JSON types."""
        ...


Run = NgramRun | BaselineRun | UnionRun
Result = Mapping[str, Any]
