"""Reports in Chromium: nothing is requested, hostile texts stay texts, and screens of all kinds fit."""

import dataclasses
import functools
import http.server
import re
import shutil
import threading
import time

import pyarrow as pa
import pytest

from beam_dpne.report.blocks import shown
from beam_dpne.report.document import render_report
from beam_dpne.report.facts import read_facts
from tests.exports.releases import counted_ngrams
from tests.report import releases

pytestmark = pytest.mark.browser

SCREENS = [(width, scheme) for width in (1200, 400) for scheme in ("light", "dark")]


class Served(http.server.ThreadingHTTPServer):
    """The files of a folder, on this machine alone; it remembers what was asked for."""

    def __init__(self, folder):
        self.asked = asked = []

        class Handler(http.server.SimpleHTTPRequestHandler):
            def log_request(self, *_):
                asked.append(self.path)

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}"


@pytest.fixture(scope="module")
def browser():
    """Chromium without a window."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    assert program, "Chromium is missing: apt-get install chromium"
    assert driver, "Chromium's driver is missing: apt-get install chromium-driver"
    options = webdriver.ChromeOptions()
    options.binary_location = program
    # Chromium itself must not ask the network for anything, either.
    silent = ("--disable-background-networking", "--disable-component-update", "--disable-sync")
    quick = ("--headless=new", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage")
    for argument in (*silent, *quick, "--no-sandbox"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = webdriver.Chrome(options=options, service=Service(driver))
    yield made
    made.quit()


@pytest.fixture(scope="module")
def facts(tmp_path_factory):
    """A release whose texts could do harm."""
    return read_facts(str(releases.hostile(tmp_path_factory.mktemp("hostile") / "release")))


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """A release with numbers of users."""
    return read_facts(str(counted_ngrams(tmp_path_factory.mktemp("counted") / "release")))


@pytest.fixture
def show(browser, tmp_path):
    """Shows a page on a screen, and returns the browser; at its end nothing else was asked for."""
    server = Served(tmp_path)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()

    def show(page, width=1200, scheme="light", media=""):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        wanted = {"media": media, "features": features}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", wanted)
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        text = page.decode().replace("SERVER", server.address)
        (tmp_path / "page.html").write_text(text)
        browser.get_log("browser")
        browser.get(f"{server.address}/page.html")
        return browser

    yield show
    server.shutdown()
    server.server_close()
    thread.join()
    assert set(server.asked) == {"/page.html"}


def type_into(browser, selector, text):
    script = (
        "const field = document.querySelector(arguments[0]); field.value = arguments[1];"
        "field.dispatchEvent(new Event(field.tagName === 'SELECT' ? 'change' : 'input'));"
    )
    browser.execute_script(script, selector, text)


def of_all(browser, selector, function):
    """The values of a function of JavaScript for all elements."""
    return browser.execute_script(
        f"return [...document.querySelectorAll(arguments[0])].map({function})", selector
    )


def found(browser):
    """The texts of the rows that the search shows."""
    return of_all(browser, "#search-found bdi", "e => e.textContent")


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_a_page_fits_its_screen_and_makes_no_request_and_no_error(show, facts, width, scheme):
    browser = show(render_report(facts), width, scheme)
    wide = browser.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width
    assert browser.get_log("browser") == []
    shapes = browser.execute_script("return document.querySelectorAll('figure svg rect').length")
    assert shapes >= 4


def test_texts_that_could_do_harm_are_shown_and_nothing_else(show, facts):
    browser = show(render_report(facts))
    script = "return [...document.querySelectorAll('#top bdi')].map(e => e.textContent)"
    assert set(map(shown, releases.HOSTILE)) <= set(browser.execute_script(script))
    assert len(browser.find_elements("css selector", "script")) == 2
    assert not browser.find_elements("css selector", "img, b, iframe, object, a[href^='http']")
    for text in releases.HOSTILE:
        type_into(browser, "#search-text", shown(text))
        assert shown(text) in found(browser)
    assert browser.get_log("browser") == []


def test_the_policy_stops_what_is_not_of_the_page(show, facts):
    foreign = (
        b"<script>document.title = 'changed'</script><img src='SERVER/picture.png'>"
        b"<link rel='stylesheet' href='SERVER/style.css'><script src='SERVER/script.js'></script>"
        b"<p id='foreign' style='color: red' onclick='1'>x</p></body>"
    )
    browser = show(render_report(facts).replace(b"</body>", foreign))
    assert browser.title == "Tickets & co"
    assert len(browser.find_elements("id", "foreign")) == 1
    refused = [entry["message"] for entry in browser.get_log("browser")]
    assert sum("Content Security Policy" in message for message in refused) >= 4


def test_the_search_finds_by_text_and_length(show, facts):
    browser = show(render_report(facts))
    assert found(browser) == []
    type_into(browser, "#search-text", "GOOD")
    assert found(browser) == ["good", "good morning"]
    assert browser.find_element("id", "search-state").text == "2 rows found."
    type_into(browser, "#search-length", "1")
    assert found(browser) == ["good morning"]
    type_into(browser, "#search-text", "nothing of that kind")
    assert found(browser) == []
    assert browser.find_element("id", "search-state").text == "0 rows found."


def test_numbers_of_users_fit_a_narrow_screen_and_are_found_with_their_intervals(show, counted):
    browser = show(render_report(counted), width=400)
    excess = "e => e.scrollWidth - e.clientWidth"
    assert of_all(browser, "#top .wide", excess) == [0, 0, 0]
    rows = [row for row in counted.rows.to_pylist() if "w0 w1" in row["ngram"]]
    wanted = sorted(rows, key=lambda row: (row["length"], -row["users"]))
    type_into(browser, "#search-text", "w0 w1")
    assert found(browser) == [row["ngram"] for row in wanted][:100]
    texts = ["{users:,} ({users_low:,} to {users_high:,})".format(**row) for row in wanted]
    assert of_all(browser, "#search-found td:last-child", "e => e.textContent") == texts[:100]
    assert browser.get_log("browser") == []


def test_a_hundred_thousand_rows_are_searched_while_somebody_types(show, facts):
    count = 120_000
    texts = [f"word{place} and {place % 977}" for place in range(count)]
    columns = [pa.array([2] * count, pa.int32()), texts, [float(count - n) for n in range(count)]]
    rows = pa.table(columns, names=facts.rows.column_names)
    page = render_report(dataclasses.replace(facts, rows=rows))
    assert len(page) < 6_000_000
    browser = show(page)
    assert "20,000 rows are left out, since the limit is 100,000" in browser.page_source
    began = time.monotonic()
    type_into(browser, "#search-text", "and 97")
    assert len(found(browser)) == 100
    assert time.monotonic() - began < 2
    matching = sum("and 97" in text for text in texts[:100_000])
    assert matching > 100
    state = browser.find_element("id", "search-state")
    assert state.text == f"{matching:,} rows found, of which 100 are shown."
    browser.execute_script("document.getElementById('search-more').click()")
    assert len(found(browser)) == 200


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_screen_and_text_has_contrast(show, facts, scheme):
    browser = show(render_report(facts), scheme=scheme)
    back = colour(browser, "body", "background-color")
    assert (luminance(back) < 0.1) == (scheme == "dark")
    for selector, name in (
        ("p", "color"),
        (".subtitle", "color"),
        ("nav a", "color"),
        ("summary", "color"),
        ("th", "color"),
        ("svg text", "fill"),
    ):
        assert contrast(colour(browser, selector, name), back) >= 4.5, selector
    assert contrast(colour(browser, ".bar", "fill"), back) >= 3


def test_on_paper_there_is_neither_a_search_box_nor_a_dark_page(show, facts):
    browser = show(render_report(facts), scheme="dark", media="print")
    assert luminance(colour(browser, "body", "background-color")) == 1
    for selector in ("nav", "#search"):
        assert not browser.find_element("css selector", selector).is_displayed()
    assert browser.find_element("css selector", "#limits").is_displayed()


def colour(browser, selector, name):
    script = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
    said = browser.execute_script(script, selector, name)
    return [int(each) for each in re.findall(r"\d+", said)[:3]]


def luminance(parts):
    """Relative luminance, as WCAG 2 defines it."""
    linear = [
        part / 255 / 12.92 if part / 255 <= 0.04045 else ((part / 255 + 0.055) / 1.055) ** 2.4
        for part in parts
    ]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)
