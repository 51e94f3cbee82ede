"""What one run of an experiment is; descriptions only, which a result is filed under."""

import dataclasses
import hashlib
import json
from collections.abc import Hashable, Mapping
from typing import Any, Protocol

from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.version import __version__


@dataclasses.dataclass(frozen=True, kw_only=True)
class NgramRun:
    """A run of `PrivateNgrams`, and the evaluation of what it releases.

    Attributes:
      corpus: name of the data.
      plan: the parameters.
      key: number of the run key.
    """

    corpus: str
    plan: PrivacyPlan
    key: int

    @property
    def description(self) -> str:
        """One line for the operator."""
        plan = self.plan
        which = f"{plan.strategy}, {plan.user_budgets}" if plan.user_budgets else plan.strategy
        return (
            f"{self.corpus}, {which}, T = {plan.max_length}, ε = {plan.epsilon:g}, key {self.key}"
        )

    def parameters(self) -> dict[str, Any]:
        """Everything that the result depends on but the data, as JSON types."""
        return {"kind": "ngrams", "plan": self.plan.to_dict(), "key": self.key}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BaselineRun:
    """A run of one of the DPNE paper's baselines.

    Attributes:
      corpus: name of the data.
      baseline: "DPSU-all", "DPSU-even" or "DPSU-single".
      epsilon: ε.
      delta: δ.
      max_length: T.
      max_contributions: Δ for each length.
      key: number of the run key.
    """

    corpus: str
    baseline: str
    epsilon: float
    delta: float
    max_length: int
    max_contributions: int
    key: int

    @property
    def description(self) -> str:
        """One line for the operator."""
        return f"{self.corpus}, {self.baseline}, T = {self.max_length}, key {self.key}"

    def parameters(self) -> dict[str, Any]:
        """Everything that the result depends on but the data, as JSON types."""
        own = dataclasses.asdict(self)
        return {"kind": "baseline", **{name: own[name] for name in own if name != "corpus"}}


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnionRun:
    """A run of set union over the words of a corpus.

    Attributes:
      corpus: name of the data.
      plan: the parameters.
      key: number of the run key, which also orders the users.
    """

    corpus: str
    plan: SetUnionPlan
    key: int

    @property
    def description(self) -> str:
        """One line for the operator."""
        limit = self.plan.max_contributions
        return f"{self.corpus}, {self.plan.policy}, Δ_0 = {limit}, key {self.key}"

    def parameters(self) -> dict[str, Any]:
        """Everything that the result depends on but the data, as JSON types."""
        return {"kind": "union", "plan": self.plan.to_dict(), "key": self.key}


@dataclasses.dataclass(frozen=True, kw_only=True)
class CostRun:
    """A run of `beam-dpne ngrams` in a process of its own, for its time and memory.

    Attributes:
      corpus: name of the data, which it reads from their file.
      plan: the parameters.
      key: number of the run key, and of the repetition.
    """

    corpus: str
    plan: PrivacyPlan
    key: int

    @property
    def description(self) -> str:
        """One line for the operator."""
        return f"{self.corpus}, cost of {self.plan.strategy} as a process, key {self.key}"

    def parameters(self) -> dict[str, Any]:
        """Everything that the result depends on but the data, as JSON types."""
        return {"kind": "cost", "plan": self.plan.to_dict(), "key": self.key}


class AnyRun(Hashable, Protocol):
    """What a result may be filed under."""

    @property
    def corpus(self) -> str:
        """Name of the data."""
        ...

    def parameters(self) -> dict[str, Any]:
        """Everything that the result depends on but the data, as JSON types."""
        ...


Run = NgramRun | BaselineRun | UnionRun | CostRun
Result = Mapping[str, Any]


def budget_of(run: Run) -> tuple[float, float]:
    """Returns ε and δ of a run."""
    spent = run if isinstance(run, BaselineRun) else run.plan
    return spent.epsilon, spent.delta


def length_of(run: Run) -> int:
    """Returns T of a run; 1 of set union."""
    if isinstance(run, BaselineRun):
        return run.max_length
    return 1 if isinstance(run, UnionRun) else run.plan.max_length


def fingerprint(run: AnyRun, data: str, keys: str) -> str:
    """Returns what a result is filed under: 32 hexadecimal digits.

    Args:
      run: what was run.
      data: digest of the data, and how they are read.
      keys: what the numbers of run keys stand for.
    """
    whole = {**run.parameters(), "data": data, "keys": keys, "version": __version__}
    text = json.dumps(whole, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
