"""The MSNBC experiment, run as the README runs it, agrees with Table 5 of the DPNE paper.

A prototype of the paper's algorithm released 7,683 to 7,826 n-grams over its seeds, so a run outside
7,400 to 8,000 is no matter of noise. The keys are fixed: the test does not fail by chance.
"""

import pathlib
import statistics

import pytest

from beam_dpne.cli.msnbc import BEST_LENGTHS, TABLE_5, category_names, main
from beam_dpne.io.publishing import read_release
from beam_dpne.ledger import read_ledger

DATA = pathlib.Path(__file__).parent.parent / "pipelines" / "data" / "msnbc990928.seq.gz"
CATEGORIES = {
    *("frontpage", "news", "tech", "local", "opinion", "on-air", "misc", "weather", "msn-news"),
    *("health", "living", "business", "msn-sports", "sports", "summary", "bbs", "travel"),
}


def run(folder: pathlib.Path, key: int, *options: str) -> pathlib.Path:
    key_file = folder / "key"
    key_file.write_text(f"{key:064x}")
    output = folder / "release"
    status = main(["--output", str(output), "--run_key_file", str(key_file), *options], DATA)
    assert status == 0
    return output


@pytest.mark.parametrize("key", [1, *(pytest.param(key, marks=pytest.mark.slow) for key in (2, 3))])
def test_each_length_is_within_six_percent_of_the_paper(tmp_path, key):
    ledger = read_ledger(str(run(tmp_path, key, "--quiet")))
    released = [facts["released"] for facts in ledger["lengths"]]
    assert 7_400 <= sum(released) <= 8_000
    for ours, paper in zip(released, TABLE_5, strict=True):
        assert abs(ours / paper - 1) <= 0.06


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "factor"), [((), 1.85), (("--user_budgets", "even"), 1.4)], ids=["default", "even"]
)
def test_the_adaptive_strategy_releases_far_more_under_the_same_privacy(tmp_path, options, factor):
    """1.85 times the paper's total; even budgets, which need no new theory, 1.4 times: medians."""
    real = []
    for key in (1, 2, 3):
        folder = tmp_path / str(key)
        folder.mkdir()
        ledger = read_ledger(str(run(folder, key, "--quiet", "--strategy", "adaptive", *options)))
        parameters = ledger["plan"]
        assert (parameters["epsilon"], parameters["delta"]) == (1, 1e-7)
        released = [facts["released"] for facts in ledger["lengths"]]
        spurious = sum(facts["expected_spurious_at_most"] for facts in ledger["lengths"])
        assert spurious <= 0.01 * sum(released)
        real.append(sum(released) - spurious)
    assert statistics.median(real) >= factor * sum(TABLE_5)


def test_the_comparison_and_the_best_n_grams_are_printed(tmp_path, capsys):
    output = run(tmp_path, 4, "--max_length", "3")
    rows = read_release(str(output)).to_pylist()
    assert {row["ngram"] for row in rows if row["length"] == 1} == CATEGORIES
    printed = capsys.readouterr().out
    assert "1,273" in printed
    for length in BEST_LENGTHS[:2]:
        best = next(row for row in rows if row["length"] == length)
        assert best["ngram"] in printed


def test_category_names_come_from_the_header():
    names = category_names(str(DATA))
    assert names[:3] == ["frontpage", "news", "tech"]
    assert set(names) == CATEGORIES
