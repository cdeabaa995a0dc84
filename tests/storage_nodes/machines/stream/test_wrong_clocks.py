"""Retention of a stream when clocks are wrong: only what is too old by most clocks, too, is trimmed."""

from __future__ import annotations

import pytest

from storage_nodes.limits import RETENTION_MS_MIN
from storage_nodes.log.record_batch import build_batch, iterate_bodies, read_header
from storage_nodes.machines.stream.machine import StreamMachine
from storage_nodes.model import AHEAD_UNKNOWN
from storage_nodes.protocol.records import encode_body

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


class Log:
    def __init__(self) -> None:
        self.machine = StreamMachine(RETENTION_MS_MIN)
        self.end = 0
        self.machine.lead(NOW_MS)

    def append(self, bodies: list[bytes], stamp_ms: int, control: bool = False) -> None:
        batch = build_batch(self.end, 1, stamp_ms, bodies, control=control)
        self.end += len(bodies)
        self.machine.apply(read_header(batch), lambda: iterate_bodies(batch), stamp_ms)

    def tick(self, now_ms: int) -> int:
        """Where the log starts then."""
        self.machine.tick(now_ms)
        commands = self.machine.take_commands(now_ms)
        if commands:
            self.append(commands, now_ms, control=True)
        return self.machine.log_start


@pytest.mark.parametrize("ahead_ms", [DAY_MS, AHEAD_UNKNOWN])
def test_stream_is_not_trimmed_by_a_time_that_most_clocks_do_not_say(ahead_ms: int) -> None:
    log = Log()
    log.append([encode_body(b"m")], NOW_MS)
    now_ms = NOW_MS + DAY_MS
    log.machine.clocks_say(ahead_ms)
    assert log.tick(now_ms) == 0
    assert log.tick(now_ms + RETENTION_MS_MIN // 2) == 0
    log.machine.clocks_say(0)
    assert log.tick(now_ms + RETENTION_MS_MIN) == 1


def test_stream_is_trimmed_once_most_clocks_are_there() -> None:
    log = Log()
    log.append([encode_body(b"m")], NOW_MS)
    log.machine.clocks_say(DAY_MS)
    assert log.tick(NOW_MS + DAY_MS + RETENTION_MS_MIN - 1) == 0
    assert log.tick(NOW_MS + DAY_MS + 2 * RETENTION_MS_MIN) == 1
