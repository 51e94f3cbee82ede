"""Reports in Chromium: nothing is requested, hostile texts stay texts, and screens of all kinds fit."""

import functools
import http.server
import shutil
import threading
import time

import pyarrow as pa
import pytest

from beam_dpne.release.reading import Release, read_release
from beam_dpne.release.report.document import render_report
from beam_dpne.release.wording import number, shown
from tests.support import releases

pytestmark = pytest.mark.browser


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
def hostile(tmp_path_factory):
    """A release whose texts could do harm."""
    scores = {(text,): 90.0 - place for place, text in enumerate(releases.HOSTILE)}
    scores |= {("good",): 99.5, ("good", "morning"): 40.25}
    return read_release(
        str(releases.ngrams(tmp_path_factory.mktemp("hostile") / "release", scores))
    )


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """A release with numbers of users."""
    return read_release(
        str(releases.counted_ngrams(tmp_path_factory.mktemp("counted") / "release"))
    )


@pytest.fixture
def show(browser, tmp_path):
    """Shows a page on a screen, and returns the browser; at its end nothing else was asked for."""
    server = Served(tmp_path)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()

    def show(page, width=1200, scheme="light"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
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


@pytest.mark.parametrize(("width", "scheme"), [(1000, "light"), (1800, "light"), (400, "dark")])
def test_a_page_fits_its_screen_and_makes_no_request_and_no_error(show, counted, width, scheme):
    browser = show(render_report(counted), width, scheme)
    wide = browser.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width
    # What is folded is shown, too, and nothing needs to be scrolled sideways.
    of_all(browser, "details", "e => e.open = true")
    assert set(of_all(browser, ".wide, pre", "e => e.scrollWidth - e.clientWidth")) == {0}
    assert browser.get_log("browser") == []
    assert len(of_all(browser, "figure svg rect", "e => 1")) >= 4


@pytest.mark.parametrize("width", [400, 1000, 1800])
def test_the_first_screen_has_size_guarantee_and_first_phrases(show, counted, width):
    browser = show(render_report(counted), width)
    above = "e => e.getBoundingClientRect().bottom < 900 ? e.textContent : ''"
    (first, *_) = of_all(browser, "#summary > p", above)
    assert f"{counted.num_rows:,} n-grams: " in first
    assert "is right in 50" in first
    assert f"δ\u00a0=\u00a0{number(counted.delta)}" in first
    assert of_all(browser, "#summary bdi", above)[:5] == counted.texts(counted.ranked()[1])[:5]
    # A wide screen is used to its right end.
    used = of_all(browser, "section", "e => e.getBoundingClientRect().right")
    assert max(used) > 0.9 * width


def test_texts_that_could_do_harm_are_shown_and_found_and_nothing_else(show, hostile):
    browser = show(render_report(hostile, top_rows=100))
    shown_texts = of_all(browser, "#top bdi", "e => e.textContent")
    texts = [text for text in map(shown, hostile.rows["ngram"].to_pylist()) if text.strip()]
    assert set(texts) <= set(shown_texts)
    assert len(browser.find_elements("css selector", "script")) == 2
    assert not browser.find_elements("css selector", "img, b, iframe, object, a[href^='http']")
    for text in texts:
        type_into(browser, "#search-text", text)
        assert text in found(browser)
    assert browser.get_log("browser") == []


def test_the_policy_stops_what_is_not_of_the_page(show, hostile):
    foreign = (
        b"<script>document.title = 'changed'</script><img src='SERVER/picture.png'>"
        b"<link rel='stylesheet' href='SERVER/style.css'><script src='SERVER/script.js'></script>"
        b"<p id='foreign' style='color: red' onclick='1'>x</p></body>"
    )
    browser = show(render_report(hostile).replace(b"</body>", foreign))
    assert browser.title == "Phrases <b>, a = 1"
    refused = [entry["message"] for entry in browser.get_log("browser")]
    assert sum("Content Security Policy" in message for message in refused) >= 4


def test_the_search_finds_by_text_and_length(show, hostile):
    browser = show(render_report(hostile))
    assert found(browser) == []
    type_into(browser, "#search-text", "GOOD")
    assert found(browser) == ["good", "good morning"]
    assert browser.find_element("id", "search-state").text == "2 rows found."
    type_into(browser, "#search-length", "1")
    assert found(browser) == ["good morning"]
    type_into(browser, "#search-text", "nothing of that kind")
    assert found(browser) == []


def test_a_hundred_thousand_rows_are_searched_while_somebody_types(show, hostile):
    count = 100_000
    texts = [f"word{place} and {place % 977}" for place in range(count)]
    columns = [pa.array([2] * count, pa.int32()), texts, [float(count - n) for n in range(count)]]
    rows = pa.table(columns, names=hostile.rows.column_names)

    class Many(Release):
        def table(self):
            return rows

    page = render_report(Many(hostile.path, hostile.ledger, hostile.ledger_sha256))
    assert len(page) < 6_000_000
    browser = show(page)
    began = time.monotonic()
    type_into(browser, "#search-text", "and 97")
    assert len(found(browser)) == 100
    assert time.monotonic() - began < 2
    matching = sum("and 97" in text for text in texts)
    state = browser.find_element("id", "search-state")
    assert state.text == f"{matching:,} rows found, of which 100 are shown."
    browser.execute_script("document.getElementById('search-more').click()")
    assert len(found(browser)) == 200
