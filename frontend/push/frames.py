"""Frames of the push protocol: JSON texts.

    client -> server   auth     token                     first, unless the upgrade carried Authorization
                       filter   tags                      only messages with one of these; before the first credit.
                                                          One that is refused, now or later, ends the subscription
                       credit   n                         n more messages may be sent
                       ack      ids                       delete
                       nack     ids, delay_seconds,       give back, visible after the delay, or the pause of the
                                count                     queue's retry policy; count false: the receive does not count
                       extend   ids, seconds              hold for at least that long
    server -> client   ready                              authenticated; credit may be given
                       message  id, receipt, body, ...    costs one credit
                       lost     ids                       leases that could not be renewed
                       error    code, detail, ids

`ids` are the receipts of messages. Leases are renewed without being asked while the connection lives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from frontend.errors import RequestError
from frontend.limits import SOCKET_FRAME_BYTES_MAX
from frontend.messages.receive import Received
from frontend.parameters import shortened
from frontend.rest.message_form import MessageRow, message_row
from frontend.rest.problems import in_members, problem_code
from frontend.strict_json import RepeatedMember, TooManyValues, check_members, check_values


class AuthFrame(msgspec.Struct, tag_field="type", tag="auth", forbid_unknown_fields=True):
    token: str


class FilterFrame(msgspec.Struct, tag_field="type", tag="filter", forbid_unknown_fields=True):
    tags: list[str]


class CreditFrame(msgspec.Struct, tag_field="type", tag="credit", forbid_unknown_fields=True):
    n: int


class AckFrame(msgspec.Struct, tag_field="type", tag="ack", forbid_unknown_fields=True):
    ids: list[str]


class NackFrame(msgspec.Struct, tag_field="type", tag="nack", forbid_unknown_fields=True):
    ids: list[str]
    delay_seconds: int | None = None
    count: bool = True


class ExtendFrame(msgspec.Struct, tag_field="type", tag="extend", forbid_unknown_fields=True):
    ids: list[str]
    seconds: int


ClientFrame = AuthFrame | FilterFrame | CreditFrame | AckFrame | NackFrame | ExtendFrame

Frame = TypeVar("Frame")

READY = '{"type":"ready"}'
_decode = msgspec.json.Decoder(ClientFrame).decode
_encode = msgspec.json.Encoder().encode


def read_frame(text: str | None) -> ClientFrame:
    """None: it was no text. Raises FrameRefused."""
    return decode_text_frame(text, _decode)


def decode_text_frame(text: str | None, decode: Callable[[bytes], Frame]) -> Frame:
    """A frame of any wire whose frames are JSON texts, as its typed decoder reads it. Raises FrameRefused."""
    if text is None:
        raise FrameRefused("Frames are texts.")
    raw = text.encode(errors="replace")
    if len(raw) > SOCKET_FRAME_BYTES_MAX:
        raise FrameRefused("The frame is too long.")
    try:
        check_values(raw)
        frame = decode(raw)
        check_members(raw)
    except TooManyValues as error:
        raise FrameRefused(f"The frame is not taken: {error}.") from None
    except RepeatedMember as error:
        raise FrameRefused(f"The frame names {shortened(error.name)!r} twice.") from None
    except msgspec.ValidationError as error:
        raise FrameRefused(f"A member of the frame is not known or wrong: {error}") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise FrameRefused("The frame is not valid JSON.") from None
    return frame


class FrameRefused(Exception):
    """A frame that ends its subscription, and why."""


class _MessageFrame(MessageRow, tag_field="type", tag="message", gc=False):
    """Of one message."""


def message_frame(message: Received) -> str:
    return _encode(message_row(message, _MessageFrame)).decode()


def lost_frame(receipts: Sequence[str]) -> str:
    return _encode({"type": "lost", "ids": receipts}).decode()


def error_frame(error: RequestError, receipts: Sequence[str] = ()) -> str:
    told = {"type": "error", "code": problem_code(error), "detail": in_members(error.message), "ids": receipts}
    return _encode(told).decode()
