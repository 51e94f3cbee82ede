"""The words S_1 of a release where the strategy does not find them: public words, or a set union."""

import dataclasses
import hashlib
import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from beam_dpne.elements.arrays import byte_order
from beam_dpne.elements.coders import spill
from beam_dpne.elements.side_inputs import SetStore
from beam_dpne.mechanism import gaussian
from beam_dpne.mechanism.rules import length_rule
from beam_dpne.ngrams.elements import GramSet
from beam_dpne.ngrams.plan import UNION_SLACK, PrivacyPlan
from beam_dpne.set_union.elements import ItemSet
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.set_union.policies import DESCENT_POLICIES, shards_for

_HASHED_AT_ONCE = 2**16


def public_vocabulary(words: Sequence[str]) -> GramSet:
    """Returns a public vocabulary as S_1, with distinct words sorted by bytes, which are not released.

    Raises:
      ValueError: if there are none.
    """
    distinct = _sorted_words(words)
    if not len(distinct):
        raise ValueError("vocabulary must have at least one word, got none.")
    return GramSet(
        length=1,
        keys=np.arange(len(distinct)),
        scores=np.ones(len(distinct)),
        words=distinct,
        parent_size=1,
        vocabulary_size=len(distinct),
        is_public=True,
    )


def vocabulary_digest(words: Sequence[str]) -> str:
    """Returns the hexadecimal SHA-256 of a public vocabulary, which does not depend on its order."""
    digest = hashlib.sha256()
    distinct = _sorted_words(words)
    for start in range(0, len(distinct), _HASHED_AT_ONCE):
        part = [word.encode() for word in distinct.slice(start, _HASHED_AT_ONCE).to_pylist()]
        digest.update(b"".join(len(word).to_bytes(8, "little") + word for word in part))
    return digest.hexdigest()


def _sorted_words(words: Sequence[str]) -> pa.Array:
    """Returns distinct words sorted by bytes; as Arrow strings, since they may be very many."""
    _require_words(words)
    distinct = pa.array(words, pa.string()).unique()
    return distinct.take(pa.array(byte_order(distinct)))


def _require_words(words: Sequence[str]) -> None:
    """Raises ValueError for bytes, None or one text alone, all of which Arrow would take for words."""
    if isinstance(words, str):
        raise ValueError("vocabulary must be a list of words, got one text alone.")
    others = [kind.__name__ for kind in set(map(type, words)) if not issubclass(kind, str)]
    if others:
        raise ValueError(
            f"vocabulary must be a list of words, each a str, got {min(others)}. Bytes become words by "
            "word.decode()."
        )


def union_plan(plan: PrivacyPlan) -> SetUnionPlan:
    """Returns the plan of the set union that finds the words of a run.

    The union is a part of the run's Gaussian mechanism. Its noise is at least σ/√f_1, for the σ of all
    lengths and the share f_1 of the words, times the sensitivity with rounding. Its threshold covers
    words of one user alone with the run's δ_T. Under a sequential policy the weights of later users
    depend on this user's. Then the difference of the two histograms composes: its norm is at most the
    sensitivity, whatever was released before, and adaptive Gaussian composition needs no more.

    The union has the plan's max_users, and so many shards that none has more users than a set union has
    by default.

    Raises:
      ValueError: if the policy is not possible with this budget.
    """
    common = {
        "policy": plan.vocabulary_policy,
        "max_contributions": plan.contribution_limits[0],
        "max_items_per_user": plan.max_tokens_per_user,
        "max_users": plan.max_users,
        "count_share": 0.0,  # The run counts the users of words with those of all other n-grams.
    }
    if plan.vocabulary_policy in DESCENT_POLICIES:
        common["shards"] = shards_for(plan.max_users)
    union = _gaussian_union(plan, plan.ngrams_noise_stddev / math.sqrt(plan.union_share), common)
    if union.numerical_slack > UNION_SLACK:
        raise ValueError(
            f"max_contributions and max_users must be so small that the words' numerical slack "
            f"{union.numerical_slack:.2g} is at most {UNION_SLACK:g}, got "
            f"max_contributions={plan.contribution_limits[0]} and max_users={plan.max_users}; lower "
            "them to what users hold, and to what the input has, at most."
        )
    return union


def _gaussian_union(plan: PrivacyPlan, noise_stddev: float, common: dict) -> SetUnionPlan:
    """Returns a set union whose noise is at least this much, and whose δ_T at most the run's."""
    delta = plan.vocabulary_delta
    epsilon = gaussian.gaussian_epsilon(delta=delta, noise_stddev=noise_stddev)
    if epsilon <= 0.0:
        raise ValueError(
            f"vocabulary_policy must be 'rounds' or 'weighted_gaussian' at epsilon={plan.epsilon}: "
            "the share of a single length is too small for a set union."
        )
    first = SetUnionPlan(epsilon=epsilon, delta=2 * delta, vocabulary_delta_share=0.5, **common)
    # The part of δ that the plan keeps for floating point counts too: together they may cost δ_T.
    kept = first.delta - first.usable_delta * math.exp(first.numerical_slack)
    union = dataclasses.replace(first, delta=2 * (delta - kept) * (1 - 1e-9))
    if union.composed_noise_scale < noise_stddev * union.sensitivity:
        raise ValueError("The noise of the words' set union is below its share of the budget.")
    return union


def as_vocabulary(items: ItemSet, *, union: SetUnionPlan, store: SetStore | None) -> GramSet:
    """Returns a released set of items as S_1, with the noise and threshold of its last round."""
    rule = length_rule(length=1, noise_stddev=union.noise.stddev, threshold=union.threshold)
    words = GramSet(
        length=1,
        keys=np.arange(len(items)),
        scores=items.scores,
        words=items.items,
        parent_size=1,
        vocabulary_size=len(items),
        rule=rule,
    )
    return spill(words, store)
