"""A first look at a release: `show` and notebooks have its rows as texts, and the conditions hold."""

import csv
import html
import io
import json
import re

import pytest
from rich.cells import cell_len

from beam_dpne import read_release
from beam_dpne.release.first_look import Choice
from beam_dpne.release.wording import shown
from tests.support import releases

ROWS = {
    **{("tea",): 60.0, ("rye",): 50.0, ("oat",): 40.0, ("=1+1",): 30.0},
    **{("tea", "rye"): 20.0, ("rye", "oat"): 10.0},
}
WIDE = ("日本語", "한국어", "אבג דהו", "مرحبا", "नमस्ते", "😀", "e\u0301")
MARKUP = (
    "[bold]x[/bold]",
    ":smile:",
    "<script>alert(1)</script>",
    "&lt;b&gt;",
    "a\x1b[31m",
    "\u202eab",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a release of each program, and one with numbers of users."""
    folder = tmp_path_factory.mktemp("releases")
    releases.ngrams(folder / "ngrams", ROWS)
    releases.counted_ngrams(folder / "counted")
    items = {text: 90.0 - place for place, text in enumerate((*WIDE, *MARKUP))}
    releases.items(folder / "items", items, tokenizer="item", count_share=0.07)
    releases.probabilities(folder / "joint", {("a", "b"): 0.75, ("b", "a"): 0.25})
    releases.ngrams(folder / "empty", {})
    return folder


@pytest.mark.parametrize(
    ("choice", "texts"),
    [
        ({}, ["tea", "rye", "oat", "=1+1", "tea rye", "rye oat"]),
        ({"length": 2}, ["tea rye", "rye oat"]),
        ({"top": 1}, ["tea", "tea rye"]),
        ({"at_least": 40}, ["tea", "rye", "oat"]),
        ({"at_least": 45, "top": 3, "length": 1}, ["tea", "rye"]),
        ({"length": 3}, []),
    ],
)
def test_a_choice_has_the_rows_that_meet_all_its_conditions_in_order(folder, choice, texts):
    release = read_release(str(folder / "ngrams"))
    assert release.texts(Choice(**choice).rows(release)) == texts


@pytest.mark.parametrize(
    ("name", "option", "message"),
    [
        ("ngrams", "--length=4", "--length must be from 1 to 3, got --length=4"),
        ("items", "--length=1", "--length must be left out for rows without a length"),
        ("items", "--group=a", "--group must be left out for a release without groups"),
        ("items", "--top=0", "--top must be an integer of at least 1"),
    ],
)
def test_a_choice_that_no_row_can_meet_is_refused(cli, folder, name, option, message):
    ended = cli("show", folder / name, option)
    assert (ended.status, ended.out) == (2, "")
    assert message in ended.err


@pytest.mark.parametrize("name", ["ngrams", "counted", "items", "joint", "empty"])
def test_terminals_and_notebooks_show_the_same_rows_and_sentences(cli, folder, name):
    release = read_release(str(folder / name))
    ended = cli("show", folder / name)
    assert ended.status == 0, ended.err
    page = re.sub("<[^>]*>", "\n", release._repr_html_())
    assert f"{release.num_rows:,} {release.noun}" in ended.out
    sentences = ("almost the same", "about whom", *(["Shown: "] if "Shown: " in ended.out else []))
    for sentence in sentences:
        (line,) = (line for line in ended.out.splitlines() if sentence in line)
        assert line in page
    for rows in release.ranked().values():
        for text in release.texts(rows.slice(0, 10)):
            assert shown(text) in ended.out
            assert shown(text) in html.unescape(page)
    if release.has_counts:
        low, high = (release.rows[end][0].as_py() for end in ("users_low", "users_high"))
        assert f"{low:,}–{high:,}" in ended.out
        assert f"{low:,}–{high:,}" in page


def test_no_text_is_markup_or_moves_its_neighbours(cli, folder):
    out = cli("show", folder / "items", "--top", "99").out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "[bold]x[/bold]" in out
    assert ":smile:" in out
    lines = [line for line in out.splitlines() if line.startswith("│")]
    assert len(lines) == len(WIDE) + len(MARKUP)
    # All frames are below each other, also behind texts of other widths.
    assert len({cell_len(line) for line in lines}) == 1
    assert len({cell_len(line.rsplit("│", 3)[0]) for line in lines}) == 1
    # Letters from right to left stand between marks, so that the frame after them stays.
    assert any(line.startswith("│ \u200eאבג דהו\u200e") for line in lines)
    page = read_release(str(folder / "items"))._repr_html_()
    assert "<script" not in page
    assert not set("\x1b\u202e") & set(page)


@pytest.mark.parametrize("name", ["ngrams", "counted", "items", "joint", "empty"])
def test_lines_for_programs_have_every_column_of_the_rows_exactly(cli, folder, name):
    rows = read_release(str(folder / name)).rows
    found = cli("show", folder / name, "--format", "jsonl").out
    assert [json.loads(line) for line in found.split("\n")[:-1]] == rows.to_pylist()
    headings, *lines = csv.reader(io.StringIO(cli("show", folder / name, "--format", "csv").out))
    assert headings == rows.column_names
    assert len(lines) == len(rows)
    assert not any(cell[:1] in ("=", "+", "-", "@") for line in lines for cell in line[1:2])


def test_rows_of_one_group_are_shown(cli, tmp_path):
    path = tmp_path / "messages.jsonl"
    texts = {"dk": "hej med dig", "us": "hello you"}
    with path.open("w") as stream:
        for user in range(3000):
            group = "dk" if user % 2 else "us"
            line = {"user": f"u{user}", "text": texts[group], "land": group}
            stream.write(json.dumps(line) + "\n")
    asked = ("--input", path, "--output", tmp_path / "out", "--group_field", "land", "--quiet")
    ended = cli("ngrams", *asked, "--epsilon", 8, "--delta", 1e-6, "--max_length", 1)
    assert ended.status == 0, ended.err
    found = cli("show", tmp_path / "out", "--group", "dk")
    assert "hej" in found.out
    assert "hello" not in found.out
    assert "Did you mean dk?" in cli("show", tmp_path / "out", "--group", "dkk").err
