"""The stream machine: waiting readers, retention by time and bytes, equal folds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_nodes.limits import RETENTION_MS_MIN, WAITERS_PER_PARTITION_MAX
from storage_nodes.log.record_batch import BatchHeader, build_batch, iterate_bodies, read_header
from storage_nodes.machines.driver_contract import CheckpointError, Propose, Refuse
from storage_nodes.machines.stream.effects import ReadNow, StreamAnswer
from storage_nodes.machines.stream.machine import StreamMachine
from storage_nodes.machines.stream.retention import MARK_BYTES_MIN, MARKS_MAX, Marks
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import Empty
from storage_nodes.protocol.records import encode_body

NOW_MS = 1_700_000_000_000


class Stream:
    """One log folded by a leader and a follower."""

    def __init__(self, retention_ms: int = RETENTION_MS_MIN, retention_bytes: int = 0) -> None:
        self.now_ms = NOW_MS
        self.end = 0
        self.leader = StreamMachine(retention_ms, retention_bytes)
        self.follower = StreamMachine(retention_ms, retention_bytes)
        self.effects: list[object] = list(self.leader.lead(NOW_MS))

    def append(self, bodies: list[bytes], control: bool = False) -> int:
        batch = build_batch(self.end, 1, self.now_ms, bodies, control=control, plain=True)
        header = read_header(batch)
        self.end = header.end_offset
        assert self.follower.apply(header, lambda: list(iterate_bodies(batch)), 0) == []
        self.effects += self.leader.apply(header, lambda: list(iterate_bodies(batch)), self.now_ms)
        return header.base_offset

    def send(self, count: int = 1, size_bytes: int = 10) -> int:
        return self.append([encode_body(b"x" * size_bytes)] * count)

    def send_claiming(self, size_bytes: int) -> None:
        """A data batch of a large size, without building it: the fold reads the header only."""
        header = BatchHeader(self.end, size_bytes, 1, 0x108, self.end, self.now_ms, 1)
        self.end += 1
        for machine in (self.leader, self.follower):
            machine.apply(header, lambda: pytest.fail("records were asked for"), self.now_ms)

    def pass_ms(self, ms: int) -> None:
        self.now_ms += ms
        due_ms = self.leader.next_tick_ms()
        if due_ms and due_ms <= self.now_ms:
            self.effects += self.leader.tick(self.now_ms)
        if Propose() in self.effects:
            self.effects.remove(Propose())
            self.append(self.leader.take_commands(self.now_ms), control=True)


def test_read_of_what_is_there_is_answered_at_once() -> None:
    stream = Stream()
    stream.send(3)
    assert stream.leader.read("r", 1, NOW_MS + 1_000, NOW_MS) == [ReadNow("r", 1)]
    assert stream.leader.read("s", 3, 0, NOW_MS) == [ReadNow("s", 3)], "at the end, without waiting: an empty answer"


def test_parked_readers_wake_in_order_when_messages_arrive_and_not_for_commands() -> None:
    stream = Stream()
    stream.send()
    assert stream.leader.read("a", 1, NOW_MS + 5_000, NOW_MS) == []
    assert stream.leader.read("b", 1, NOW_MS + 1_000, NOW_MS) == []
    stream.append([encode_body(b"", b"\x00\x00\x00\x10")], control=True)
    assert stream.effects == []
    stream.send()
    assert stream.effects == [ReadNow("a", 1), ReadNow("b", 1)]
    assert stream.leader.cancel("a") == []


def test_parked_reader_at_its_deadline_is_told_to_read_what_there_is() -> None:
    stream = Stream()
    stream.leader.read("late", 0, NOW_MS + 5_000, NOW_MS)
    stream.leader.read("gone", 0, NOW_MS + 500, NOW_MS)
    stream.leader.read("soon", 0, NOW_MS + 1_000, NOW_MS)
    assert stream.leader.cancel("gone") == [Refuse("gone", ErrorCode.CANCELLED, "given up by the caller")]
    assert stream.leader.next_tick_ms() == NOW_MS + 1_000
    assert stream.leader.tick(NOW_MS + 999) == []
    assert stream.leader.tick(NOW_MS + 1_000) == [ReadNow("soon", 0)]
    assert stream.leader.next_tick_ms() == NOW_MS + 5_000


@pytest.mark.parametrize("offset", [-1, 4])
def test_read_outside_the_log_is_refused(offset: int) -> None:
    stream = Stream()
    stream.send(3)
    (effect,) = stream.leader.read("r", offset, NOW_MS + 1_000, NOW_MS)
    assert isinstance(effect, Refuse) and effect.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_readers_beyond_the_limit_are_refused() -> None:
    stream = Stream()
    for number in range(WAITERS_PER_PARTITION_MAX):
        assert stream.leader.read(number, 0, NOW_MS + 1, NOW_MS) == []
    (effect,) = stream.leader.read("one more", 0, NOW_MS + 1, NOW_MS)
    assert isinstance(effect, Refuse) and effect.code == ErrorCode.OVERLOADED


def test_follow_refuses_readers_and_unanswered_commands() -> None:
    stream = Stream()
    stream.leader.read("r", 0, NOW_MS + 1_000, NOW_MS)
    stream.leader.configure("taken", RETENTION_MS_MIN)
    stream.leader.take_commands(NOW_MS)
    stream.leader.configure("staged", RETENTION_MS_MIN)
    codes = {e.token: e.code for e in stream.leader.follow() if isinstance(e, Refuse)}
    unknown = ErrorCode.OUTCOME_UNKNOWN
    assert codes == {"r": ErrorCode.NOT_LEADER, "taken": unknown, "staged": unknown}
    (effect,) = stream.leader.read("r", 0, NOW_MS + 1_000, NOW_MS)
    assert isinstance(effect, Refuse) and effect.code == ErrorCode.NOT_LEADER


def test_retention_by_time_moves_the_log_start_on_every_replica() -> None:
    stream = Stream()
    stream.send(5)
    stream.pass_ms(RETENTION_MS_MIN // 2)
    young = stream.send(5)
    stream.pass_ms(RETENTION_MS_MIN // 2 + 1)
    assert stream.leader.log_start == stream.follower.log_start == young
    (effect,) = stream.leader.read("r", young - 1, 0, NOW_MS)
    assert isinstance(effect, Refuse) and effect.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert stream.leader.is_live(young - 5, young) and not stream.leader.is_live(0, young - 1)
    assert stream.leader.low_watermark() == young
    assert stream.leader.checkpoint() == stream.follower.checkpoint()


def test_retention_of_an_idle_stream_empties_it_and_lets_it_sleep() -> None:
    stream = Stream()
    stream.send(5)
    stream.pass_ms(RETENTION_MS_MIN + 1_000)
    assert stream.leader.log_start == 5
    assert stream.leader.next_tick_ms() == 0 or stream.leader.tick(stream.leader.next_tick_ms()) == []
    assert stream.leader.next_tick_ms() == 0


def test_retention_by_bytes_keeps_at_least_the_limit() -> None:
    limit_bytes = 10 * MARK_BYTES_MIN
    stream = Stream(retention_ms=10**9, retention_bytes=limit_bytes)
    for _ in range(30):
        stream.send_claiming(MARK_BYTES_MIN)
    stream.pass_ms(10**7)
    kept = 30 - stream.leader.log_start
    assert kept in (10, 11)
    assert stream.leader.checkpoint() == stream.follower.checkpoint()


def test_configure_is_committed_and_answered() -> None:
    stream = Stream()
    stream.effects += stream.leader.configure("c", 2 * RETENTION_MS_MIN, 77)
    assert not [e for e in stream.effects if isinstance(e, StreamAnswer)]
    stream.pass_ms(1)
    assert stream.effects == [StreamAnswer("c", Empty())]
    assert (stream.follower.retention_ms, stream.follower.retention_bytes) == (2 * RETENTION_MS_MIN, 77)
    (effect,) = stream.leader.configure("d", 1)
    assert isinstance(effect, Refuse) and effect.code == ErrorCode.INVALID_REQUEST


def test_marks_stay_bounded_and_keep_all_bytes() -> None:
    marks = Marks()
    for number in range(10 * MARKS_MAX):
        marks.add(number, number, NOW_MS, MARK_BYTES_MIN, RETENTION_MS_MIN)
    assert len(marks.marks) <= MARKS_MAX
    assert marks.total_bytes == 10 * MARKS_MAX * MARK_BYTES_MIN == sum(mark.size_bytes for mark in marks.marks)
    assert [m.first_offset for m in marks.marks[1:]] == [m.last_offset + 1 for m in marks.marks[:-1]]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 3 * MARK_BYTES_MIN), st.integers(0, RETENTION_MS_MIN // 3)), max_size=60),
    st.integers(0, 60),
    st.sampled_from([0, 8 * MARK_BYTES_MIN]),
)
def test_restored_machine_folds_on_as_if_it_had_never_stopped(
    steps: list[tuple[int, int]], stop_at: int, retention_bytes: int
) -> None:
    stream = Stream(retention_bytes=retention_bytes)
    log_start = 0
    for number, (size_bytes, wait_ms) in enumerate(steps):
        if number == stop_at:
            restored = StreamMachine()
            restored.restore(stream.follower.checkpoint())
            stream.follower = restored
        stream.send_claiming(size_bytes)
        stream.pass_ms(wait_ms)
        assert log_start <= stream.leader.log_start <= stream.leader.log_end == stream.end
        log_start = stream.leader.log_start
    assert stream.leader.checkpoint() == stream.follower.checkpoint()


@pytest.mark.parametrize("blob", [b"", b"\x91\x01", b"\x90", b"\x98\x02\x00\x00\x00\x00\x00\x00\x90"])
def test_checkpoint_that_is_none_is_refused(blob: bytes) -> None:
    with pytest.raises(CheckpointError):
        StreamMachine().restore(blob)


def test_first_command_that_may_use_a_higher_level_raises_the_partition_and_checkpoints_say_so() -> None:
    stream = Stream()
    assert stream.leader.take_commands(NOW_MS, 2) == [], "an idle stream writes nothing"
    before = stream.leader.checkpoint()
    stream.leader.configure("c", RETENTION_MS_MIN)
    bodies = stream.leader.take_commands(NOW_MS, 2)
    assert len(bodies) == 2
    stream.leader.configure("d", RETENTION_MS_MIN)
    assert len(stream.leader.take_commands(NOW_MS, 2)) == 1, "it is on its way"
    stream.append(bodies, control=True)
    assert (stream.leader.level, stream.follower.level) == (2, 2)
    again = StreamMachine()
    again.restore(stream.leader.checkpoint())
    assert again.level == 2 and again.checkpoint() == stream.leader.checkpoint()
    again.restore(before)
    assert again.level == 1
