"""The measure of the size of the code counts what a reader must read, whatever the layout."""

import pytest

from tests import house

SPREAD = "first = 1\nsecond = first + 2\n"


@pytest.mark.parametrize(
    ("text", "tokens", "lines"),
    [
        (SPREAD, 8, 2),
        ("first = 1; second = first + 2\n", 9, 1),
        (f'"""Says much about it."""\n\n# And more.\n{SPREAD}', 8, 2),
        (f'def of():\n    """Returns one\n    thing.\n    """\n    return 1\n{SPREAD}', 15, 4),
        ("text = '''a\nb'''\n", 3, 2),
    ],
)
def test_tokens_are_counted_without_docstrings_comments_and_space(text, tokens, lines):
    size = house.size_of(text)
    assert (size.tokens, size.code_lines) == (tokens, lines)


def test_each_alarm_sounds_above_its_number_and_nowhere_else():
    usual = house.Size(lines=100, code_lines=60, tokens=420)
    assert house.faults({"beam_dpne/a.py": usual}) == []
    cases = {
        "beam_dpne/long.py": usual._replace(lines=house.LONGEST + 1),
        "beam_dpne/dense.py": usual._replace(tokens=60 * 13),
        "tests/huge.py": usual._replace(tokens=house.MOST_TOKENS["tests"] + 1),
    }
    for path, size in cases.items():
        (fault,) = house.faults({"beam_dpne/a.py": usual, path: size})
        assert path.split("/")[0] in fault
    short = usual._replace(code_lines=house.LEAST_LINES - 1, tokens=900)
    assert (
        house.faults({"beam_dpne/short.py": short, "tests/dense.py": cases["beam_dpne/dense.py"]})
        == []
    )
