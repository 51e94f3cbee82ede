"""The judgement of comparisons: halves of made-up people, and what is counted on them."""

import gzip
import json
import pathlib

import numpy as np
import pyarrow as pa
import pytest

from pipelines.experiments.changes import WORLDS, compared, halves, judged
from pipelines.experiments.intervals import SAMPLE


@pytest.fixture(scope="module")
def titles():
    with gzip.open(SAMPLE, "rt", encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]


@pytest.mark.parametrize("world", WORLDS)
def test_halves_have_all_titles_once_and_words_are_thinned_in_one_of_them(titles, world):
    words = [" ".join(title.lower().split()) for title in titles[:3000]]
    texts = [[json.loads(line)["text"] for line in lines] for lines in halves(words, world)]
    assert [len(side) for side in texts] == [1500, 1500]
    kept = sum(len(text.split()) for side in texts for text in side)
    whole = sum(len(title.split()) for title in words)
    if world == "still":
        assert sorted(texts[0] + texts[1]) == sorted(words)
    else:
        # Of half of the words .48 is taken in the mean, in one of the halves.
        assert 0.8 < kept / whole < 0.97


def test_shares_are_counted_on_rows_whose_numbers_are_known():
    rows = pa.table(
        {
            "change": ["risen", "fallen", "unchanged", "gone", "gone", "new"],
            "ratio_low": [1.5, 0.2, 0.5, None, None, None],
            "ratio_high": [4.0, 0.9, 2.0, None, None, None],
        }
    )
    found = judged(rows, np.array([10, 10, 10, 9, 9, 3]), np.array([30, 12, 30, 9, 0, 3]))
    assert found["covered"] == pytest.approx(1 / 3)
    assert (found["called"], found["wrong"]) == (2, 1)
    assert (found["beyond 2"], found["of them called"]) == (2, 1)
    assert (found["gone, still held"], found["as many"]) == (0.5, 0.5)
    assert (found["new, held before"], found["as many before"]) == (1, 1)


def test_the_sample_is_covered_and_few_called_changes_are_wrong_as_the_page_says(titles, tmp_path):
    found = {}
    for world in ("equal", "still"):
        files = [str(tmp_path / f"{world} {side}.jsonl") for side in ("old", "new")]
        for path, lines in zip(files, halves(titles, world), strict=True):
            pathlib.Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")
        found[world] = compared(str(tmp_path), files, 8)
        assert 0.94 < found[world]["covered"] < 1
    assert found["equal"]["wrong"] < 0.1 * found["equal"]["called"]
    assert found["equal"]["called"] > 50
    assert found["still"]["called"] < 0.06 * found["still"]["in both"]
