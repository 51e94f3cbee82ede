"""The parts of a stage that are done."""

import pytest

from beam_dpne.elements import progress


@pytest.fixture(autouse=True)
def fresh():
    progress.reset()
    yield
    progress.reset()


def shown():
    now = progress.snapshot()
    return now.stage, now.round, now.done, now.parts


def test_a_stage_that_is_entered_again_has_one_more_part_done():
    with progress.counting(range(3)):
        for done in range(3):
            progress.enter("users")
            assert shown() == ("users", 0, done, 3)
        progress.enter("users", None, 1)
        assert shown() == ("users", 1, 0, 3)
    progress.enter("publish")
    assert shown() == ("publish", 0, 0, 0)


def test_items_that_are_mapped_are_the_parts_of_the_stage():
    def work(_):
        progress.enter("users", 2, 1)
        return shown()

    with progress.counting(range(5)):
        seen = [work(item) for item in range(5)]
    assert max(seen) == ("users", 1, 4, 5)
    progress.enter("users", 3, 1)
    assert shown() == ("users", 1, 0, 0)


def test_a_new_run_has_done_nothing():
    with progress.counting(range(3)):
        progress.enter("users")
        progress.enter("users")
    progress.reset()
    progress.enter("users")
    assert shown() == ("users", 0, 0, 0)
