"""The judgement of intervals: worlds of made-up users, and what is counted on them."""

import gzip

import numpy as np
import pytest

from pipelines.experiments import communities
from pipelines.experiments.corpora import Data, Source
from pipelines.experiments.intervals import SAMPLE, WORLDS, _of_length, judged, main


@pytest.mark.parametrize("world", WORLDS)
def test_each_world_deals_texts_and_its_users_differ_as_it_says(world):
    texts = [f"a b {number}" for number in range(6000)]
    users: dict[str, list[str]] = {}
    for user, text in WORLDS[world](texts):
        users.setdefault(user, []).append(text)
    sizes = np.array([len(own) for own in users.values()])
    assert sizes.sum() > 2000
    assert (len(set(sizes.tolist())) == 1) == (world == "8 texts each")
    distinct = {text for own in users.values() for text in own}
    assert (len(distinct) < sizes.sum()) == (world == "repeated texts")


def test_shares_are_counted_on_rows_whose_numbers_are_known():
    users = np.array([[9, 5, 12], [7, 6, 8], [3, 2, 40], [1, 0, 2]])
    found = _of_length(users, np.array([10, 5, 4, 0]), np.array([3, 9, 20, -1]))
    assert found["all"] == 3 / 4
    assert (found["of users with few"], found["of users with many"]) == (1.0, 1.0)
    assert found["median error"] == pytest.approx(0.25)
    assert found["wider than 10"] == 1 / 4


def test_the_sample_is_covered_as_the_page_says():
    data = Data(Source(path=SAMPLE, title="", note="", max_length=5))
    assert judged(data, 4.0, 5)["all"] > 0.95


def test_the_command_prints_a_table(tmp_path, capsys):
    with gzip.open(tmp_path / "titles.gz", "wt") as file:
        file.writelines(f"common words of title {number % 97}\n" for number in range(9000))
    main([str(tmp_path / "titles.gz"), "--worlds", "sample", "--epsilons", "4", "--repeats", "1"])
    assert "NOT PRIVATE" in capsys.readouterr().out


def test_communities_have_users_of_their_own_sizes_and_words_of_their_own():
    texts = [f"a b c d e f g h i j {number}" for number in range(800)]
    found = list(communities.communities(texts))
    for name, size in communities.TITLES_OF_A_USER.items():
        users = [user for user, _, group in found if group == name]
        assert set(np.unique(users, return_counts=True)[1]) == {size}
    words = [set(say(texts[0]).split()) for say in map(communities.own_words, "xy")]
    assert 0 < len(words[0] & words[1]) < len(words[0]) == len(words[1]) == 11


def test_the_communities_table_has_a_line_for_each_group(tmp_path, capsys):
    with gzip.open(tmp_path / "titles.gz", "wt") as file:
        file.writelines(f"common words of title {number % 97}\n" for number in range(9000))
    communities.main([str(tmp_path / "titles.gz"), "--epsilons", "4"])
    shown = capsys.readouterr().out
    assert "NOT PRIVATE" in shown
    assert all(shown.count(name) >= 1 for name in communities.TITLES_OF_A_USER)
