"""The papers' tables and figures as lists of runs: which rows there are, and what they run.

Parameters are the papers' wherever they have any; "ours" has the same ε, δ, T and η and otherwise the
defaults. Nothing here was chosen by looking at these data. No run measures numbers of users, which the
papers do not have either.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from beam_dpne.ngrams.adaptive import AHEAD
from beam_dpne.ngrams.plan import NgramsPlan
from beam_dpne.set_union.plan import DESCENT_POLICIES, SetUnionPlan
from pipelines.experiments import baselines, paper_tables, union_policies
from pipelines.experiments import printed as papers
from pipelines.experiments.baselines import Baseline
from pipelines.experiments.paper_tables import OURS, PAPER
from pipelines.experiments.studies import Experiment, Row
from pipelines.experiments.union_policies import UnionParameters

DEFAULT_UNION = "default"
PUBLISHED = (
    *("count_laplace", "count_gaussian", "weighted_laplace", "weighted_gaussian"),
    *("policy_laplace", "policy_gaussian", "greedy", "sips"),
)
OTHER_POLICIES = ("screened_gaussian", "mad", "mad2r")
MSNBC: Mapping[str, Any] = {"epsilon": 1.0, "delta": 1e-7, "max_length": 6}
TITLES: Mapping[str, Any] = {"epsilon": 4.0, "delta": 1e-7}
UNION: Mapping[str, Any] = {"epsilon": 3.0, "delta": math.exp(-10)}
MSNBC_LIMIT = 10
TITLES_LIMIT = 100
SPURIOUS_LIMIT = 300
UNION_LIMIT = 100
TARGET_LENGTH = 7
TABLE_LENGTH = 9
FAVOUR_LENGTH = 5
SPURIOUS_FRACTIONS = papers.DPNE_TABLE_3.columns


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale:
    """How much is run.

    Attributes:
      keys: Numbers of the run keys of tables of n-grams.
      union_keys: Those of set union: orders of the users.
      union_limits: Δ_0.
      spurious_fractions: η.
      epsilons, limits, growths: Values of the sweeps.
    """

    keys: tuple[int, ...] = (1, 2, 3)
    union_keys: tuple[int, ...] = (1, 2, 3, 4, 5)
    union_limits: tuple[int, ...] = (1, 10, 50, 100, 200, 300)
    spurious_fractions: tuple[float, ...] = SPURIOUS_FRACTIONS
    epsilons: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)
    limits: tuple[int, ...] = (30, 100, 300, 1000)
    growths: tuple[float, ...] = (0.8, 0.9, 1.0, 1.1)


# The key of what is dear: Table 3, the baselines of Table 4 at T = 7, sweeps.
_ONE_KEY = (1,)
DEFAULT = Scale()
QUICK = Scale(
    keys=(1,),
    union_keys=(1,),
    union_limits=(10, 100),
    spurious_fractions=(0.01, 0.2),
    epsilons=(1.0, 4.0),
    limits=(30, 300),
    growths=(0.8, 1.0),
)


def all_experiments(scale: Scale) -> list[Experiment]:
    """Returns all experiments, the most important first."""
    return [
        _table_5(scale),
        _table_4(scale, TABLE_LENGTH, scale.keys),
        _table_4(scale, TARGET_LENGTH, _ONE_KEY),
        _table_3(scale),
        *_unions(scale),
        *_sweeps(scale),
        _best(scale, "msnbc", "MSNBC visits", MSNBC),
        _best(scale, "titles", "titles", {**TITLES, "max_length": TARGET_LENGTH}),
        _favour(scale, "titles", "titles", {**TITLES, "max_length": FAVOUR_LENGTH}),
        _favour(scale, "msnbc", "MSNBC visits", MSNBC),
    ]


def _ngrams(label: str, keys: tuple[int, ...], at: Any = None, /, **plan: Any) -> Row:
    return Row(label=label, plan=NgramsPlan(**plan, count_share=0.0), keys=keys, at=at)


def _compared(
    keys: tuple[int, ...], few_keys: tuple[int, ...], limit: int, plan: Mapping[str, Any]
) -> tuple[Row, ...]:
    """The paper's algorithm, its baselines and ours, under the same privacy."""
    paper = {"strategy": "one_round", "max_contributions": limit}
    return (
        _ngrams(PAPER, keys, **plan, **paper),
        *(
            Row(
                label=name, plan=Baseline(name=name, **plan, max_contributions=limit), keys=few_keys
            )
            for name in baselines.NAMES
        ),
        _ngrams(OURS, keys, **plan),
    )


def _table_5(scale: Scale) -> Experiment:
    return Experiment(
        part="msnbc",
        name="dpne_table_5",
        title="DPNE, Table 5: n-grams of MSNBC visits (ε = 1, δ = 1e-7, T = 6, Δ = 10, η = 0.01)",
        corpus="msnbc",
        table=paper_tables.lengths,
        rows=_compared(scale.keys, scale.keys, MSNBC_LIMIT, MSNBC),
        printed=papers.DPNE_TABLE_5,
    )


def _table_4(scale: Scale, max_length: int, few_keys: tuple[int, ...]) -> Experiment:
    return Experiment(
        part="titles",
        name=f"dpne_table_4_{max_length}",
        title=f"The shape of DPNE, Table 4: n-grams of titles (ε = 4, δ = 1e-7, T = {max_length}, "
        "Δ = 100, η = 0.01)",
        corpus="titles",
        table=paper_tables.lengths,
        rows=_compared(scale.keys, few_keys, TITLES_LIMIT, {**TITLES, "max_length": max_length}),
        printed=papers.DPNE_TABLE_4 if max_length == TABLE_LENGTH else None,
        notes=("The paper's data are not to be had: compare shapes and ratios, not sizes.",),
    )


def _swept(
    name: str, values: Sequence[Any], limit: int, labels: Sequence[str] = (PAPER, OURS)
) -> tuple[Row, ...]:
    """The paper's algorithm and ours on titles, or one of them, at some values of a parameter."""
    plan = {**TITLES, "max_length": TABLE_LENGTH}
    own: dict[str, Any] = {PAPER: {"strategy": "one_round", "max_contributions": limit}, OURS: {}}
    return tuple(
        _ngrams(label, _ONE_KEY, value, **{**plan, **own[label], name: value})
        for label in labels
        for value in values
    )


def _table_3(scale: Scale) -> Experiment:
    """The paper's Δ is 300 here."""
    return Experiment(
        part="spurious",
        name="dpne_table_3",
        title="DPNE, Table 3: share of spurious n-grams over η (titles, ε = 4, δ = 1e-7, T = 9, "
        "Δ = 300)",
        corpus="titles",
        table=paper_tables.spurious_share,
        rows=_swept("spurious_fraction", scale.spurious_fractions, SPURIOUS_LIMIT),
        swept="η",
        printed=papers.DPNE_TABLE_3,
    )


def union_plan(policy: str, limit: int) -> SetUnionPlan | UnionParameters:
    """Returns the plan of a policy: published descents in one sequence (M = 1), as the paper has it.

    No plan measures numbers of users, so that policies are compared by their items alone.

    Args:
      policy: Name of the policy.
      limit: Δ_0.
    """
    if policy in union_policies.POLICIES:
        return UnionParameters(**UNION, policy=policy, max_contributions=limit)
    published: dict[str, Any] = {}
    if policy in DESCENT_POLICIES and policy in PUBLISHED:
        published = {"max_shard_users": 10_000_000, "cutoff_margin": 5.0}
    return SetUnionPlan(
        **UNION, policy=policy, max_contributions=limit, count_share=0.0, **published
    )


def _unions(scale: Scale) -> tuple[Experiment, ...]:
    grid = tuple(
        Row(label=policy, plan=union_plan(policy, limit), keys=scale.union_keys, at=limit)
        for policy in (*PUBLISHED, *OTHER_POLICIES)
        for limit in scale.union_limits
    )
    ours = SetUnionPlan(**UNION, count_share=0.0)
    sizes = [
        row
        for row in grid
        if row.at == UNION_LIMIT and row.label in ("policy_laplace", "policy_gaussian")
    ]
    return (
        Experiment(
            part="set_union",
            name="dpsu_table_1",
            title="DPSU, Table 1 and Figure 3: words of titles released over Δ_0 "
            "(ε = 3, δ = exp(−10), α = 5)",
            corpus="titles",
            table=paper_tables.union,
            rows=grid,
            swept="Δ_0",
            printed=papers.DPSU_TABLE_1,
        ),
        Experiment(
            part="set_union",
            name="dpsu_table_2",
            title="DPSU, Table 2: size of the released set over the words of at least k users "
            "(titles, ε = 3, δ = exp(−10), Δ_0 = 100)",
            corpus="titles",
            table=paper_tables.sizes,
            rows=(*sizes, Row(label=DEFAULT_UNION, plan=ours, keys=scale.union_keys)),
            swept="k",
            printed=papers.DPSU_TABLE_2,
        ),
    )


def _sweeps(scale: Scale) -> Iterator[Experiment]:
    """Sweeps of parameters on titles; those of the paper's algorithm alone have no row of ours."""
    swept = (
        (
            "2_epsilon",
            "Real n-grams over ε (δ = 1e-7, T = 9, η = 0.01)",
            "ε",
            "epsilon",
            scale.epsilons,
        ),
        (
            *("2_contributions", "DPNE, Figure 2: over Δ (ε = 4, δ = 1e-7, T = 9, η = 0.01)", "Δ"),
            *("max_contributions", scale.limits),
        ),
        (
            *("3_spurious", "DPNE, Figure 3: over η (ε = 4, δ = 1e-7, T = 9)", "η"),
            *("spurious_fraction", scale.spurious_fractions),
        ),
        (
            "3_noise",
            "DPNE, Figure 3: over c of the noise schedule σ_k = c σ_{k−1} (ε = 4, δ = 1e-7, T = 9); "
            "ours has no such schedule",
            *("c", "noise_growth", scale.growths),
        ),
        (
            "4_pruning",
            "DPNE, Figure 4, left: over the pruning rule (ε = 4, δ = 1e-7, T = 9)",
            *("rule", "pruning", ("both", "single")),
        ),
    )
    for name, title, symbol, field, values in swept:
        labels = (PAPER,) if field in ("noise_growth", "pruning") else (PAPER, OURS)
        yield Experiment(
            part="sweeps",
            name=f"dpne_figure_{name}",
            title=title,
            corpus="titles",
            table=paper_tables.sweep,
            rows=_swept(field, values, TITLES_LIMIT, labels),
            swept=symbol,
        )
    yield Experiment(
        part="sweeps",
        name="dpne_figure_4_anonymity",
        title="DPNE, Figure 4, right: released share of what at least k users hold "
        "(ε = 4, δ = 1e-7, T = 9)",
        corpus="titles",
        table=paper_tables.anonymity,
        rows=_swept("epsilon", (TITLES["epsilon"],), TITLES_LIMIT),
        is_short=False,
    )


def _best(scale: Scale, corpus: str, told: str, plan: Mapping[str, Any]) -> Experiment:
    """Ours beside the paper's algorithm at many Δ, of which a user could not know the best one."""
    paper = (
        _ngrams(
            *(f"{PAPER}, Δ = {limit}", _ONE_KEY),
            **{**plan, "strategy": "one_round", "max_contributions": limit},
        )
        for limit in (MSNBC_LIMIT, *scale.limits)
    )
    parameters = f"ε = {plan['epsilon']:g}, δ = 1e-7, T = {plan['max_length']}"
    return Experiment(
        part="best",
        name=f"best_{corpus}",
        title=f"The paper's algorithm at many Δ: {told} ({parameters}, η = 0.01)",
        corpus=corpus,
        table=paper_tables.lengths,
        rows=(
            *paper,
            _ngrams(OURS, scale.keys, **plan),
        ),
    )


def _favour(scale: Scale, corpus: str, told: str, plan: Mapping[str, Any]) -> Experiment:
    """Ours at each value of `favour`, which says how much users keep for longer n-grams."""
    parameters = f"ε = {plan['epsilon']:g}, δ = 1e-7, T = {plan['max_length']}"
    return Experiment(
        part="favour",
        name=f"favour_{corpus}",
        title=f"Ours over favour: {told} ({parameters}, η = 0.01)",
        corpus=corpus,
        table=paper_tables.sweep,
        rows=tuple(_ngrams(OURS, scale.keys, favour, **plan, favour=favour) for favour in AHEAD),
        swept="favour",
    )
