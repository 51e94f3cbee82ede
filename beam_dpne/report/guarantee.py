"""The guarantee in plain words for three readers, and what it does not protect.

The numbers for a guess and for a test follow from (ε, δ)-differential privacy alone. A test for one
user's part that is wrong with probability α about inputs without the user is right about inputs with
the user with probability at most min(e^ε α + δ, 1 − e^−ε (1 − α − δ)) (Kairouz, Oh and Viswanath 2015).
A guess between two inputs that are equally likely is right with probability at most
(e^ε + δ) / (e^ε + 1).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from beam_dpne.report.blocks import Block, Bullets, Fold, Heading, Paragraph, Section, Table, number
from beam_dpne.report.blocks import shown as text_of
from beam_dpne.report.facts import Facts

_FALSE_ALARMS = (0.001, 0.01, 0.05)
_LITTLE_IS_PROTECTED = 10.0
_ROWS = {
    "ngrams": "words and phrases that many people use",
    "set-union": "items that many people have",
    "bayesian": "phrases of a public list with a probability for each",
}
_MU = "μ of the Gaussian noise of all rounds and lengths"
_MU_HAS_COUNTS = "μ of the Gaussian noise of all rounds and lengths, and of the numbers of users"
_MU_OF_COUNTS = (
    "μ of the Gaussian noise of the numbers of users alone, since items have Laplace noise"
)
_SHARED_SECRETS = (
    "The run key is as secret as the data. Whoever has it can subtract the noise.",
    "Temporary storage, rejected records, failure logs, counters and an evaluation of the release "
    "(beam-dpne evaluate) are as private as the data. Publish none of them.",
    "The whole directory of the release may be published, the ledger included, and so may this report. "
    "Whatever is computed from them without the data has the same guarantee.",
    "A second release about the same people spends further privacy, under any parameters and for any "
    "period; beam-dpne account computes the total of both, which is at most the sum of their ε and δ. "
    "The budget of this release stays spent when it is deleted or replaced.",
    "Parameters of the next release must not be chosen by looking at the private data.",
)


def guessing_bound(epsilon: float, delta: float) -> float:
    """Returns the largest probability that a guess between two equally likely inputs is right.

    >>> guessing_bound(0.0, 0.0), round(guessing_bound(math.log(3), 0.0), 12)
    (0.5, 0.75)
    """
    return min(1.0, (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon)))


def detection_bound(epsilon: float, delta: float, false_alarms: float) -> float:
    """Returns the largest power of a test for one user's part, given its rate of false alarms.

    >>> round(detection_bound(math.log(3), 0.0, 0.01), 12), detection_bound(50.0, 0.0, 0.5)
    (0.03, 1.0)
    """
    slow = 1 - math.exp(-epsilon) * (1 - false_alarms - delta)
    fast = math.inf if epsilon > 700 else math.exp(epsilon) * false_alarms + delta
    return max(0.0, min(1.0, fast, slow))


def percent(share: float) -> str:
    """Returns a share as a percentage that never rounds a bound down, or up to all.

    >>> percent(0.5), percent(0.98201), percent(0.9999999)
    ('50 %', '98.3 %', 'more than 99.9 %')
    """
    if 0.999 < share < 1:
        return "more than 99.9 %"
    return f"{math.ceil(share * 1000 - 1e-9) / 10:g} %"


def unit_sentence(facts: Facts) -> str:
    """Returns the sentence that quotes what one user is."""
    user = facts.ledger["guarantee"].get("user")
    if isinstance(user, str):
        return f"The ledger describes one user as follows: “{text_of(user)}”."
    unit = facts.note["unit"]
    return f"Each user stands for {text_of(unit)}." if unit else ""


def guarantee_section(facts: Facts, *, with_operator: bool) -> Section:
    """Returns the section that states the guarantee for the public, the operator and reviewers.

    Args:
      facts: The release.
      with_operator: Whether the words for the operator appear.
    """
    blocks = [*_public_words(facts)]
    if with_operator:
        blocks += [Heading("For the operator"), Bullets(_operator_words(facts))]
    blocks += _reviewer_words(facts)
    return Section("guarantee", "The guarantee in plain words", blocks)


def not_protected_section(facts: Facts) -> Section:
    """Returns the section with what the guarantee does not cover, in the words of the ledger."""
    stated = [text_of(str(line), 2000) for line in facts.ledger["not_protected"]]
    first = Paragraph(
        "The guarantee protects the users whose records were read, as authors of them. It does not "
        "protect somebody about whom many users write: a name that many users mention can be released."
    )
    second = Paragraph("The ledger of the release states these limits:")
    return Section("limits", "What is not protected", [first, second, Bullets(stated)])


def _public_words(facts: Facts) -> list[Block]:
    guess = percent(guessing_bound(facts.epsilon, facts.delta))
    unit = facts.note["unit"]
    who = f"Here, “person” means {text_of(unit)}. " if unit else ""
    blocks: list[Block] = [
        Heading("For the public"),
        Paragraph(
            f"This release has {_rows(facts)}. It was made from many people's records by a "
            f"method that adds random noise. {who}For each person, the release would have come out "
            "almost as it did if all records of that person had been left out. So it "
            "reveals only a limited amount about any one person, whatever other sources somebody has."
        ),
        Paragraph(
            f"“Almost” is a number, ε = {number(facts.epsilon)}. Suppose somebody knows the records of "
            "everybody else, holds it as likely as not that you are among the people, and must guess. "
            "Without the release the guess is right in 50 % of the cases; with it, in at most "
            f"{guess}. "
            "This is the worst case that the guarantee allows."
        ),
        Paragraph(
            "What is true of many people whether or not you take part can still be learned, also about "
            "you."
        ),
    ]
    if facts.epsilon > _LITTLE_IS_PROTECTED:
        blocks.insert(2, Paragraph(_large_epsilon(facts.epsilon), note=True))
    return blocks


def _rows(facts: Facts) -> str:
    counted = ", and about how many people have each of them" if facts.has_counts else ""
    return f"{_ROWS[facts.program]}{counted}"


def _large_epsilon(epsilon: float) -> str:
    return (
        f"An ε of {number(epsilon)} is large. Above {number(_LITTLE_IS_PROTECTED)} the guarantee alone "
        "protects a person only a little."
    )


def _operator_words(facts: Facts) -> list[str]:
    given = facts.ledger["run_key"].get("given")
    key = {
        True: "The run key was given by you. Never use it for another input: that voids the guarantee.",
        False: "The run key was fresh and is not kept.",
    }
    words = [*_SHARED_SECRETS]
    if isinstance(given, bool):
        words.insert(1, key[given])
    promise = facts.ledger["guarantee"].get("promise")
    if isinstance(promise, Mapping) and isinstance(promise.get("max_users"), int):
        words.append(
            f"You promised that the input has at most {promise['max_users']:,} users. Nothing checked "
            "this, and the guarantee rests on it."
        )
    if _is_function(facts.ledger.get("tokenizer", "")):
        words.append(
            "The tokenizer is a function of yours. You promise that it treats each text alone."
        )
    contact = facts.note["contact"]
    if contact:
        words.append(f"Readers are told to ask {text_of(contact)}.")
    return words


def _is_function(tokenizer: str) -> bool:
    """Returns whether a tokenizer is named like a function of the operator."""
    return "." in tokenizer or ":" in tokenizer


def _reviewer_words(facts: Facts) -> list[Block]:
    guarantee = facts.ledger["guarantee"]
    rows = [
        ("ε", number(facts.epsilon)),
        ("δ", number(facts.delta)),
        ("privacy unit", f"a user with all documents. {unit_sentence(facts)}"),
        ("neighbouring inputs", text_of(guarantee["neighbours"], 2000)),
        ("statement", text_of(guarantee["statement"], 2000)),
    ]
    if facts.has_counts:
        rows.append(
            (
                "numbers of users",
                "They are part of the release: rows, numbers of users and ledger together have the ε "
                f"and δ above. {_part_of_counts(facts)}",
            )
        )
    mu = _mu(facts.ledger)
    if mu is not None:
        rows.append((_name_of_mu(facts), number(mu)))
    blocks: list[Block] = [
        Heading("For privacy reviewers"),
        Table("The guarantee, formally", ("term", "value"), rows),
        _detection_table(facts),
    ]
    if sizes := _group_rows(facts.ledger):
        noise = "noise of numbers of users" if facts.has_laplace and facts.has_counts else "noise"
        headings = ("users in the group", "ε", "δ", f"ε of the Gaussian {noise} alone")
        blocks.append(
            Table(
                "The guarantee for groups, and for a person with several ids",
                headings,
                sizes,
                range(4),
            )
        )
    theorems = [
        text_of(str(value["statement"]), 4000)
        for value in guarantee.values()
        if isinstance(value, Mapping) and "statement" in value
    ]
    references = [
        text_of(str(line))
        for value in guarantee.values()
        if isinstance(value, Mapping)
        for line in value.get("references", ())
    ]
    theorems += [
        text_of(str(value), 4000)
        for value in facts.ledger.get("groups", {}).values()
        if isinstance(value, str)
    ]
    if theorems:
        argument: list[Block] = [Paragraph(line) for line in theorems]
        blocks.append(Fold("The argument, and its sources", [*argument, Bullets(references)]))
    return blocks


def _part_of_counts(facts: Facts) -> str:
    """Returns the sentence on the part of the budget that measured users."""
    if not facts.has_laplace:
        return f"Measuring users took {facts.count_share} of the run's budget for noise, μ²."
    delta = number(facts.ledger["spent"].get("gaussian_delta"))
    return (
        f"Measuring users took {facts.count_share} of ε (less the numerical slack), and {delta} of δ, "
        "for Gaussian noise; the items have Laplace noise."
    )


def _name_of_mu(facts: Facts) -> str:
    """Returns the name of the μ that the ledger states."""
    if facts.has_laplace:
        return _MU_OF_COUNTS
    return _MU_HAS_COUNTS if facts.has_counts else _MU


def _detection_table(facts: Facts) -> Table:
    rows = [
        (percent(alarm), percent(detection_bound(facts.epsilon, facts.delta, alarm)))
        for alarm in _FALSE_ALARMS
    ]
    return Table(
        "How well the best test can find out whether one user is in the data",
        ("false alarms, if the user is absent", "detections, if the user is present, at most"),
        rows,
        numeric=(0, 1),
    )


def _mu(ledger: Mapping[str, Any]) -> float | None:
    """Returns the sensitivity over the noise of all Gaussian noise together, if the ledger has it."""
    budgets = ledger["guarantee"].get("individual_budgets")
    if isinstance(budgets, Mapping) and isinstance(budgets.get("mu"), float):
        return budgets["mu"]
    sizes = _sizes(ledger)
    if sizes and isinstance(sizes[0].get("gaussian_mu"), float):
        return sizes[0]["gaussian_mu"] / sizes[0]["users"]
    return None


def _sizes(ledger: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Returns the ledger's groups of users; a ledger of schema 1 has none."""
    sizes = ledger.get("groups", {}).get("sizes", [])
    return [
        each for each in sizes if isinstance(each, Mapping) and isinstance(each.get("users"), int)
    ]


def _group_rows(ledger: Mapping[str, Any]) -> list[tuple[str, ...]]:
    names = ("epsilon", "delta", "gaussian_epsilon")
    return [
        (number(each["users"]), *(number(each.get(name)) for name in names))
        for each in _sizes(ledger)
    ]
