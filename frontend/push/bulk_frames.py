"""Frames of the bulk socket: JSON texts, or msgpack in binary frames, by the subprotocol of the upgrade.

    client -> server   publish   seq, messages, acks, ids   store up to BULK_MESSAGES_MAX messages; seq is repeated
                                                            by the confirm
                       filter    tags                       as of a subscription
                       credit    n                          n more messages may be sent
                       ack       ranges                     delete
                       nack      ranges, delay_seconds,     as of a subscription
                                 count
    server -> client   ready     messages_max, bytes_max,   what the client must keep to
                                 credit_max, publishes_max
                       confirm   seq, failed, sent          stored, but for those in `failed` (index, error); `sent`
                                                            tells ids where `ids` asked for them
                       refuse    seq, code, detail,         nothing of this publish was stored
                                 retry_after_s
                       messages  first, messages            the number of the first; the next ones follow
                       lost      ranges                     leases that could not be renewed
                       error     code, detail, ranges

`ranges` are pairs [first, last] of numbers of messages, both included. Confirms may come in another order than the
publishes went. A confirm of a FIFO queue says where the order broke: nothing of a group is stored behind its first
failure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from frontend.errors import RequestError
from frontend.limits import BULK_BYTES_MAX, BULK_MESSAGES_MAX, SOCKET_LEASES_MAX, SOCKET_PUBLISHES_MAX
from frontend.messages.receive import Received
from frontend.parameters import shortened
from frontend.push.frames import CreditFrame, FilterFrame, FrameRefused
from frontend.rest.message_form import MessageJson, message_json
from frontend.rest.problems import in_members, problem_code
from frontend.strict_json import RepeatedMember, TooManyValues, check_members, check_values
from frontend.strict_msgpack import MsgpackRefused, check_msgpack

Ranges = list[tuple[int, int]]


class PublishFrame(msgspec.Struct, tag_field="type", tag="publish", forbid_unknown_fields=True):
    seq: int
    messages: list[MessageJson]
    acks: str | None = None
    ids: bool = False


class AckRangesFrame(msgspec.Struct, tag_field="type", tag="ack", forbid_unknown_fields=True):
    ranges: Ranges


class NackRangesFrame(msgspec.Struct, tag_field="type", tag="nack", forbid_unknown_fields=True):
    ranges: Ranges
    delay_seconds: int | None = None
    count: bool = True


BulkFrame = PublishFrame | FilterFrame | CreditFrame | AckRangesFrame | NackRangesFrame
_decode_json = msgspec.json.Decoder(BulkFrame).decode
_decode_msgpack = msgspec.msgpack.Decoder(BulkFrame).decode
_encode_json = msgspec.json.Encoder().encode
_encode_msgpack = msgspec.msgpack.Encoder().encode


class BulkForm(NamedTuple):
    """`is_text`: frames are texts."""

    subprotocol: str
    is_text: bool
    decode: Callable[[bytes], BulkFrame]
    encode: Callable[[object], bytes]


def _read_json(raw: bytes) -> BulkFrame:
    check_values(raw)
    frame: BulkFrame = _decode_json(raw)
    check_members(raw)
    return frame


def _read_msgpack(raw: bytes) -> BulkFrame:
    check_msgpack(raw)
    frame: BulkFrame = _decode_msgpack(raw)
    return frame


JSON_FRAMES = BulkForm("penstock.bulk.json", True, _read_json, _encode_json)
MSGPACK_FRAMES = BulkForm("penstock.bulk.msgpack", False, _read_msgpack, _encode_msgpack)
FORMS = {form.subprotocol: form for form in (MSGPACK_FRAMES, JSON_FRAMES)}


def read_bulk_frame(form: BulkForm, raw: bytes) -> BulkFrame:
    """Raises FrameRefused."""
    if len(raw) > BULK_BYTES_MAX:
        raise FrameRefused("The frame is too long.")
    try:
        return form.decode(raw)
    except RepeatedMember as error:
        raise FrameRefused(f"The frame names {shortened(error.name)!r} twice.") from None
    except TooManyValues as error:
        raise FrameRefused(f"The frame is not taken: {error}.") from None
    except MsgpackRefused as error:
        raise FrameRefused(f"The frame is not taken as msgpack: {error}.") from None
    except msgspec.ValidationError as error:
        raise FrameRefused(f"A member of the frame is not known or wrong: {error}") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise FrameRefused(f"The frame is not valid {'JSON' if form.is_text else 'msgpack'}.") from None


def ready() -> dict[str, object]:
    return {
        "type": "ready",
        "messages_max": BULK_MESSAGES_MAX,
        "bytes_max": BULK_BYTES_MAX,
        "credit_max": SOCKET_LEASES_MAX,
        "publishes_max": SOCKET_PUBLISHES_MAX,
    }


def messages(first: int, received: Sequence[Received]) -> dict[str, object]:
    return {"type": "messages", "first": first, "messages": [_without_receipt(one) for one in received]}


def confirm(seq: int, failed: Sequence[dict[str, object]], sent: Sequence[object] | None) -> dict[str, object]:
    answer: dict[str, object] = {"type": "confirm", "seq": seq, "failed": failed}
    if sent is not None:
        answer["sent"] = sent
    return answer


def refuse(seq: int, error: RequestError) -> dict[str, object]:
    return {"type": "refuse", "seq": seq, **_told(error), "retry_after_s": error.retry_after_s}


def lost(numbers: Sequence[int]) -> dict[str, object]:
    return {"type": "lost", "ranges": ranges_of(numbers)}


def error(refused: RequestError, numbers: Sequence[int]) -> dict[str, object]:
    return {"type": "error", **_told(refused), "ranges": ranges_of(numbers)}


def ranges_of(numbers: Sequence[int]) -> list[list[int]]:
    """Numbers in any order, each once, as pairs of the first and the last of those that follow each other."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] + 1 == number:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ranges


def _without_receipt(received: Received) -> dict[str, object]:
    """The client knows it by its number."""
    shown = message_json(received)
    del shown["receipt"]
    return shown


def _told(refused: RequestError) -> dict[str, object]:
    return {"code": problem_code(refused), "detail": in_members(refused.message)}
