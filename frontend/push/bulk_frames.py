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

import contextlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from frontend.errors import RequestError
from frontend.limits import BULK_BYTES_MAX, BULK_MESSAGES_MAX, SOCKET_LEASES_MAX, SOCKET_PUBLISHES_MAX
from frontend.messages.receive import Received
from frontend.parameters import shortened
from frontend.push.frames import CreditFrame, FilterFrame, FrameRefused
from frontend.rest.message_form import MessageJson, message_row
from frontend.rest.problems import in_members, problem_code
from frontend.strict_json import RepeatedMember, TooManyValues, check_members, check_values
from frontend.strict_msgpack import MsgpackRefused, check_msgpack

Ranges = list[tuple[int, int]]


class PublishFrame(
    msgspec.Struct, tag_field="type", tag="publish", forbid_unknown_fields=True, omit_defaults=True, gc=False
):
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
# First bytes of containers that may claim more than 15 elements.
_ARRAY_16, *_LARGER = b"\xdc", b"\xdd", b"\xde", b"\xdf"


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
    frame: BulkFrame
    if _is_small(raw):
        with contextlib.suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            frame = _decode_msgpack(raw)
            # What is written again as it was read is strict: it names no member twice, claims and adds nothing.
            if _encode_msgpack(frame) == raw:
                return frame
    check_msgpack(raw)
    frame = _decode_msgpack(raw)
    return frame


def _is_small(raw: bytes) -> bool:
    """Whether no container claims more than 15 elements, but for one array of BULK_MESSAGES_MAX at most: a decoder
    makes few values of that. A text that holds one of these bytes is taken for a container."""
    at = raw.find(_ARRAY_16)
    if at >= 0:
        claimed = int.from_bytes(raw[at + 1 : at + 3], "big")
        if claimed > BULK_MESSAGES_MAX or raw.find(_ARRAY_16, at + 3) >= 0:
            return False
    return not any(first in raw for first in _LARGER)


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
    """They have no receipts: the client knows them by their numbers."""
    return {"type": "messages", "first": first, "messages": [message_row(one) for one in received]}


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


def _told(refused: RequestError) -> dict[str, object]:
    return {"code": problem_code(refused), "detail": in_members(refused.message)}
