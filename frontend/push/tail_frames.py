"""Frames of a live tail: JSON texts.

client -> server   open      ticket, text       first: the ticket that the page was given; the text to look for
                   filter    text               from now on only messages whose body has it; "" = all
                   pause                        do not look; what comes is looked at after `resume`
                   resume
server -> client   live                         looking, from the end of the queue on
                   messages  messages,          the newest ones that were found, in the order of their sends
                             found,             how many were found that match, these included
                             passed             places of the log that were passed over without a look: it moves
                                                faster than a page follows
                   held      detail             nothing is shown for the moment, and why; ends with the next `live`
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from frontend.limits import (
    BROWSER_CONDITION_TEXT_CHARS_MAX,
    TAIL_BODY_CHARS,
)
from frontend.message_browser.filters import EVERYTHING, STATE_WORDS, MessageFilter, check_filter
from frontend.message_browser.view import BrowsedView
from frontend.push.frames import FrameRefused, decode_text_frame


class OpenFrame(msgspec.Struct, tag_field="type", tag="open", forbid_unknown_fields=True):
    ticket: str
    text: str = ""


class TextFrame(msgspec.Struct, tag_field="type", tag="filter", forbid_unknown_fields=True):
    text: str


class PauseFrame(msgspec.Struct, tag_field="type", tag="pause", forbid_unknown_fields=True):
    pass


class ResumeFrame(msgspec.Struct, tag_field="type", tag="resume", forbid_unknown_fields=True):
    pass


TailFrame = OpenFrame | TextFrame | PauseFrame | ResumeFrame

LIVE = '{"type":"live"}'
_TICKET = re.compile(r"pstt_[A-Za-z0-9_-]{43}", re.ASCII)
_WORD_OF = {state: word for word, state in STATE_WORDS.items()}
_decode = msgspec.json.Decoder(TailFrame).decode
_encode = msgspec.json.Encoder().encode


def read_tail_frame(text: str | None) -> TailFrame:
    """None: it was no text. Raises FrameRefused."""
    frame = decode_text_frame(text, _decode)
    if isinstance(frame, OpenFrame) and _TICKET.fullmatch(frame.ticket) is None:
        raise FrameRefused("That is no ticket.")
    return frame


def filter_of_text(text: str) -> MessageFilter:
    """Raises RequestError, FrameRefused."""
    if len(text) > BROWSER_CONDITION_TEXT_CHARS_MAX:
        raise FrameRefused(f"The text has at most {BROWSER_CONDITION_TEXT_CHARS_MAX} characters.")
    return check_filter(MessageFilter(body_contains=text)) if text else EVERYTHING


def tail_messages(shown: Sequence[BrowsedView], found: int, passed: int) -> str:
    messages = [_row(seen) for seen in shown]
    return _encode({"type": "messages", "messages": messages, "found": found, "passed": passed}).decode()


def held_frame(detail: str) -> str:
    return _encode({"type": "held", "detail": detail}).decode()


def _row(seen: BrowsedView) -> dict[str, object]:
    """What a row of the page shows; the message browser shows the rest."""
    row: dict[str, object] = {"state": _WORD_OF[seen.state], "sent_ms": seen.sent_ms, "receive_count": seen.receives}
    content = seen.content
    if content is None:
        return {**row, "unreadable": True}
    row |= {"id": seen.message_id, "body": content.body[:TAIL_BODY_CHARS]}
    if len(content.body) > TAIL_BODY_CHARS:
        row["body_cut_from_chars"] = len(content.body)
    optional = {"group": seen.group, "tag": seen.tag, "sequence_number": seen.sequence_number}
    return row | {name: value for name, value in optional.items() if value is not None}
