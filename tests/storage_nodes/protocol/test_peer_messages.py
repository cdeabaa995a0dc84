"""Messages between nodes whose numbers no log can hold are malformed: nobody acts on them."""

from __future__ import annotations

import msgspec
import pytest

from storage_nodes.protocol.messages import encode_message
from storage_nodes.protocol.peer_messages import (
    EPOCH_MAX,
    OFFSET_MAX,
    AppendEntries,
    AppendReply,
    RaftFrame,
    RaftMessage,
    SnapshotChunk,
    SnapshotReply,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)

MESSAGES: list[RaftMessage] = [
    AppendEntries(1, 2, 2, 3, 4, []),
    AppendReply(1, 2, True, 3),
    VoteRequest(1, 2, 2, 3),
    VoteReply(1, 2, True),
    TimeoutNow(1, 2),
    SnapshotChunk(1, 2, 3, 2, 0, b"", [], False, [1], [0]),
    SnapshotReply(1, 2, 3, 0),
]
EPOCHS = {"epoch", "prev_epoch", "last_epoch", "conflict_epoch"}
OFFSETS = {"prev_offset", "commit", "replicated", "offset", "log_end", "end_offset", "configuration_end"}
FIELDS = [
    (message, name, EPOCH_MAX if name in EPOCHS else OFFSET_MAX)
    for message in MESSAGES
    for name in message.__struct_fields__
    if name in EPOCHS | OFFSETS
]

assert (EPOCH_MAX, OFFSET_MAX) == (2**31 - 1, 2**63 - 1), "as wide as their fields in the log"

read = msgspec.msgpack.Decoder(RaftFrame).decode


def told(message: RaftMessage) -> RaftMessage:
    (heard,) = read(encode_message(RaftFrame(1, [message]))).messages
    return heard


@pytest.mark.parametrize(
    ("message", "name", "largest"), FIELDS, ids=[f"{type(message).__name__}.{name}" for message, name, _ in FIELDS]
)
def test_epochs_and_offsets_are_those_that_a_log_can_hold(message: RaftMessage, name: str, largest: int) -> None:
    for value in (0, largest):
        fitting = msgspec.structs.replace(message, **{name: value})
        assert told(fitting) == fitting
    for value in (-1, largest + 1):
        with pytest.raises(msgspec.DecodeError):
            told(msgspec.structs.replace(message, **{name: value}))


def test_boundaries_of_a_snapshot_are_checked_one_by_one() -> None:
    chunk = MESSAGES[5]
    for change in ({"epochs": [1, EPOCH_MAX + 1]}, {"epochs": [-1]}, {"starts": [0, -1]}, {"starts": [OFFSET_MAX + 1]}):
        with pytest.raises(msgspec.DecodeError):
            told(msgspec.structs.replace(chunk, **change))
