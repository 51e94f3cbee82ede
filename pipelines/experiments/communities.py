"""python -m pipelines.experiments.communities TITLES [--epsilons 1 4 10] [--worlds groups …]

Numbers of users where users differ by group: titles, one a line, are dealt to four communities whose
users have 1, 3, 12 and 60 titles, and each community says half of the words in its own way.
"""

import hashlib
import re
from collections.abc import Callable, Iterator

from pipelines.experiments.intervals import dealt

TITLES_OF_A_USER = {"one": 1, "three": 3, "dozen": 12, "sixty": 60}
_WORD = re.compile(r"\w+")
Grouped = Iterator[tuple[str, str, str]]


def own_words(community: str) -> Callable[[str], str]:
    """Returns a function that exchanges half of the words of a text by a keyed bijection.

    The communities' own words are hashes, so that no two communities share one.
    """
    key = community.encode()

    def exchanged(match: re.Match[str]) -> str:
        word = match[0].lower()
        mark = hashlib.blake2b(word.encode(), key=key, digest_size=8)
        return f"w{mark.hexdigest()}" if mark.digest()[0] % 2 else word

    return lambda text: _WORD.sub(exchanged, text)


def communities(texts: list[str], *, same_users: bool = False) -> Grouped:
    """Yields the user, the text and the community of each title.

    Args:
      texts: the titles.
      same_users: whether communities have as many users each, and not as many titles.
    """
    sizes = TITLES_OF_A_USER
    part = len(texts) // len(sizes)
    users = len(texts) // sum(sizes.values())
    first = 0
    for name, size in sizes.items():
        count = users * size if same_users else part
        say = own_words(name)
        for user, text in dealt(texts[first : first + count], [size] * count, f"{name} "):
            yield user, say(text), name
        first += count
