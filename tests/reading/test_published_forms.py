"""Data as they are published are read by the options that the page of inputs has for them."""

import json
import re
import shlex
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import ROOT
from tests.reading.files import read, write

TURNS = [{"content": "to be", "role": "user"}, {"content": "or not", "role": "assistant"}]


def node_of_chatgpt(role: str, parts: list[str]) -> dict[str, Any]:
    content = {"content_type": "text", "parts": parts}
    return {"id": role, "message": {"author": {"role": role}, "content": content}, "parent": "p"}


OF_SYSTEM = node_of_chatgpt("system", [""])
ASKED = node_of_chatgpt("user", ["to be", "or not"])
ANSWERED = node_of_chatgpt("assistant", ["that is"])
MESSAGE = {
    "id": 7,
    "type": "message",
    "from": "Ann",
    "from_id": "user7",
    "text": ["see ", {"type": "link", "text": "example.org"}],
    "text_entities": [{"type": "plain", "text": "see "}, {"type": "link", "text": "example.org"}],
}
JOINED = {"id": 8, "type": "service", "actor": "Bob", "action": "join_group_by_link", "text": ""}
PHOTO = MESSAGE | {"photo": "a.jpg", "text": "", "text_entities": []}
CHAT = {"name": "Walks", "type": "private_group", "id": 1, "messages": [JOINED, MESSAGE, PHOTO]}
OF_TELEGRAM = [("user7", "see "), ("user7", "example.org")]
# The records of a form, in which a list is of lines or rows, and the documents in them.
FORMS: dict[str, tuple[Any, list[tuple[str, str]]]] = {
    "WildChat": (
        [{"conversation_hash": "c", "hashed_ip": "1f", "conversation": TURNS, "turn": 1}],
        [("1f", "to be")],
    ),
    "LMSYS-Chat-1M": ([{"conversation_id": "c7", "conversation": TURNS}], [("c7", "to be")]),
    "ShareGPT": (
        [
            {
                "id": "s7",
                "conversations": [
                    {"from": "human", "value": "hello"},
                    {"from": "gpt", "value": "x"},
                ],
            }
        ],
        [("s7", "hello")],
    ),
    "ChatGPT's export": (
        [
            {"title": "Walks", "mapping": {"4f2": OF_SYSTEM, "9c1": ASKED, "b07": ANSWERED}},
            {"title": "None", "mapping": {"d10": OF_SYSTEM}},
        ],
        [("ann", "to be"), ("ann", "or not")],
    ),
    "Slack's export": (
        [
            {"type": "message", "user": "U07", "text": "good day", "ts": "1767600000.0001"},
            {"type": "huddle", "room": {"id": "R1"}},
        ],
        [("U07", "good day")],
    ),
    "Telegram's export of one chat": (CHAT, OF_TELEGRAM),
    "Telegram's export of all chats": (
        {"about": "…", "contacts": {"list": [{"user_id": 1}]}, "chats": {"list": [CHAT, CHAT]}},
        OF_TELEGRAM * 2,
    ),
    "Discord": (
        {"guild": {"id": "1"}, "messages": [{"id": "2", "author": {"id": "9"}, "content": "hi"}]},
        [("9", "hi")],
    ),
    "Twitter's search": (
        {
            "statuses": [{"id": 1, "user": {"id_str": "9"}, "full_text": "hi"}],
            "search_metadata": {},
        },
        [("9", "hi")],
    ),
}


def options_of(form: str) -> dict[str, Any]:
    page = (ROOT / "docs" / "input.md").read_text(encoding="utf-8")
    (line,) = re.findall(rf"^\| {form}.*\| `(--.*)` \|$", page, re.MULTILINE)
    words = shlex.split(line)
    given = list(zip(words[::2], words[1::2], strict=True))
    options: dict[str, Any] = {name[2:]: value for name, value in given}
    if conditions := [value for name, value in given if name == "--where"]:
        options["where"] = conditions
    return options


@pytest.mark.parametrize("form", FORMS)
def test_a_published_form_is_read_by_the_options_of_the_page(tmp_path, form: str) -> None:
    records, documents = FORMS[form]
    tmp_path = tmp_path / "user=ann"
    tmp_path.mkdir()
    files = [write(tmp_path / "a.json", json.dumps(records, indent=1))]
    if isinstance(records, list):
        files.append(write(tmp_path / "a.jsonl", "".join(f"{json.dumps(x)}\n" for x in records)))
        pq.write_table(pa.Table.from_pylist(records), tmp_path / "a.parquet")
        files.append(tmp_path / "a.parquet")
    for file in files:
        assert read([file], **options_of(form)) == (documents, [])
