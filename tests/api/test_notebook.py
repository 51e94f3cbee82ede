"""Calls in a real kernel of a notebook: what a cell shows as it runs, and what an interrupt leaves."""

import pathlib
import time

import pytest

from beam_dpne.accounting.budget import create_budget, open_budget
from beam_dpne.accounting.population import Note
from tests.conftest import ROOT

pytestmark = pytest.mark.notebook

BEFORE = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import pandas as pd
import beam_dpne
frame = pd.DataFrame({{"user": range(9000), "text": ["Good morning to you"] * 9000}})
given = {{"user": "user", "text": "text", "epsilon": 4, "delta": 1e-6, "max_length": 2}}
"""
SLOW = {"tokenizer": "tests.api.tokenizers:slow_words", "workers": 2, "partitions": 4}


@pytest.fixture(scope="module")
def kernel():
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3")
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.fixture
def cell(kernel):
    """Runs a cell, and returns its reply, and what it has shown: kinds of messages and contents."""
    manager, client = kernel

    def run(code, interrupted_after=None):
        shown = []

        def keep(message):
            shown.append((message["msg_type"], message["content"]))
            kinds = [kind for kind, _ in shown]
            if interrupted_after in kinds[-1:] and kinds.count(interrupted_after) == 1:
                time.sleep(1)
                manager.interrupt_kernel()

        reply = client.execute_interactive(code, output_hook=keep, timeout=60)
        return reply["content"], shown

    run(BEFORE)
    return run


def texts(shown):
    """Returns what a cell has printed, and the texts of what it has displayed."""
    displayed = [each["data"]["text/plain"] for kind, each in shown if kind == "display_data"]
    printed = [each["text"] for kind, each in shown if kind == "stream"]
    return " ".join("".join(printed + displayed).split())


def test_a_cell_shows_its_progress_and_then_the_release(cell):
    reply, shown = cell("beam_dpne.release_ngrams(frame, **given)")
    assert reply["status"] == "ok", reply
    kinds = [kind for kind, _ in shown]
    # The live line is a widget, which says what the run is doing.
    assert "display_data" in kinds[: kinds.index("execute_result")]
    result = next(content["data"] for kind, content in shown if kind == "execute_result")
    assert "good morning" in result["text/html"]


def test_an_interrupted_cell_leaves_no_process_no_file_and_no_release(cell, tmp_path):
    budget = str(tmp_path / "budget")
    create_budget(budget, population="all", epsilon=9, delta=1e-3)
    before = sorted(pathlib.Path(tmp_path).rglob("*"))
    code = (
        f"release = beam_dpne.release_ngrams(frame, **given, **{SLOW}, budget={budget!r})\n"
        f"release.write({str(tmp_path / 'out')!r})"
    )
    reply, shown = cell(code, interrupted_after="display_data")
    assert (reply["status"], reply["ename"]) == ("error", "KeyboardInterrupt")
    (note,) = open_budget(budget).runs().values()
    assert isinstance(note, Note)
    assert "its note may be removed" in texts(shown)
    assert len(sorted(tmp_path.rglob("*"))) == len(before) + 1
    left = "[each.name() for each in psutil.Process().children()]"
    reply, shown = cell(f"import psutil\nprint({left}, 'release' in dir())")
    assert texts(shown) == "[] False"
    # The kernel works on.
    reply, _ = cell("beam_dpne.release_ngrams(frame, **given, progress=False)")
    assert reply["status"] == "ok", reply
