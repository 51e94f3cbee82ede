"""CI's check of the small instance, on figures that are made up; it measures nothing."""

import gzip
import json

import pytest

from tests.benchmarks import inputs, regression
from tests.benchmarks.measure import Run
from tests.benchmarks.regression import check, figures_of, recorded_ratios, worse
from tests.benchmarks.table import FLOOR, IMPORT, Ratio, one_user, speed_ups
from tests.benchmarks.workloads import DEFAULT, ONE_ROUND

_OF_FLOOR = 1.0  # CPU seconds


def of_user(user):
    """A run with so many seconds of user CPU time, whose other figures are all the same."""
    return Run(wall=9.0, cpu=9.0, peak=1e9, user=user)


def of_wall(wall):
    """A run that took so long."""
    return Run(wall=wall, cpu=9.0, peak=1e9, user=9.0)


def made_up(ratios, slower=None, by=1.0):
    """Runs with these ratios, of which one is worse by a factor."""

    def runs(user):
        return [of_user(factor * user) for factor in (0.9, 1.0, 1.1)]

    wanted = {name: ratio * (by if name == slower else 1) for name, ratio in ratios.items()}
    found = {IMPORT: runs(1.0)}
    for row in regression.ROWS:
        if not row.is_work:
            found[row.above] = runs(wanted[row.what])
    found[one_user(FLOOR)] = runs(0.25)
    for row in regression.ROWS:
        if row.is_work:
            start_up = found[one_user(row.above.partition(",")[0])][1].user
            found[row.below] = [of_user(0.25 + _OF_FLOOR)] * 3
            found[row.above] = [of_user(start_up + wanted[row.what] * _OF_FLOOR)] * 3
    return found


@pytest.fixture(scope="module")
def recorded():
    """What is recorded in the repository."""
    return recorded_ratios()


def test_every_ratio_is_recorded_and_nothing_else(recorded):
    assert list(recorded) == [row.what for row in regression.ROWS]
    assert all(ratio > 0 for ratio in recorded.values())


def test_made_up_runs_have_the_ratios_that_they_should(recorded):
    found = {figure.what: figure.median for figure in figures_of(made_up(recorded))}
    assert found == pytest.approx(recorded)


@pytest.mark.parametrize("name", [row.what for row in regression.ROWS])
def test_a_ratio_half_as_bad_again_is_a_failure_and_less_is_none(recorded, name):
    assert check(recorded, lambda: made_up(recorded))[1] == []
    # A clock of .01 s cannot tell smaller ratios apart by half of them.
    limit = max(1.5, 1 + 0.06 / recorded[name])
    assert check(recorded, lambda: made_up(recorded, name, by=0.97 * limit))[1] == []
    (message,) = check(recorded, lambda: made_up(recorded, name, by=1.03 * limit))[1]
    assert message.startswith(name)


def test_exactly_one_and_a_half_times_is_a_failure():
    (row,) = (row for row in regression.ROWS if row.above == one_user(ONE_ROUND))
    figure = row.figure("small", {row.above: [of_user(3.0)], row.below: [of_user(1.0)]})
    assert worse([figure], {row.what: 2.0})
    assert not worse([figure], {row.what: 2.01})


def test_a_ratio_that_nobody_recorded_is_a_failure(recorded):
    name, *_ = recorded
    rest = {key: ratio for key, ratio in recorded.items() if key != name}
    (message,) = check(rest, lambda: made_up(recorded))[1]
    assert "nothing is recorded" in message


def test_what_looks_worse_is_measured_once_more_and_judged_by_both(recorded):
    name = regression.ROWS[-1].what
    turns = iter([made_up(recorded, name, by=1.7), made_up(recorded)])
    figures, wrong = check(recorded, lambda: next(turns))
    assert wrong == []
    assert len(figures[-1].values) == 6
    assert next(turns, None) is None


def test_what_is_not_worse_is_measured_once(recorded):
    turns = iter([made_up(recorded)])
    assert check(recorded, lambda: next(turns))[1] == []


def test_start_up_is_taken_off_both_and_hardly_more_is_no_verdict():
    names = (one_user(DEFAULT), one_user(FLOOR))
    row = Ratio("work", DEFAULT, FLOOR, 2.0, start_ups=names, is_work=True)
    runs = {names[0]: [of_wall(4)], names[1]: [of_wall(1)]}
    figure = row.figure("part", {**runs, DEFAULT: [of_wall(10)], FLOOR: [of_wall(3)]})
    assert (figure.median, figure.met, figure.verdict) == (3.0, False, "not met")
    figure = row.figure("part", {**runs, DEFAULT: [of_wall(4.5)], FLOOR: [of_wall(3)]})
    assert (figure.met, figure.verdict) == (None, "too small to tell")


def test_a_speed_up_should_be_at_least_its_target():
    row = Ratio("faster", "one", "two", 1.6, at_least=True)
    for wall, is_met in ((3.3, True), (3.1, False)):
        figure = row.figure("part", {"one": [of_wall(wall)], "two": [of_wall(2)]})
        assert figure.met is is_met
        assert figure.target_text == "≥ 1.60 ×"


@pytest.mark.parametrize(
    ("cores", "asked"), [(1, {}), (2, {2: 1.6}), (3, {2: 1.6}), (4, {2: 1.6, 4: 2.5})]
)
def test_more_cores_are_measured_where_there_are_more(cores, asked):
    workers, omitted = speed_ups(cores, has_option=True)
    assert workers == asked
    assert bool(omitted) == (not asked)


def test_without_an_option_for_workers_the_table_says_what_it_omits():
    assert speed_ups(8, has_option=False)[0] == {}
    assert "no option" in speed_ups(8, has_option=False)[1][0]


def test_records_of_the_protocol_are_the_lines_of_users_with_at_most_400_visits(tmp_path):
    visits = ["1 2 2", "3", " ".join(["4"] * 401), " ".join(["5"] * 400)]
    source = tmp_path / "visits.seq.gz"
    header = "% Names:\nfrontpage news\n% Sequences:\n\n"
    source.write_bytes(gzip.compress((header + "\n".join(f"{v} " for v in visits)).encode()))
    target = inputs.msnbc_records(source, tmp_path / "records.jsonl.gz")
    records = [json.loads(line) for line in gzip.decompress(target.read_bytes()).splitlines()]
    assert records == [
        {"user": "1", "text": visits[0]},
        {"user": "2", "text": visits[1]},
        {"user": "4", "text": visits[3]},
    ]
