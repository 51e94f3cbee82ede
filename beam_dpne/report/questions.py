"""Answers to the questions of NIST SP 800-226 (March 2025).

The publication, "Guidelines for Evaluating Differential Privacy Guarantees", arranges the parts on
which a guarantee rests as a pyramid of nine components, which sections 2, 3 and 4 describe from the top
to the bottom, and warns of further hazards. Each component is a question here, in our words. The ledger
answers some; the others are about the operator's house.
"""

from typing import NamedTuple

from beam_dpne.report.blocks import Paragraph, Section, Table, number
from beam_dpne.report.blocks import shown as text_of
from beam_dpne.report.facts import Facts, is_number
from beam_dpne.report.guarantee import unit_sentence

SOURCE = "https://doi.org/10.6028/NIST.SP.800-226"
_OPERATOR = "Left to the operator:"


class Question(NamedTuple):
    """One question, and its answer.

    Attributes:
      level: Section of the publication, 2 to 4.
      component: The component of the pyramid, or the hazard.
      question: The question.
      answer: What the ledger and the method say; "" if only the operator can answer.
      operator: What only the operator can answer, or "".
    """

    level: int
    component: str
    question: str
    answer: str
    operator: str = ""


def questions_section(facts: Facts) -> Section:
    """Returns the section with the questions of the publication, and where the answers come from."""
    rows = [
        (
            f"{each.component} (section {each.level})",
            each.question,
            " ".join(filter(None, [each.answer, each.operator and f"{_OPERATOR} {each.operator}"])),
        )
        for each in questions(facts)
    ]
    about = Paragraph(
        "NIST SP 800-226, Guidelines for Evaluating Differential Privacy Guarantees (March 2025, "
        f"{SOURCE}), arranges the parts of a guarantee as a pyramid. The questions below follow its "
        "parts, in our words. Answers come from the ledger and the method. A question left to the "
        "operator is one that only the operator can answer."
    )
    table = Table("Questions of NIST SP 800-226", ("component", "question", "answer"), rows)
    return Section("questions", "Questions of NIST SP 800-226", [about, table])


def questions(facts: Facts) -> list[Question]:
    """Returns the questions in the order of the publication, with the answers for a release."""
    return [*_parameters(facts), *_algorithms(facts), *_deployment(facts)]


def _parameters(facts: Facts) -> list[Question]:
    users = facts.ledger["plan"].get("public_user_count")
    if is_number(users) and users:
        size = (
            f"The number of users is public: {number(users)}. δ times that number is "
            f"{number(facts.delta * users)}."
        )
    else:
        size = "The number of users is private, and no part of the release states it."
    return [
        Question(
            2,
            "Privacy parameters",
            "What are ε and δ, and what do they cover?",
            f"ε = {number(facts.epsilon)} and δ = {number(facts.delta)}. They cover the whole release, "
            f"all rows{' with their numbers of users' * facts.has_counts} and the ledger together.",
        ),
        Question(
            2,
            "Privacy parameters",
            "Is δ small enough for the number of people?",
            f"{size} The publication asks for a δ far below one over the number of people n, such as "
            "1/n².",
            "" if is_number(users) and users else "How many users are there?",
        ),
        Question(
            2,
            "Variant",
            "Which variant of differential privacy is it?",
            "It is (ε, δ)-differential privacy. Neighbouring inputs differ by adding or removing a "
            "user (unbounded), so the number of users is protected too.",
        ),
        Question(
            2,
            "Unit of privacy",
            "Whose data does the guarantee protect together?",
            f"The unit is a user with all documents. {unit_sentence(facts)} {_bounds(facts)}",
            "Does each user id stand for one person, and has each person one id?",
        ),
        Question(
            2,
            "Other releases",
            "What else was released about the same people?",
            "The ledger knows this release alone. Releases add up, and one without differential "
            "privacy is not made better by this one.",
            "Which other releases of these data are there?",
        ),
    ]


def _bounds(facts: Facts) -> str:
    """Returns what bounds a user's part, where the ledger states it."""
    section = "plan" if facts.program == "ngrams" else "mechanism"
    limit = facts.ledger[section].get("max_contributions")
    if isinstance(limit, list):
        limit = ", ".join(map(number, limit))
    elif limit is not None:
        limit = number(limit)
    if limit is None:
        return ""
    rows = "items" if facts.program == "set-union" else "n-grams"
    per = " in one round of one length" if facts.program == "ngrams" else ""
    bound = f"one user adds to at most {limit} distinct {rows}{per}."
    if not facts.has_counts:
        return f"O{bound[1:]}"
    return (
        f"While {rows} are found, {bound} To the sums from which users are counted, all of a user's "
        f"released {rows} count, also those beyond this limit, as two vectors of length at most 1 each."
    )


def _algorithms(facts: Facts) -> list[Question]:
    versions = facts.ledger["versions"]
    version = text_of(str(versions.get("beam_dpne", "unknown")))
    return [
        Question(3, "Algorithms", "Which mechanism made the release?", _mechanism(facts)),
        Question(
            3,
            "Correctness",
            "Is the implementation known and tested?",
            f"The release was made by the public library beam_dpne, version {version}, mechanism "
            f"version {number(facts.ledger['run_key'].get('mechanism_version'))}. Its documentation "
            "has the privacy argument, and its tests attack the mechanisms.",
            "Who reviewed the installation and the code of the operator?",
        ),
        Question(
            3,
            "Utility",
            "How accurate is it?",
            f"{_error(facts)} A comparison with the data is not private, so this report has none.",
            "Is it accurate enough for its use?",
        ),
        Question(
            3,
            "Bias",
            "Whom does the noise affect most?",
            "Small groups: a phrase of few users is not released, however common it is among them, and "
            "languages and communities with few users are underrepresented. Users with much text "
            "divide their weight among more phrases.",
        ),
    ]


def _error(facts: Facts) -> str:
    """Returns sentences on the errors of a release."""
    if facts.program == "bayesian":
        return "Every probability has noise, and rare n-grams are close to the public counts."
    spurious = facts.expected_spurious
    error = "Rare rows are missing, and all values have noise."
    if spurious is not None:
        error = (
            f"Rare n-grams are missing, at most {number(spurious)} n-grams are expected to be "
            "spurious, and all scores have noise."
        )
    if not facts.has_counts:
        return error
    return (
        f"{error} Numbers of users are estimates. As far as their model holds, {facts.confidence} of "
        "their intervals, over all rows, contain the true number."
    )


def _mechanism(facts: Facts) -> str:
    """Returns sentences on the mechanism, and on the measurement of users where there was one."""
    counts = (
        " Once the rows were known, further sums with Gaussian noise measured how many users have "
        "each; one user adds to them a vector whose length is bounded over all rows together."
    )
    return f"{_releasing(facts)}{counts if facts.has_counts else ''}"


def _releasing(facts: Facts) -> str:
    ledger = facts.ledger
    if facts.program == "ngrams":
        adaptive = ledger["plan"].get("strategy", "one_round") == "adaptive"
        how = (
            "Each user divides one budget among the rounds and lengths; sums of weights get Gaussian "
            "noise, and n-grams with evidence above a threshold are released."
            if adaptive
            else "At each length each user divides one unit of weight among n-grams; sums get Gaussian "
            "noise, and n-grams above a threshold are released."
        )
        return f"Differentially private n-gram extraction. {how}"
    return text_of(str(ledger["mechanism"].get("meaning", "The ledger does not say.")), 2000)


def _deployment(facts: Facts) -> list[Question]:
    return [
        Question(
            4,
            "Query model",
            "Are queries fixed in advance?",
            "Yes. It is a release of data: the whole budget was fixed before the run, and the release "
            "answers no later queries of the data.",
        ),
        Question(
            4,
            "Trust models",
            "Who is trusted?",
            "It is the central model: the operator and the machines of the run see the data, and the "
            "readers of the release are not trusted with anything.",
            "Who had access to the machines, the run key and the temporary storage?",
        ),
        Question(
            4,
            "Side channels",
            "Can anything but the release reveal the data?",
            "Floating-point arithmetic is part of the budget: "
            f"{number(facts.ledger['spent'].get('numerical_slack'))} of ε, the ledger's "
            "numerical_slack, pays for it. Run time, memory, crashes, logs and counters are not "
            "protected.",
            "Who could watch the run?",
        ),
        Question(
            4,
            "Tuning of parameters",
            "Were parameters chosen without the data?",
            "The ledger lists all parameters. The guarantee holds only if none was chosen by looking "
            "at the data.",
            "How were they chosen?",
        ),
        Question(
            4,
            "Access control",
            "How are the raw data secured?",
            "The guarantee covers the release alone. A breach of the raw data reveals them.",
            "Who can read the raw data, and where are they kept?",
        ),
        Question(
            4,
            "Data collection exposure",
            "Was it necessary to collect the data?",
            "Collecting less is the strongest protection. The release does not need the data any more.",
            "Were all of the data needed, and are they still?",
        ),
        Question(
            3,
            "Unstructured data",
            "Who appears in the texts besides their authors?",
            "The guarantee protects users as authors. Somebody about whom many users write is not "
            "protected by it.",
            "Do the texts speak of other people?",
        ),
    ]
