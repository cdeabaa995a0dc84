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

from collections.abc import Sequence

import msgspec

from frontend.errors import RequestError
from frontend.rest.problems import problem_code


class AuthFrame(msgspec.Struct, tag_field="type", tag="auth"):
    token: str


class FilterFrame(msgspec.Struct, tag_field="type", tag="filter"):
    tags: list[str]


class CreditFrame(msgspec.Struct, tag_field="type", tag="credit"):
    n: int


class AckFrame(msgspec.Struct, tag_field="type", tag="ack"):
    ids: list[str]


class NackFrame(msgspec.Struct, tag_field="type", tag="nack"):
    ids: list[str]
    delay_seconds: int | None = None
    count: bool = True


class ExtendFrame(msgspec.Struct, tag_field="type", tag="extend"):
    ids: list[str]
    seconds: int


ClientFrame = AuthFrame | FilterFrame | CreditFrame | AckFrame | NackFrame | ExtendFrame

READY = '{"type":"ready"}'
decode_frame = msgspec.json.Decoder(ClientFrame).decode
_encode = msgspec.json.Encoder().encode


def message_frame(message: dict[str, object]) -> str:
    return _encode({"type": "message", **message}).decode()


def lost_frame(receipts: Sequence[str]) -> str:
    return _encode({"type": "lost", "ids": receipts}).decode()


def error_frame(error: RequestError, receipts: Sequence[str] = ()) -> str:
    return _encode({"type": "error", "code": problem_code(error), "detail": error.message, "ids": receipts}).decode()
