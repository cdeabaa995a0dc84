"""What a later version wrote is not passed over: the state would be another one than where it is known."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from storage_nodes.machines.cluster.machine import ClusterMachine
from storage_nodes.machines.queue.commands import CONTROL_QUEUE_KEY, decode_command
from storage_nodes.machines.stream.machine import CONTROL_STREAM_KEY, StreamMachine
from storage_nodes.machines.unknown_entries import UnknownEntryError
from storage_nodes.protocol.records import encode_body

pack = msgspec.msgpack.encode
LATER_KEY = struct.pack(">hh", 0, 77)
OF_EVERY_LOG = [struct.pack(">hh", 0, 16), struct.pack(">hh", 0, 19)]


def apply_to_stream(body: bytes) -> None:
    header: Any = SimpleNamespace(base_offset=0, last_offset=0, timestamp_ms=5, is_control=True)
    StreamMachine().apply(header, lambda: [(0, body)], 5)


@pytest.mark.parametrize("key", OF_EVERY_LOG)
def test_records_that_stand_in_every_log_are_known(key: bytes) -> None:
    assert decode_command(encode_body(b"", key)) is None
    apply_to_stream(encode_body(b"", key))


def test_control_record_of_a_later_version_is_refused_by_queue_and_stream() -> None:
    body = encode_body(b"", LATER_KEY)
    with pytest.raises(UnknownEntryError, match="later one wrote it"):
        decode_command(body)
    with pytest.raises(UnknownEntryError):
        apply_to_stream(body)


def test_command_of_a_later_version_is_refused_by_every_machine() -> None:
    with pytest.raises(UnknownEntryError, match="command kind 99 of a queue"):
        decode_command(encode_body(pack([99, 1, 1, 5]), CONTROL_QUEUE_KEY))
    with pytest.raises(UnknownEntryError, match="command kind 99 of a stream"):
        apply_to_stream(encode_body(pack([99, 5, b"group"]), CONTROL_STREAM_KEY))
    with pytest.raises(UnknownEntryError, match="a command of the cluster"):
        ClusterMachine().apply(pack(["SetFeatureLevel", 3]))
