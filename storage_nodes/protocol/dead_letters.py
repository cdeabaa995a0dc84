"""The copy of a message for a dead-letter queue: made by the storage node that saw it die, or by who moves it there.

Both name the place where the message lay, so that a message which both move is there once.
"""

from __future__ import annotations

import msgspec

from storage_nodes.protocol.messages import DeadSource, encode_message
from storage_nodes.protocol.records import (
    HEADER_DEAD_SOURCE,
    HEADER_DEDUP,
    HEADER_DELAY_MS,
    HEADER_DUE,
    HEADER_RELEASED,
    Record,
    RecordError,
    decode_body,
    encode_body,
    origin_offset,
)
from storage_nodes.protocol.usage import moved_key

# What a JSON number holds exactly: far beyond every offset, time and id.
NUMBER_MAX = 2**53
_decode_source = msgspec.msgpack.Decoder(DeadSource).decode
_REPLACED_HEADERS = (HEADER_DELAY_MS, HEADER_DUE, HEADER_RELEASED, HEADER_DEDUP, HEADER_DEAD_SOURCE)


def copy_of_dead(source: DeadSource, body: bytes) -> bytes:
    """The message as it is sent to the dead-letter queue: size, value and group as they are, and its source."""
    try:
        record = decode_body(body)
    except RecordError:
        record = Record(None, body, ())  # what a client sent as plain and is not: kept as it is
    headers = [header for header in record.headers if header[0] not in _REPLACED_HEADERS]
    try:
        # The place that gave a scheduled message its id is where it was scheduled.
        origin = origin_offset(record.headers, source.offset)
    except RecordError:
        origin = source.offset
    source = msgspec.structs.replace(source, offset=origin, place=source.offset)
    headers.append((HEADER_DEAD_SOURCE, encode_message(source)))
    return encode_body(record.value, moved_key(record.key), headers)


def is_possible_source(content: bytes) -> bool:
    """Whether each number of a HEADER_DEAD_SOURCE can be what it says: folds keep them, and checkpoints pack them. One
    that does not parse says nothing, and is no source."""
    try:
        source = _decode_source(content)
    except msgspec.DecodeError:
        return True
    numbers = (getattr(source, name) for name in source.__struct_fields__ if name != "note")
    return all(-1 <= number <= NUMBER_MAX for number in numbers)
