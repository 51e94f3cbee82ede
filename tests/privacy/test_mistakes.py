"""Every planted mistake fits the code, and the tests that must notice it exist."""

import pytest

from tests.privacy.mistakes import MISTAKES, ROOT


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.breaks)
def test_a_planted_mistake_fits_the_code(mistake):
    assert (ROOT / "beam_dpne" / mistake.file).read_text().count(mistake.before) == 1
    assert mistake.before != mistake.after
    for each in mistake.tests:
        file, _, name = each.partition("::")
        assert f"def {name}" in (ROOT / "tests" / file).read_text()
