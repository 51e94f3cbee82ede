"""Made-up tickets: few phrases are far more popular than others, and few customers write most."""

import bisect
import itertools
import json
import pathlib
import random

CUSTOMERS = 3_000
MOST_TICKETS = 60
_WORDS, _PHRASES = 400, 700


def tickets(customers: int = CUSTOMERS, seed: int = 14) -> list[tuple[str, str]]:
    """Returns tickets as (customer, text), each customer's together; they are the same each time."""
    chance = random.Random(seed)
    phrases = [
        " ".join(f"w{int(_WORDS * chance.random() ** 2)}" for _ in range(chance.randint(3, 8)))
        for _ in range(_PHRASES)
    ]
    sums = list(itertools.accumulate(1 / (5 + rank) for rank in range(_PHRASES)))

    def phrase() -> str:
        return phrases[bisect.bisect(sums, chance.random() * sums[-1])]

    return [
        (f"customer {number}", ". ".join(phrase() for _ in range(chance.randint(1, 4))))
        for number in range(customers)
        for _ in range(min(1 + int(chance.paretovariate(1.1)), MOST_TICKETS))
    ]


def write(path: pathlib.Path) -> None:
    """Writes the tickets of all customers as JSON lines."""
    lines = (json.dumps({"user": user, "text": text}) for user, text in tickets())
    path.write_text("".join(f"{line}\n" for line in lines))
