"""The papers' tables and figures as lists of runs: which rows there are, and what they run.

Parameters are the papers' wherever they have any; "ours" has the same ε, δ, T and η and otherwise the
defaults. Nothing here was chosen by looking at these data. No run measures numbers of users, which the
papers do not have either.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.set_union.policies import DEFAULT_POLICY, DESCENT_POLICIES
from pipelines.experiments import printed as papers
from pipelines.experiments import union_policies
from pipelines.experiments.dealing import LONG, SHORT
from pipelines.experiments.experiments import Experiment, Part, Row
from pipelines.experiments.runs import BaselineRun, NgramRun, Run, UnionRun
from pipelines.experiments.union_policies import UnionParameters

BASELINES = ("DPSU-all", "DPSU-even", "DPSU-single")
PAPER, OURS, OURS_EVEN = "DPNE (one_round)", "ours (adaptive)", "ours, even budgets"
DEFAULT_UNION = "default"
PUBLISHED = (
    "count_laplace",
    "count_gaussian",
    "weighted_laplace",
    "weighted_gaussian",
    "policy_laplace",
    "policy_gaussian",
    "greedy",
    "sips",
)
OTHER_POLICIES = (DEFAULT_POLICY, "mad", "mad2r")
MSNBC: Mapping[str, Any] = {"epsilon": 1.0, "delta": 1e-7, "max_length": 6}
TITLES: Mapping[str, Any] = {"epsilon": 4.0, "delta": 1e-7}
UNION: Mapping[str, Any] = {"epsilon": 3.0, "delta": math.exp(-10)}
MSNBC_LIMIT, TITLES_LIMIT, SPURIOUS_LIMIT, UNION_LIMIT = 10, 100, 300, 100
TARGET_LENGTH, TABLE_LENGTH = 7, 9
SPURIOUS_FRACTIONS = papers.DPNE_TABLE_3.columns


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale:
    """How much is run.

    Attributes:
      keys: numbers of the run keys of tables of n-grams.
      few_keys: those of what is dear: Table 3, the baselines of Table 4 at T = 7, sweeps.
      union_keys: those of set union: orders of the users.
      union_limits: Δ_0.
      spurious_fractions: η.
      epsilons, limits, growths: of the sweeps.
    """

    keys: tuple[int, ...] = (1, 2, 3)
    few_keys: tuple[int, ...] = (1,)
    union_keys: tuple[int, ...] = (1, 2, 3, 4, 5)
    union_limits: tuple[int, ...] = (1, 10, 50, 100, 200, 300)
    spurious_fractions: tuple[float, ...] = SPURIOUS_FRACTIONS
    epsilons: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)
    limits: tuple[int, ...] = (30, 100, 300, 1000)
    growths: tuple[float, ...] = (0.8, 0.9, 1.0, 1.1)


DEFAULT = Scale()
FULL = Scale(
    keys=(1, 2, 3, 4, 5),
    few_keys=(1, 2, 3),
    epsilons=(0.5, 1.0, 2.0, 4.0, 8.0, 16.0),
    limits=(10, 30, 100, 300, 1000),
    growths=(0.7, 0.8, 0.9, 1.0, 1.1, 1.2),
)
QUICK = Scale(
    keys=(1,),
    union_keys=(1,),
    union_limits=(10, 100),
    spurious_fractions=(0.01, 0.2),
    epsilons=(1.0, 4.0),
    limits=(30, 300),
    growths=(0.8, 1.0),
)


def all_parts(scale: Scale, *, titles: str, sweeps: str) -> tuple[Part, ...]:
    """Returns all parts, the most important first.

    Args:
      scale: how much is run.
      titles: name of the corpus of titles.
      sweeps: name of the corpus for sweeps, which may be a sample of it.
    """
    return (
        Part(name="msnbc", title="DPNE on MSNBC", experiments=(_table_5(scale),)),
        Part(
            name="titles",
            title="DPNE on titles",
            experiments=tuple(
                _table_4(scale, titles, length) for length in (TABLE_LENGTH, TARGET_LENGTH)
            ),
        ),
        Part(name="spurious", title="Spurious n-grams", experiments=(_table_3(scale, titles),)),
        Part(name="set_union", title="Set union", experiments=_union(scale, titles)),
        Part(name="sweeps", title="Sweeps", experiments=_sweeps(scale, sweeps)),
        Part(
            name="best",
            title="The paper's algorithm at its best Δ",
            experiments=_best(scale, titles),
        ),
    )


def _ngrams(corpus: str, keys: Iterable[int], **plan: Any) -> tuple[Run, ...]:
    made = PrivacyPlan(**plan, count_share=0.0)
    return tuple(NgramRun(corpus=corpus, plan=made, key=key) for key in keys)


def _baselines(corpus: str, keys: Iterable[int], name: str, **parameters: Any) -> tuple[Run, ...]:
    return tuple(BaselineRun(corpus=corpus, baseline=name, key=key, **parameters) for key in keys)


def _three(corpus: str, keys: Iterable[int], limit: int, **plan: Any) -> tuple[Row, ...]:
    """The paper's algorithm and ours, under the same privacy."""
    keys = tuple(keys)
    paper = {"strategy": "one_round", "max_contributions": limit}
    return (
        Row(label=PAPER, runs=_ngrams(corpus, keys, **plan, **paper)),
        Row(label=OURS, runs=_ngrams(corpus, keys, **plan)),
        Row(label=OURS_EVEN, runs=_ngrams(corpus, keys, **plan, user_budgets="even")),
    )


def _table_5(scale: Scale) -> Experiment:
    baselines = tuple(
        Row(
            label=name,
            runs=_baselines("msnbc", scale.keys, name, **MSNBC, max_contributions=MSNBC_LIMIT),
        )
        for name in BASELINES
    )
    first, *ours = _three("msnbc", scale.keys, MSNBC_LIMIT, **MSNBC)
    return Experiment(
        name="dpne_table_5",
        title="DPNE, Table 5: n-grams of MSNBC visits (ε = 1, δ = 1e-7, T = 6, Δ = 10, η = 0.01)",
        corpus="msnbc",
        kind="lengths",
        rows=(first, *baselines, *ours),
        printed=papers.DPNE_TABLE_5,
        comparable=True,
    )


def _table_4(scale: Scale, titles: str, max_length: int) -> Experiment:
    plan = {**TITLES, "max_length": max_length}
    keys = scale.keys if max_length == TABLE_LENGTH else scale.few_keys
    baselines = tuple(
        Row(
            label=name,
            runs=_baselines(titles, keys, name, **plan, max_contributions=TITLES_LIMIT),
        )
        for name in BASELINES
    )
    first, *ours = _three(titles, scale.keys, TITLES_LIMIT, **plan)
    return Experiment(
        name=f"dpne_table_4_{max_length}",
        title=f"The shape of DPNE, Table 4: n-grams of titles (ε = 4, δ = 1e-7, T = {max_length}, "
        "Δ = 100, η = 0.01)",
        corpus=titles,
        kind="lengths",
        rows=(first, *baselines, *ours),
        printed=papers.DPNE_TABLE_4 if max_length == TABLE_LENGTH else None,
    )


def _table_3(scale: Scale, titles: str) -> Experiment:
    """The paper's Δ is 300 here; ours has the same."""
    rows = []
    for eta in scale.spurious_fractions:
        plan = {**TITLES, "max_length": TABLE_LENGTH, "spurious_fraction": eta}
        paper = {"strategy": "one_round", "max_contributions": SPURIOUS_LIMIT}
        runs = _ngrams(titles, scale.few_keys, **plan, **paper)
        rows.append(Row(label=PAPER, at=eta, runs=runs))
        rows.append(Row(label=OURS, at=eta, runs=_ngrams(titles, scale.few_keys, **plan)))
    return Experiment(
        name="dpne_table_3",
        title="DPNE, Table 3: share of spurious n-grams over η (titles, ε = 4, δ = 1e-7, T = 9, "
        "Δ = 300)",
        corpus=titles,
        kind="spurious",
        rows=tuple(rows),
        swept="η",
        printed=papers.DPNE_TABLE_3,
    )


def union_plan(policy: str, limit: int | None) -> SetUnionPlan | UnionParameters:
    """Returns the plan of a policy: published descents in one sequence (M = 1), as the paper has it.

    No plan measures numbers of users, so that policies are compared by their items alone.

    Args:
      policy: by name.
      limit: Δ_0; None: all defaults.
    """
    if limit is None:
        return SetUnionPlan(**UNION, count_share=0.0)
    if policy in union_policies.POLICIES:
        return UnionParameters(**UNION, policy=policy, max_contributions=limit)
    published: dict[str, Any] = {}
    if policy in DESCENT_POLICIES and policy in PUBLISHED:
        published = {"shards": 1, "max_shard_users": 10_000_000, "cutoff_margin": 5.0}
    return SetUnionPlan(
        **UNION, policy=policy, max_contributions=limit, count_share=0.0, **published
    )


def _union_row(scale_keys: Iterable[int], titles: str, policy: str, limit: int | None) -> Row:
    plan = union_plan(policy, limit)
    runs = tuple(UnionRun(corpus=titles, plan=plan, key=key) for key in scale_keys)
    return Row(label=DEFAULT_UNION if limit is None else policy, at=limit, runs=runs)


def _union(scale: Scale, titles: str) -> tuple[Experiment, ...]:
    grid = tuple(
        _union_row(scale.union_keys, titles, policy, limit)
        for limit in scale.union_limits
        for policy in (*PUBLISHED, *OTHER_POLICIES)
    )
    sizes = tuple(
        row
        for row in grid
        if row.at == UNION_LIMIT and row.label in ("policy_laplace", "policy_gaussian")
    )
    return (
        Experiment(
            name="dpsu_table_1",
            title="DPSU, Table 1 and Figure 3: words of titles released over Δ_0 "
            "(ε = 3, δ = exp(−10), α = 5)",
            corpus=titles,
            kind="union",
            rows=grid,
            swept="Δ_0",
            printed=papers.DPSU_TABLE_1,
        ),
        Experiment(
            name="dpsu_table_2",
            title="DPSU, Table 2: size of the released set over the words of at least k users "
            "(titles, ε = 3, δ = exp(−10), Δ_0 = 100)",
            corpus=titles,
            kind="sizes",
            rows=(*sizes, _union_row(scale.union_keys, titles, DEFAULT_POLICY, None)),
            swept="k",
            printed=papers.DPSU_TABLE_2,
        ),
    )


def _sweeps(scale: Scale, corpus: str) -> tuple[Experiment, ...]:
    plan = {**TITLES, "max_length": TABLE_LENGTH}
    one_round = {"strategy": "one_round", "max_contributions": TITLES_LIMIT}

    def sweep(name: str, title: str, swept: str, rows: Iterable[Row]) -> Experiment:
        return Experiment(
            name=name, title=title, corpus=corpus, kind="sweep", rows=tuple(rows), swept=swept
        )

    def rows_of(
        values: Sequence[float | int | str],
        varied: Callable[[Any], Mapping[str, Any]],
        *,
        both: bool,
    ) -> list[Row]:
        rows = []
        for label, base in ((PAPER, one_round), (OURS, {}))[: 2 if both else 1]:
            for value in values:
                parameters = {**plan, **base, **varied(value)}
                runs = _ngrams(corpus, scale.few_keys, **parameters)
                rows.append(Row(label=label, at=value, runs=runs))
        return rows

    base_rows = rows_of((TITLES["epsilon"],), lambda value: {"epsilon": value}, both=True)
    return (
        sweep(
            "dpne_figure_2_epsilon",
            "Real n-grams over ε (δ = 1e-7, T = 9, η = 0.01)",
            "ε",
            rows_of(scale.epsilons, lambda value: {"epsilon": value}, both=True),
        ),
        sweep(
            "dpne_figure_2_contributions",
            "DPNE, Figure 2: over Δ (ε = 4, δ = 1e-7, T = 9, η = 0.01)",
            "Δ",
            rows_of(scale.limits, lambda value: {"max_contributions": value}, both=True),
        ),
        sweep(
            "dpne_figure_3_spurious",
            "DPNE, Figure 3: over η (ε = 4, δ = 1e-7, T = 9)",
            "η",
            rows_of(
                scale.spurious_fractions, lambda value: {"spurious_fraction": value}, both=True
            ),
        ),
        sweep(
            "dpne_figure_3_noise",
            "DPNE, Figure 3: over c of the noise schedule σ_k = c σ_{k−1} (ε = 4, δ = 1e-7, T = 9); "
            "ours has no such schedule",
            "c",
            rows_of(scale.growths, lambda value: {"noise_growth": value}, both=False),
        ),
        sweep(
            "dpne_figure_4_pruning",
            "DPNE, Figure 4, left: over the pruning rule (ε = 4, δ = 1e-7, T = 9)",
            "rule",
            rows_of(("both", "single"), lambda value: {"pruning": value}, both=False),
        ),
        Experiment(
            name="dpne_figure_4_anonymity",
            title="DPNE, Figure 4, right: released share of what at least k users hold "
            "(ε = 4, δ = 1e-7, T = 9)",
            corpus=corpus,
            kind="anonymity",
            rows=tuple(dataclasses.replace(row, at=None) for row in base_rows),
            swept="k",
        ),
    )


def _best(scale: Scale, titles: str) -> tuple[Experiment, ...]:
    """Ours beside the paper's algorithm at many Δ, of which a user could not know the best one."""
    kinds = (
        ("msnbc", "msnbc", "MSNBC visits", MSNBC),
        ("titles", titles, "titles", {**TITLES, "max_length": TARGET_LENGTH}),
        ("short", SHORT, "public texts, one for each user", TITLES),
        ("long", LONG, "public texts, 2,000 words for each user", TITLES),
    )
    made = []
    for name, corpus, told, plan in kinds:
        paper = tuple(
            Row(
                label=f"{PAPER}, Δ = {limit}",
                runs=_ngrams(
                    corpus, scale.few_keys, **plan, strategy="one_round", max_contributions=limit
                ),
            )
            for limit in (MSNBC_LIMIT, *scale.limits)
        )
        ours = (
            Row(label=OURS, runs=_ngrams(corpus, scale.keys, **plan)),
            Row(label=OURS_EVEN, runs=_ngrams(corpus, scale.few_keys, **plan, user_budgets="even")),
        )
        parameters = f"ε = {plan['epsilon']:g}, δ = 1e-7, T = {plan.get('max_length', 5)}"
        made.append(
            Experiment(
                name=f"best_{name}",
                title=f"The paper's algorithm at many Δ: {told} ({parameters}, η = 0.01)",
                corpus=corpus,
                kind="lengths",
                rows=(*paper, *ours),
            )
        )
    return tuple(made)
