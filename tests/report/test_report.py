"""A report says what ledger and rows say, equal releases give equal bytes, and no text is markup."""

import base64
import dataclasses
import hashlib
import html.parser
import json
import math
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET

import markdown_it
import pytest

from beam_dpne import Release
from beam_dpne.errors import ReleaseError
from beam_dpne.report import charts
from beam_dpne.report.blocks import number, shown
from beam_dpne.report.document import render_report
from beam_dpne.report.facts import read_facts
from beam_dpne.report.guarantee import detection_bound, guessing_bound
from beam_dpne.report.left_out import PARTS, PUBLIC
from beam_dpne.report.questions import questions
from tests.conftest import ROOT
from tests.exports.releases import counted_ngrams
from tests.report import releases

ROWS = [
    *((1, f"word{place}", 50.0 - place) for place in range(30)),
    *((2, f"good morning{place}", 20.0 - place / 4) for place in range(25)),
]
MAKERS = {
    "adaptive": lambda folder: releases.ngrams(folder, ROWS),
    "counted": counted_ngrams,
    "one round": lambda folder: releases.ngrams(folder, ROWS, strategy="one_round"),
    "no n-grams": lambda folder: releases.ngrams(folder, [], output_format="tsv"),
    "hostile": releases.hostile,
    "items": lambda folder: releases.items(folder, list(releases.HOSTILE)),
    "mad": lambda folder: releases.items(folder, ["tea", "rye"], policy="mad"),
    "laplace": lambda folder: releases.items(folder, ["tea"], policy="weighted_laplace"),
    "counted items": lambda folder: releases.items(folder, ["tea", "rye"], count_share=0.07),
    "counted laplace": lambda folder: releases.items(
        folder, ["tea", "rye"], policy="weighted_laplace", count_share=0.07
    ),
    "no items": lambda folder: releases.items(folder, [], output_format="parquet"),
    "probabilities": releases.probabilities,
}
KINDS = ("html", "markdown")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The facts of a release of every kind, by name."""
    folder = tmp_path_factory.mktemp("releases")
    made = {name: read_facts(str(make(folder / name))) for name, make in MAKERS.items()}
    golden = ROOT / "tests" / "golden" / "ledger_1"
    return made | {
        f"schema 1, {name}": read_facts(str(golden / name)) for name in ("ngrams", "set_union")
    }


NAMES = [*MAKERS, "schema 1, ngrams", "schema 1, set_union"]


class Page(html.parser.HTMLParser):
    """The elements, texts and scripts of a page, as a browser would find them."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.inside, self.open = [], [], {}, []
        self.cells = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in ("meta", "link", "input", "br", "rect", "line", "path", "circle"):
            self.open.append(tag)
        if tag in ("td", "bdi"):
            self.cells.append("")

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        for tag in self.open[-1:]:
            self.inside.setdefault(tag, []).append(data)
        if "bdi" in self.open or "td" in self.open:
            self.cells[-1] += data


def page_of(facts, **settings):
    return render_report(facts, **settings).decode()


def embedded(page):
    return json.loads(re.search(r'id="search-rows">(.*?)</script>', page, re.DOTALL)[1])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_release_has_a_report_of_its_budget_its_limits_and_its_sums(made, name, kind):
    facts = made[name]
    text = page_of(facts, output_format=kind)
    assert f"ε = {facts.epsilon:g}" in text
    assert facts.ledger_sha256 in text
    for part in facts.parts:
        assert part.sha256 in text
        assert part.name in text
    first = facts.ledger["not_protected"][0].split(",")[0]
    assert first in text
    for heading in ("For the public", "For the operator", "For privacy reviewers"):
        assert heading in text


@pytest.mark.parametrize("kind", KINDS)
def test_equal_releases_have_equal_reports_wherever_they_are(tmp_path, kind):
    first = releases.hostile(tmp_path / "here")
    second = releases.hostile(tmp_path / "there" / "deep")
    pages = [page_of(read_facts(str(each)), output_format=kind) for each in (first, second)]
    assert pages[0] == pages[1]
    assert str(tmp_path) not in pages[0]


@pytest.mark.parametrize("name", ["hostile", "items"])
def test_released_texts_are_never_markup_in_html(made, name):
    page = page_of(made[name])
    parsed = Page(page)
    assert parsed.tags.count("script") == 2
    assert not {"img", "b", "iframe"} & set(parsed.tags)
    assert all(not attribute.startswith("on") for _, attribute, _ in parsed.attributes)
    targets = [value for _, attribute, value in parsed.attributes if attribute in ("href", "src")]
    assert all(target == "data:," or target.startswith("#") for target in targets)
    for text in releases.HOSTILE:
        assert shown(text) in parsed.cells
    assert "<!--" not in page


def test_embedded_rows_are_the_shown_texts_and_cannot_end_their_element(made):
    page = page_of(made["hostile"])
    ((_, words, scores), (_, pairs, _)) = embedded(page)
    assert words == ["good", *map(shown, releases.HOSTILE)]
    assert (pairs, scores[0]) == (["good morning"], "99.50")
    data = re.search(r'id="search-rows">(.*?)</script>\s*</section>', page, re.DOTALL)[1]
    assert not set("<>&'\u2028\u2029\u202e\x00") & set(data)


@pytest.mark.parametrize("name", ["hostile", "items"])
def test_released_texts_are_never_markup_in_markdown(made, name):
    text = page_of(made[name], output_format="markdown")
    parser = markdown_it.MarkdownIt("commonmark", {"html": True}).enable("table")
    tokens = parser.parse(text)
    inline = [child for token in tokens if token.type == "inline" for child in token.children]
    kinds = {token.type for token in [*tokens, *inline]}
    assert not kinds & {"html_block", "html_inline", "link_open", "image", "em_open", "code_inline"}
    plain = {
        "".join(child.content for child in token.children) for token in tokens if token.children
    }
    for each in releases.HOSTILE:
        assert shown(each).strip() in plain
    # Readers of GitHub's Markdown make links of bare addresses.
    assert not re.search(r"(?<!\\):// ?|www\.evil", text.replace("https\\://", ""))


def test_markdown_has_the_same_top_rows_as_html(made):
    text = page_of(made["adaptive"], output_format="markdown")
    assert "| 1 | word0 | 50.00 |" in text
    assert "| 20 | word19 | 31.00 |" in text
    assert "word20" not in text


SECRETS = ("Tickets", "ask@example.com", "customer_number", "ticket_body", "private_tokens")


@pytest.mark.parametrize("kind", KINDS)
def test_public_reports_leave_out_what_they_say(made, kind):
    facts = made["adaptive"]
    whole, public = (
        page_of(facts, output_format=kind, left_out=names).replace("\\_", "_").replace("&#64;", "@")
        for names in ((), PUBLIC)
    )
    for secret in (*SECRETS, facts.ledger["versions"]["numpy"], "For the operator"):
        assert secret in whole
        assert secret not in public
    assert "Each user stands for a customer." in public
    assert all(PARTS[name].split()[-1] in public for name in PUBLIC)
    assert facts.ledger["versions"]["beam_dpne"] in public


@pytest.mark.parametrize("name", sorted(PARTS))
def test_each_part_can_be_left_out_alone(made, name):
    gone = {
        "title": "Tickets",
        "contact": "ask@example.com",
        "unit": "a customer",
        "fields": "customer_number",
        "tokenizer": "private_tokens",
        "versions": "pyarrow",
        "operator": "For the operator",
        "top": "Top n-grams",
        "search": "search-rows",
        "parameters": "vocabulary_delta_share",
        "questions": "trust",
    }
    facts = made["adaptive"]
    page = page_of(facts, left_out=[name])
    assert gone[name] in page_of(facts)
    assert gone[name] not in page
    assert facts.ledger_sha256 in page
    others = [each for each in ("title", "contact", "fields", "operator") if each != name]
    assert all(gone[each] in page for each in others)


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


def test_tables_say_what_the_ledger_says(made):
    facts = made["adaptive"]
    page = page_of(facts, output_format="markdown")
    assert "| 1 | 30 | – | 0 |" in page
    assert "| 2 | 25 | 1,000 | 0.25 |" in page
    assert "In expectation at most 0.25 of all n-grams here are spurious." in page


def test_numbers_of_users_replace_scores_where_rows_have_them(made):
    facts = made["counted"]
    top = by_users(facts, 1)[0]
    cell = "{users:,} ({users_low:,} to {users_high:,})".format(**top)
    text = page_of(facts, output_format="markdown")
    assert "| rank | n-gram | users (95 % interval) |" in text
    assert f"| 1 | {top['ngram']} | {cell} |" in text
    page = page_of(facts)
    groups = embedded(page)
    for length, texts, values in groups:
        rows = by_users(facts, int(length))
        assert texts == [row["ngram"] for row in rows]
        assert [value.split(" ")[0] for value in values] == [f"{row['users']:,}" for row in rows]
    assert len(groups) == 3
    assert page.count('class="band"') == 3
    assert page.count('class="interval"') == 60
    assert 'class="band"' not in page_of(made["adaptive"])


def by_users(facts, length):
    rows = [row for row in facts.rows.to_pylist() if row["length"] == length]
    assert sorted(rows, key=lambda row: -row["score"]) != rows
    return sorted(rows, key=lambda row: -row["users"])


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_of_users_are_explained_as_the_ledger_explains_them(made, kind):
    facts = made["counted"]
    ledger = {**facts.ledger, "counts": {**facts.ledger["counts"], "confidence": 0.9}}
    text = page_of(dataclasses.replace(facts, ledger=ledger), output_format=kind)
    assert "users (90 % interval)" in text
    text = text.replace("&nbsp;%", " %")
    assert text.count("90 % of the intervals, over all rows, contain the true number") == 1
    assert text.count("90 % of their intervals, over all rows, contain the true number") == 1
    assert "95 %" not in text
    for each in (
        "It is shrunk towards what n-grams with similar scores have.",
        "The estimates are inside the ε and δ of the release.",
        "rows, numbers of users and ledger together have the ε and δ above. Measuring users took 15 %",
        "A spurious n-gram, which nobody has, gets its estimate by the same rule",
        "The measurement of numbers of users",
        "and about how many people have each of them",
        "all rows with their numbers of users and the ledger together",
        "further sums with Gaussian noise measured how many users have each",
    ):
        assert each in text
    without = page_of(made["adaptive"], output_format=kind)
    for each in ("contain the true number", "The measurement of numbers", "how many people have"):
        assert each not in without


def test_a_ledger_that_does_not_explain_its_numbers_of_users_is_refused(tmp_path):
    folder = counted_ngrams(tmp_path / "release")
    ledger = json.loads((folder / "ledger.json").read_bytes())
    ledger["counts"]["confidence"] = "high"
    (folder / "ledger.json").write_text(json.dumps(ledger))
    with pytest.raises(ReleaseError, match="'confidence' in section 'counts' is missing or not"):
        read_facts(str(folder))


def test_rows_above_the_limit_are_left_out_of_the_search_and_counted(made):
    facts = made["adaptive"]
    page = page_of(facts, search_rows=40)
    assert [len(group[1]) for group in embedded(page)] == [20, 20]
    assert "15 rows are left out, since the limit is 40" in page
    assert "N-grams of 1 word: 10 of 30 are left out." in page
    assert embedded(page)[0][1] == [f"word{place}" for place in range(20)]
    assert "All 55 rows are in this file" in page_of(facts)
    assert embedded(page_of(facts, search_rows=0)) == []


@pytest.mark.parametrize("name", ["no n-grams", "no items"])
def test_an_empty_release_says_so(made, name):
    page = page_of(made[name])
    assert "The release has no row." in page
    assert "There is no row to show." in page
    assert embedded(page) == []


def test_the_nine_components_of_the_pyramid_are_questions(made):
    found = [each.component for each in questions(made["adaptive"])]
    pyramid = (
        "Privacy parameters",
        "Unit of privacy",
        "Algorithms",
        "Correctness",
        "Utility",
        "Bias",
    )
    deployed = ("Access control", "Trust models", "Side channels", "Data collection exposure")
    assert {*pyramid, *deployed} <= set(found)
    alone = [each for each in questions(made["adaptive"]) if each.operator]
    assert {each.component for each in alone} >= {"Access control", "Data collection exposure"}


def test_the_bound_on_one_user_is_that_of_the_ledger(made):
    answers = {
        name: " ".join(each.answer for each in questions(made[name]))
        for name in ("adaptive", "items", "probabilities")
    }
    bounds = {
        "adaptive": "One user adds to at most 20 distinct n-grams in one round of one length.",
        "items": "One user adds to at most 100 distinct items.",
        "probabilities": "One user adds to at most 10 distinct n-grams.",
    }
    for name, bound in bounds.items():
        assert bound in answers[name]
        assert "from which users are counted" not in answers[name]


def test_the_bound_on_one_user_is_not_claimed_for_the_sums_from_which_users_are_counted(made):
    for name, noun in (
        ("counted", "n-grams"),
        ("counted items", "items"),
        ("counted laplace", "items"),
    ):
        answer = " ".join(each.answer for each in questions(made[name]))
        assert "One user adds to at most" not in answer
        assert f"While {noun} are found, one user adds to at most" in answer
        assert f"all of a user's released {noun} count, also those beyond this limit" in answer


def test_the_noise_of_items_and_that_of_their_numbers_of_users_are_told_apart(made):
    facts = made["counted laplace"]
    text = page_of(facts, output_format="markdown")
    counts, spent = facts.ledger["counts"], facts.ledger["spent"]
    mu = math.hypot(1 / counts["row_noise_stddev"], 1 / counts["group_noise_stddev"])
    alone = "μ of the Gaussian noise of the numbers of users alone, since items have Laplace noise"
    assert f"| {alone} | {mu:.4g} |" in text
    delta = number(spent["gaussian_delta"])
    assert f"took 7 % of ε (less the numerical slack), and {delta} of δ, for Gaussian noise" in text
    assert "ε of the Gaussian noise of numbers of users alone" in text
    for wrong in ("all rounds and lengths", "budget mu^2", "budget for noise"):
        assert wrong not in text
        assert wrong not in json.dumps(facts.ledger)
    assert facts.ledger["counts_columns"]["budget_share"].startswith("part of epsilon (less")
    assert (
        "the sums from which users are counted alone, becomes g * mu"
        in (facts.ledger["groups"]["gaussian_noise"])
    )
    groups = facts.ledger["groups"]["laplace_noise"]
    assert "comes from the threshold and from the Gaussian noise." in groups
    assert "from the threshold." in made["laplace"].ledger["groups"]["laplace_noise"]
    assert "ε of the Gaussian noise alone" in page_of(made["laplace"], output_format="markdown")
    gaussian = made["counted items"]
    text = page_of(gaussian, output_format="markdown")
    assert (
        "| μ of the Gaussian noise of all rounds and lengths, and of the numbers of users |" in text
    )
    assert "took 7 % of the run's budget for noise, μ²." in text
    assert gaussian.ledger["counts_columns"]["budget_share"].startswith("part of the budget mu^2")
    assert "all rounds and lengths together" in gaussian.ledger["groups"]["gaussian_noise"]


def test_a_public_number_of_users_is_compared_with_delta(made):
    facts = made["adaptive"]
    plan = {**facts.ledger["plan"], "public_user_count": 1000}
    public = dataclasses.replace(facts, ledger={**facts.ledger, "plan": plan})
    assert "The number of users is public: 1,000. δ times that number is 0.0001." in page_of(public)
    assert "How many users are there?" not in page_of(public)
    assert "How many users are there?" in page_of(facts)


def worst_case(epsilon, delta):
    """Probabilities of the four outcomes of the mechanism that is exactly (ε, δ)-private."""
    rest = (1 - delta) / (1 + math.exp(epsilon))
    present = [delta, rest * math.exp(epsilon), rest, 0.0]
    return present, present[::-1]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 12.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.01])
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
    facts = made["schema 1, ngrams"]
    guarantee = {**facts.ledger["guarantee"], "epsilon": 12.0}
    large = dataclasses.replace(facts, ledger={**facts.ledger, "guarantee": guarantee})
    assert "An ε of 12 is large." in page_of(large)
    assert "is large." not in page_of(facts)


def test_the_command_to_verify_finds_changed_bytes(tmp_path):
    folder = releases.hostile(tmp_path / "release")
    text = page_of(read_facts(str(folder)), output_format="markdown")
    (command,) = re.findall(r"```sh\n(sha256sum.*?)\n```", text, re.DOTALL)
    run = {"shell": True, "cwd": folder, "capture_output": True, "text": True}
    checked = subprocess.run(command, check=False, **run)
    assert (checked.returncode, checked.stdout.count(": OK")) == (0, 2)
    part = next(folder.glob("ngrams-*"))
    part.write_bytes(part.read_bytes()[:-2] + b" \n")
    assert subprocess.run(command, check=False, **run).returncode != 0


def test_a_release_that_is_replaced_meanwhile_is_refused(tmp_path, monkeypatch):
    folder = releases.items(tmp_path / "release", ["tea"])
    other = releases.items(tmp_path / "other", ["rye"])
    read = Release.table

    def replace_and_read(release):
        shutil.rmtree(folder)
        other.rename(folder)
        return read(release)

    monkeypatch.setattr(Release, "table", replace_and_read)
    with pytest.raises(ReleaseError, match="a run is replacing it just now"):
        read_facts(str(folder))


def test_the_ledger_that_was_read_is_that_of_the_rows(tmp_path, monkeypatch):
    folder = releases.items(tmp_path / "release", ["tea"])
    digest = hashlib.sha256((folder / "ledger.json").read_bytes()).hexdigest()
    read = Release.table

    def read_and_replace(release):
        rows = read(release)
        (folder / "ledger.json").write_bytes(b"another")
        return rows

    monkeypatch.setattr(Release, "table", read_and_replace)
    facts = read_facts(str(folder))
    assert (facts.ledger_sha256, facts.rows["item"].to_pylist()) == (digest, ["tea"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": "4"}, "'guarantee' must state epsilon above 0"),
        ({"delta": None}, "'guarantee' must state epsilon above 0"),
        ({"delta": 2}, r"delta in \(0, 1\) as numbers"),
        ({"epsilon": True}, "'guarantee' must state epsilon above 0"),
        ({"statement": 1}, "'statement' in section 'guarantee' is missing or not a text"),
    ],
)
def test_a_ledger_without_a_budget_is_refused(tmp_path, change, message):
    folder = releases.items(tmp_path / "release", ["tea"])
    ledger = json.loads((folder / "ledger.json").read_text())
    ledger["guarantee"] |= change
    (folder / "ledger.json").write_text(json.dumps(ledger))
    with pytest.raises(ReleaseError, match=message):
        read_facts(str(folder))


@pytest.mark.parametrize("values", [[5.0], [0.0, -1.0], [1e300, 1e-300], [3.0] * 200])
def test_plots_by_rank_are_whole_for_any_values(values):
    picture = ET.fromstring(charts.by_rank("scores & more", values))
    numbers = re.findall(r"-?\d+\.\d", picture.find("polyline").get("points"))
    assert len(numbers) >= 2
    assert all(-1 <= float(each) <= 361 for each in numbers)
    assert picture.get("aria-label").startswith("scores & more. Rank 1: ")


def test_one_very_wide_interval_does_not_press_the_others_together():
    values, highs = [400.0, 100.0, 1.0], [500.0, 150.0, 2e10]
    picture = ET.fromstring(charts.by_rank("users", values, lows=[300.0, 60.0, 0.0], highs=highs))
    heights = [float(each.split(",")[1]) for each in picture.find("polyline").get("points").split()]
    assert heights[1] - heights[0] > 20
    points = picture.find("polygon").get("points").split()
    assert all(0 <= float(each.split(",")[1]) <= 210 for each in points)
    labels = [each.text for each in picture.findall("text")]
    assert "1,000" in labels
    assert all(len(label) <= 7 for label in labels)


def test_columns_are_as_high_as_their_values():
    picture = ET.fromstring(charts.columns("released", ["1", "2", "<3>"], [100.0, 50.0, 0.0]))
    heights = [float(bar.get("height")) for bar in picture.findall("rect")]
    assert heights[0] == pytest.approx(2 * heights[1], abs=0.1)
    assert heights[2] == 0
    many = ET.fromstring(charts.columns("released", [str(n) for n in range(100)], [1.0] * 100))
    assert len(many.findall("rect")) == 100
    assert len([each for each in many.findall("text") if each.text]) < 20
