"""Mailboxes are read as Python's own reader splits them, and each sender has written what is theirs."""

import contextlib
import gzip
import mailbox
import pathlib
from email.message import EmailMessage

import pytest

from beam_dpne.errors import InputError
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.records import check_fields
from beam_dpne.reading.rejects import NO_TEXT, NO_USER, TOO_LONG
from tests.reading.files import read, write


def mail(sender: str | None, text: str = "", subject: str = "Hi") -> EmailMessage:
    message = EmailMessage()
    if sender is not None:
        message["From"] = sender
    message["Subject"] = subject
    message.set_content(text)
    return message


def of_parts() -> EmailMessage:
    """A message with a page beside its text, a file, and a message of another sender in it."""
    message = mail("Ann Lee <Ann@Example.org>", "Grüße\n> you said so\nand good bye\n")
    message.add_alternative("<p>page</p>", subtype="html")
    message.add_attachment("in a file", filename="a.txt")
    message.add_attachment(mail("bob@example.org", "forwarded words"), disposition="inline")
    return message


def write_box(path: pathlib.Path, messages: list[EmailMessage]) -> pathlib.Path:
    box = mailbox.mbox(path)
    for message in messages:
        box.add(message)
    box.close()
    return path


def test_a_message_is_of_its_sender_without_what_others_wrote(tmp_path) -> None:
    latin = mail("eve@example.org")
    latin.set_content("déjà vu\nFrom here on", charset="iso-8859-1")
    path = write_box(tmp_path / "a.mbox", [of_parts(), latin])
    rows = [
        ("ann@example.org", "Grüße"),
        ("ann@example.org", "and good bye"),
        ("eve@example.org", "déjà vu\nFrom here on"),
    ]
    packed = write(tmp_path / "b.mbox.gz", gzip.compress(path.read_bytes()))
    for file in (path, packed):
        for sizes in ({}, {"block_bytes": 1, "split_bytes": 10}):
            found, rejects = read([file], **sizes)
            assert (found, rejects) == (rows, [])
    assert read([path], text_field="subject")[0] == [
        ("ann@example.org", "Hi"),
        ("eve@example.org", "Hi"),
    ]


def test_messages_are_those_that_python_finds(tmp_path) -> None:
    texts = ["a\n\nFrom x to y\n", "", "b\r\n\r\nc", "From the top\n\n\n", "d\n\n>From z\n"]
    sent = [mail(f"p{n}@example.org", text) for n, text in enumerate(texts)]
    path = write_box(tmp_path / "a.mbox", sent)
    rows, rejects = read([path])
    with contextlib.closing(mailbox.mbox(path)) as box:
        senders = [message["from"] for message in box if str(message.get_payload()).strip()]
    assert [user for user, _ in rows] == senders
    assert rejects == []


def test_messages_that_cannot_be_used_are_rejects_where_they_begin(tmp_path) -> None:
    page = mail("eve@example.org")
    page.set_content("<p>page</p>", subtype="html")
    bad = [mail(None, "a"), mail("a@x.org, b@x.org", "b"), page, mail("bob@x.org", "long " * 999)]
    path = write_box(
        tmp_path / "a.mbox", [mail("ann@x.org", "to be"), *bad, mail("kim@x.org", "bye")]
    )
    for block_bytes in (1, 10**6):
        rows, rejects = read([path], max_record_bytes=1000, block_bytes=block_bytes)
        assert [user for user, _ in rows] == ["ann@x.org", "kim@x.org"]
        assert [reason for *_, reason in rejects] == [NO_USER, NO_USER, NO_TEXT, TOO_LONG]
        data = path.read_bytes()
        assert all(data[at:].startswith(b"From ") for at, *_ in rejects)


def test_what_is_no_mailbox_and_fields_that_it_does_not_have_are_refused(tmp_path) -> None:
    lines = match_inputs([str(write(tmp_path / "a.mbox", '{"user": "ann"}\n'))])
    with pytest.raises(InputError, match="must begin with a line 'From '"):
        check_fields(lines, ReadOptions())
    box = match_inputs([str(write_box(tmp_path / "b.mbox", [mail("ann@x.org", "to be")]))])
    with pytest.raises(InputError, match="It has the fields user, text, subject"):
        check_fields(box, ReadOptions(text_field="body"))


def test_a_line_within_a_paragraph_begins_no_message(tmp_path) -> None:
    """Else its next lines would be those of another sender."""
    text = "to be\nFrom here on\nFrom: bob@x.org\n\nor not\n"
    path = write(tmp_path / "a.mbox", f"From x\nFrom: ann@x.org\n\n{text}")
    assert read([path]) == ([("ann@x.org", text.strip())], [])
