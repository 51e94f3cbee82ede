"""Messages of mailboxes (mbox): their senders, and what they wrote, by Python's email package."""

import email
import email.message
import io
import itertools
import re
from collections.abc import Iterator
from email.header import decode_header, make_header
from email.utils import getaddresses

from beam_dpne.reading.files import BrokenText, LineText
from beam_dpne.reading.rejects import NOT_MESSAGE, TOO_LONG

# The fields of a message, of which the first identifies a person.
FIELDS = ("user", "text", "subject")
_BEGIN = b"From "
_QUOTED = ">"
_ESCAPED = re.compile(r"^>(>*From )")


def messages(text: LineText, limit: int) -> Iterator[tuple[int, bytes, str]]:
    """Yields offset, bytes and fault ("" if there is none) of each message.

    A message begins with a line "From " that is the first one of the file or follows a blank line.
    Empty files have none.

    Args:
      text: The text of a mailbox, whose bytes are not decoded.
      limit: Bytes above which a message is too long.

    Raises:
      BrokenText: The first line is another one.
    """
    lines = list[bytes]()
    start = text.offset
    is_after_blank = True
    if not text.head:
        return
    if not text.head.startswith(_BEGIN.decode()):
        raise BrokenText("must begin with a line 'From ', as the messages of a mailbox do.")
    for begin, block in text.blocks(limit):
        offset = begin
        for line in io.BytesIO(block):
            if is_after_blank and line.startswith(_BEGIN) and offset > start:
                yield start, b"".join(lines), _fault(offset - start, limit)
                start = offset
                lines.clear()
            is_after_blank = not line.strip()
            offset += len(line)
            if offset - start <= limit:
                lines.append(line)
    yield start, b"".join(lines), _fault(text.offset - start, limit)


def _fault(size: int, limit: int) -> str:
    return TOO_LONG if size > limit else ""


def record_of(message: bytes) -> tuple[dict[str, object], str]:
    """Returns the fields of a message, and why it cannot be used or "".

    `user` is the address of its only sender in lower case, `text` a list of what the sender wrote,
    and `subject` the text of that header. Each is None if the message has none.
    """
    first, _, rest = message.partition(b"\n")
    try:
        parsed = email.message_from_bytes(rest if first.startswith(_BEGIN) else message)
        subject = parsed["subject"]
        return {
            "user": _sender(parsed),
            "text": _texts(parsed),
            "subject": None if subject is None else _decoded(subject),
        }, ""
    except (ValueError, LookupError, TypeError, RecursionError):
        return {}, NOT_MESSAGE


def _sender(message: email.message.Message) -> str | None:
    """Returns the address of the sender; None without one, and with several ones."""
    headers = [str(header) for header in message.get_all("from", [])]
    addresses = {address.lower() for _, address in getaddresses(headers) if address}
    return addresses.pop() if len(addresses) == 1 else None


def _decoded(header: object) -> str:
    return str(make_header(decode_header(str(header))))


def _texts(message: email.message.Message) -> list[str] | None:
    """Returns the plain text of a message in pieces; None if it has no such part.

    Attachments, forwarded messages and lines that quote another message are left out. Each is a border.
    """
    parts = [part for part in _own_parts(message) if part.get_content_type() == "text/plain"]
    if not parts:
        return None
    found = list[str]()
    for part in parts:
        # Who writes a mailbox puts > before a line that would begin a message.
        lines = [_ESCAPED.sub(r"\1", line) for line in _text_of(part).splitlines()]
        for is_quoted, run in itertools.groupby(lines, _is_quoted):
            own = "\n".join(run).strip()
            if own and not is_quoted:
                found.append(own)
    return found


def _is_quoted(line: str) -> bool:
    return line.startswith(_QUOTED)


def _own_parts(message: email.message.Message) -> Iterator[email.message.Message]:
    """Yields the parts of a message that have no parts; not those of messages within it."""
    if (
        message.get_content_disposition() == "attachment"
        or message.get_content_maintype() == "message"
    ):
        return
    if not message.is_multipart():
        yield message
        return
    for part in message.get_payload():
        if isinstance(part, email.message.Message):
            yield from _own_parts(part)


def _text_of(part: email.message.Message) -> str:
    """Returns the text of a part, in which a sign replaces what cannot be decoded."""
    data = part.get_payload(decode=True)
    if not isinstance(data, bytes):
        return ""
    try:
        return data.decode(part.get_content_charset("utf-8"), "replace")
    except LookupError:
        return data.decode("utf-8", "replace")
