"""A report says what ledger and rows say, equal releases give equal bytes, and no text is markup."""

import base64
import dataclasses
import hashlib
import html.parser
import itertools
import json
import math
import re
import subprocess
import xml.etree.ElementTree as ET

import markdown_it
import pytest

from beam_dpne.release.bounds import detection_bound, guessing_bound
from beam_dpne.release.reading import read_release
from beam_dpne.release.report import PARTS, PUBLIC, charts
from beam_dpne.release.report.document import render_report
from beam_dpne.release.wording import shown
from tests.support import releases

ROWS = {
    **{(f"word{place}",): 50.0 - place for place in range(30)},
    **{("good", f"morning{place}"): 20.0 - place / 4 for place in range(25)},
}
OWN = "company.private_tokens:split"
MAKERS = {
    "adaptive": lambda folder: releases.ngrams(folder, ROWS, strategy="adaptive", tokenizer=OWN),
    "counted": releases.counted_ngrams,
    "no n-grams": lambda folder: releases.ngrams(folder, {}, output_format="tsv"),
    "hostile": releases.words,
    "hostile items": lambda folder: releases.items(
        folder, {text: 50.0 - place / 2 for place, text in enumerate(releases.HOSTILE)}
    ),
    "counted items": lambda folder: releases.items(folder, {"a": 9, "b": 8}, count_share=0.07),
    "screened": lambda folder: releases.items(folder, {}, policy="screened_gaussian"),
    "probabilities": lambda folder: releases.probabilities(folder, {("a", "b", "c"): 1.0}),
}
FORMATS = ("html", "markdown")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A release of every kind, by name."""
    folder = tmp_path_factory.mktemp("releases")
    return {name: read_release(str(make(folder / name))) for name, make in MAKERS.items()}


class Page(html.parser.HTMLParser):
    """The elements, attributes and released texts of a page, as a browser would find them."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.released = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        if self.tags and self.tags[-1] == "bdi":
            self.released.append(data)


def page_of(release, **settings):
    return render_report(release, **settings).decode()


def test_rows_below_a_least_value_are_in_no_table_and_not_in_the_search(made):
    release = made["adaptive"]
    page = page_of(release, at_least=45, top_rows=3)
    assert [texts for _, texts, _ in embedded(page)] == [[f"word{place}" for place in range(6)]]
    assert set(Page(page).released) == {f"word{place}" for place in range(3)}
    assert "score of at least 45: 6 of 55." in page
    nothing = page_of(release, at_least=1000)
    assert 'id="search-rows"' not in nothing
    assert not Page(nothing).released


def embedded(page):
    return json.loads(re.search(r'id="search-rows">(.*?)</script>', page, re.DOTALL)[1])


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("kind", FORMATS)
def test_every_release_has_a_report_of_its_budget_its_limits_and_its_sums(made, name, kind):
    release = made[name]
    text = page_of(release, output_format=kind)
    assert f"ε = {release.ledger['guarantee']['epsilon']:g}" in text.replace("\u00a0", " ")
    assert release.ledger_sha256 in text
    for part in release.ledger["parts"]:
        assert part["sha256"] in text
        assert part["name"] in text
    assert release.ledger["not_protected"][0].split(",")[0] in text
    assert ("The release has no row." in text) == (len(release.rows) == 0)


@pytest.mark.parametrize("kind", FORMATS)
def test_equal_releases_have_equal_reports_wherever_they_are(tmp_path, kind):
    folders = [releases.words(tmp_path / name) for name in ("here", "deep/there")]
    pages = [page_of(read_release(str(each)), output_format=kind) for each in folders]
    assert pages[0] == pages[1]
    assert str(tmp_path) not in pages[0]


@pytest.mark.parametrize("name", ["hostile", "hostile items"])
def test_released_texts_are_never_markup_in_html(made, name):
    release = made[name]
    page = page_of(release, top_rows=200)
    parsed = Page(page)
    assert parsed.tags.count("script") == 2
    assert not {"img", "b", "iframe"} & set(parsed.tags)
    assert all(not attribute.startswith("on") for attribute, _ in parsed.attributes)
    targets = [value for attribute, value in parsed.attributes if attribute in ("href", "src")]
    assert all(target == "data:," or target.startswith("#") for target in targets)
    texts = release.rows.column(release.text_column).to_pylist()
    assert set(map(shown, filter(None, texts))) <= {*parsed.released, *embedded(page)[-1][1]}
    assert "<!--" not in page
    data = re.search(r'id="search-rows">(.*?)</script>\s*</section>', page, re.DOTALL)[1]
    assert not set("<>&'\u2028\u2029\u202e\x00") & set(data)


@pytest.mark.parametrize("name", ["hostile", "hostile items"])
def test_released_texts_are_never_markup_in_markdown(made, name):
    release = made[name]
    text = page_of(release, output_format="markdown", top_rows=200)
    parser = markdown_it.MarkdownIt("commonmark", {"html": True}).enable("table")
    tokens = parser.parse(text)
    inline = [child for token in tokens if token.type == "inline" for child in token.children]
    kinds = {token.type for token in [*tokens, *inline]}
    assert not kinds & {"html_block", "html_inline", "link_open", "image", "em_open", "code_inline"}
    plain = {"".join(each.content for each in token.children) for token in tokens if token.children}
    texts = release.rows.column(release.text_column).to_pylist()
    wanted = {" ".join(shown(each).split()) for each in texts}
    assert wanted <= {" ".join(each.split()) for each in plain} | {""}
    # Readers of GitHub's Markdown make links of bare addresses.
    assert not re.search(r"(?<!\\):// ?|www\.evil", text)


@pytest.mark.parametrize("kind", FORMATS)
def test_public_reports_leave_out_what_they_say(made, kind):
    release = made["adaptive"]
    whole, public = (
        page_of(release, output_format=kind, left_out=names)
        .replace("\\_", "_")
        .replace("&#64;", "@")
        for names in ((), PUBLIC)
    )
    secrets = (
        "Phrases",
        "ask@example.com",
        "customer_id",
        "ticket_body",
        "private_tokens",
        "pyarrow",
    )
    for secret in (*secrets, "For the operator"):
        assert secret in whole
        assert secret not in public
    assert "Each user stands for a customer." in public
    assert all(PARTS[name].split()[-1] in public for name in PUBLIC)


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        *(("unit", "a customer"), ("top", "Top n-grams"), ("search", "search-rows")),
        ("parameters", "vocabulary_delta_share"),
    ],
)
def test_other_parts_can_be_left_out_too(made, name, gone):
    release = made["adaptive"]
    page = page_of(release, left_out=[name])
    assert gone in page_of(release)
    assert gone not in page
    assert release.ledger_sha256 in page


def test_the_policy_forbids_requests_and_names_exactly_the_style_and_the_script(made):
    page = page_of(made["adaptive"])
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert policy.startswith("default-src 'none'; img-src data:;")
    for tag, name in (("style", "style-src"), ("script", "script-src")):
        text = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text[0].encode()).digest()).decode()
        assert len(text) == 1
        assert f"{name} 'sha256-{digest}'" in policy
    assert not re.search(r"url\(|@import|<link (?!rel=\"icon\" href=\"data:,\")| style=", page)
    assert "script-src" not in page_of(made["adaptive"], left_out=["search"])


def test_tables_and_rankings_say_what_ledger_and_rows_say(made):
    text = page_of(made["adaptive"], output_format="markdown")
    assert "| 1 | 30 | – | 0 |" in text
    assert "| 2 | 25 | 1,000 | 0.25 |" in text
    assert "| 1 | word0 | 50.00 |" in text
    assert "| 20 | word19 | 31.00 |" in text
    assert "word20" not in text


def test_numbers_of_users_replace_scores_where_rows_have_them(made):
    release = made["counted"]
    rows = release.rows.to_pylist()
    first = max((row for row in rows if row["length"] == 1), key=lambda row: row["users"])
    text = page_of(release, output_format="markdown")
    assert "| rank | n-gram | users (95 % interval) |" in text
    cell = "{users:,} ({users_low:,} to {users_high:,})".format(**first)
    assert f"| 1 | {first['ngram']} | {cell} |" in text
    assert "Measuring users took 15 % of the run's budget" in text
    page = page_of(release)
    marks = set()
    for length, texts, values in embedded(page):
        ranked = [row for row in rows if row["length"] == int(length)]
        ranked.sort(key=lambda row: -row["users"])
        assert texts == [row["ngram"] for row in ranked]
        # An order of magnitude is marked as one.
        rough = [row["users_high"] > 10 * max(row["users_low"], 1) for row in ranked]
        assert [value.startswith("≈ ") for value in values] == rough
        marks |= set(rough)
    assert marks == {False, True}
    assert page.count('class="band"') == 3
    # Those of the first screen, and of the top rows.
    assert page.count('class="interval"') == 3 * 5 + 3 * 20


def test_a_release_without_rows_promises_none_and_has_nothing_to_search(made):
    page = page_of(made["no n-grams"])
    assert "This release has no words and no phrases." in page
    for absent in (
        "noise alone has",
        'id="top"',
        'id="search',
        'href="#top"',
        "<figcaption>N-grams",
    ):
        assert absent not in page


@pytest.mark.parametrize(("spurious", "is_told"), [(0.0, False), (0.25, True)])
def test_spurious_ngrams_and_curves_are_only_where_they_may_be(tmp_path, spurious, is_told):
    rows = {("a",): 9, ("b",): 8, ("a", "b"): 7}
    release = read_release(str(releases.ngrams(tmp_path / "release", rows, spurious=spurious)))
    page = page_of(release)
    assert ("a few that noise alone has put there" in page) == is_told
    # One bigram alone has no curve.
    assert re.findall("<figcaption>(N-grams.*?)</figcaption>", page) == [
        "N-grams of 1 word: score by rank"
    ]


def test_rows_above_the_limit_are_left_out_of_the_search_and_counted(made):
    page = page_of(made["adaptive"], search_rows=40)
    assert [len(group[1]) for group in embedded(page)] == [20, 20]
    assert "15 rows are left out, since the limit is 40" in page
    assert embedded(page)[0][1] == [f"word{place}" for place in range(20)]
    assert embedded(page_of(made["adaptive"], search_rows=0)) == []


def worst_case(epsilon, delta):
    """Probabilities of the four outcomes of the mechanism that is exactly (ε, δ)-private."""
    rest = (1 - delta) / (1 + math.exp(epsilon))
    present = [delta, rest * math.exp(epsilon), rest, 0.0]
    return present, present[::-1]


@pytest.mark.parametrize("epsilon", [0.1, 4.0, 12.0])
@pytest.mark.parametrize("delta", [0.0, 0.01])
def test_bounds_on_guesses_and_tests_are_those_of_the_worst_mechanism(epsilon, delta):
    present, absent = worst_case(epsilon, delta)
    right = sum(max(pair) for pair in zip(present, absent, strict=True)) / 2
    assert guessing_bound(epsilon, delta) == pytest.approx(right)
    for alarms in (0.0, 0.001, 0.05, 0.5, 1.0):
        # The best test says yes by falling likelihood ratio, and at one outcome by chance.
        power, left = 0.0, alarms
        for yes, no in zip(present, absent, strict=True):
            share = 1.0 if no <= left or not no else left / no
            power, left = power + share * yes, left - share * no
        assert detection_bound(epsilon, delta, alarms) == pytest.approx(power)


def test_a_large_epsilon_is_called_large(made):
    release = made["adaptive"]
    guarantee = {**release.ledger["guarantee"], "epsilon": 12.0}
    large = dataclasses.replace(release, ledger={**release.ledger, "guarantee": guarantee})
    assert "An ε of 12 is large." in page_of(large)
    assert "is large." not in page_of(release)


def test_the_command_to_verify_finds_changed_bytes(tmp_path):
    folder = releases.words(tmp_path / "release")
    text = page_of(read_release(str(folder)), output_format="markdown")
    (command,) = re.findall(r"```sh\n(sha256sum.*?)\n```", text, re.DOTALL)
    run = {"shell": True, "cwd": folder, "capture_output": True, "text": True}
    checked = subprocess.run(command, check=False, **run)
    assert (checked.returncode, checked.stdout.count(": OK")) == (0, 2)
    part = next(folder.glob("ngrams-*"))
    part.write_bytes(part.read_bytes()[:-2] + b" \n")
    assert subprocess.run(command, check=False, **run).returncode != 0


@pytest.mark.parametrize("values", [[0.0, -1.0], [1e300, 1e-300], [3.0] * 200])
def test_plots_by_rank_are_whole_for_any_values(values):
    picture = ET.fromstring(charts.by_rank("scores & more", values))
    numbers = re.findall(r"-?\d+\.\d", picture.find("polyline").get("points"))
    assert len(numbers) >= 2
    assert all(-1 <= float(each) <= 361 for each in numbers)
    assert picture.get("aria-label").startswith("scores & more. Rank 1: ")


@pytest.mark.parametrize("count", [20, 1_013, 100_500, 1_000_001])
def test_labels_of_plots_are_whole_and_apart(count):
    ranks = [float(count - rank) for rank in range(count)]
    lengths = [str(length) for length in range(1, 10)]
    for svg in (
        charts.by_rank("users", ranks),
        charts.columns("released", lengths, [10.0 * count] * 9),
        charts.columns("spurious", lengths, [count / 1_234_567] * 9, percent=True),
    ):
        labels = [each for each in ET.fromstring(svg).findall("text") if each.text]
        for each in labels:
            x, half = float(each.get("x")), len(each.text) * 3
            assert half - 1 <= x <= 361 - (half if each.get("text-anchor") == "middle" else 0)
        above = [each for each in labels if each.get("class") == "value"]
        for one, other in itertools.pairwise(above):
            room = float(other.get("x")) - float(one.get("x"))
            assert room >= 3 * (len(one.text) + len(other.text))


def test_one_very_wide_interval_does_not_press_the_others_together():
    values, highs = [400.0, 100.0, 1.0], [500.0, 150.0, 2e10]
    picture = ET.fromstring(charts.by_rank("users", values, lows=[300.0, 60.0, 0.0], highs=highs))
    heights = [float(each.split(",")[1]) for each in picture.find("polyline").get("points").split()]
    assert heights[1] - heights[0] > 20
    points = picture.find("polygon").get("points").split()
    assert all(0 <= float(each.split(",")[1]) <= 210 for each in points)


def test_columns_are_as_high_as_their_values():
    picture = ET.fromstring(charts.columns("released", ["1", "2", "<3>"], [100.0, 50.0, 0.0]))
    heights = [float(bar.get("height")) for bar in picture.findall("rect")]
    assert heights[0] == pytest.approx(2 * heights[1], abs=0.16)  # Each is rounded to .1.
    assert heights[2] == 0
    many = ET.fromstring(charts.columns("released", [str(n) for n in range(100)], [1.0] * 100))
    assert len([each for each in many.findall("text") if each.text]) < 20
