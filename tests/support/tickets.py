"""python -m tests.support.tickets FILE: made-up support tickets of 3,000 customers, as JSON lines.

The sentences are written for this purpose (`ticket_phrases`). Popular ones are far more popular than
others, a few customers write many tickets, and every run gives the same tickets.
"""

import json
import pathlib
import random
import re
import sys
from collections.abc import Sequence

from tests.support import ticket_phrases as phrases

CUSTOMERS = 3_000
MOST_TICKETS = 60
_SLOT = re.compile(r"\{(\w+)\}")


def tickets(customers: int = CUSTOMERS, seed: int = 14) -> list[tuple[str, str]]:
    """Returns made-up tickets as (customer, text), each customer's together."""
    chance = random.Random(seed)
    topics = {name: _lines(text) for name, text in phrases.TOPICS.items()}
    found = []
    for number in range(customers):
        interests = _some(chance, list(topics), 3)
        for _ in range(min(1 + int(chance.paretovariate(1.1)), MOST_TICKETS)):
            topic = chance.choice(interests)
            found.append((f"customer {number}", _ticket(chance, topics[topic])))
    return found


def _ticket(chance: random.Random, topic: Sequence[str]) -> str:
    """Returns a ticket of one topic: perhaps a greeting, a few sentences, and perhaps a closing."""
    sentences = []
    if chance.random() < 0.7:
        sentences.append(_popular(chance, _lines(phrases.GREETINGS)))
    sentences += [_popular(chance, topic) for _ in range(chance.choice([1, 1, 2, 2, 3]))]
    if chance.random() < 0.5:
        sentences.append(_popular(chance, _lines(phrases.GENERAL)))
    if chance.random() < 0.7:
        sentences.append(_popular(chance, _lines(phrases.CLOSINGS)))
    return ". ".join(_filled(chance, sentence) for sentence in dict.fromkeys(sentences)) + "."


def _filled(chance: random.Random, sentence: str) -> str:
    return _SLOT.sub(lambda slot: _popular(chance, phrases.SLOTS[slot[1]].split("|")), sentence)


def _popular(chance: random.Random, texts: Sequence[str]) -> str:
    """Draws a text; their probabilities fall like 1 / rank."""
    return chance.choices(texts, [1 / (rank + 1) for rank in range(len(texts))])[0]


def _some(chance: random.Random, texts: Sequence[str], most: int) -> list[str]:
    return chance.sample(texts, chance.randint(1, most))


def _lines(text: str) -> list[str]:
    return text.strip().split("\n")


def write(path: pathlib.Path) -> None:
    """Writes the tickets as JSON lines with `user` and `text`."""
    lines = (json.dumps({"user": user, "text": text}) for user, text in tickets())
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]))
