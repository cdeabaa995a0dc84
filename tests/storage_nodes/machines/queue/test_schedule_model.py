"""Scheduled messages against a dictionary: random histories with failovers, lost releases, cancels and purges.

Promises: never before its time; what was cancelled with success never comes; every message comes under one offset,
however many releases were written; nothing is lost; replicas fold to equal bytes, also one that starts over from a
checkpoint.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import QueueConfig
from storage_nodes.protocol.records import decode_body, origin_offset
from tests.storage_nodes.machines.queue.partition import Partition

VISIBILITY_MS = 1_000_000


class ScheduleAgainstModel(RuleBasedStateMachine):
    @initialize(fifo=st.booleans())
    def start(self, fifo: bool) -> None:
        self.partition = Partition(QueueConfig(fifo=fifo))
        self.fifo = fifo
        self.due_ms: dict[int, set[int]] = {}  # where it was sent -> times it may have now
        self.gone: set[int] = set()  # cancelled or purged, acknowledged
        self.perhaps_gone: set[int] = set()  # nobody heard what became of it
        self.places: dict[int, int] = {}  # where it was sent -> where it was delivered from
        self.asked: dict[object, list[tuple[int, int]]] = {}
        self.numbers = iter(range(1_000_000))
        self.checkpoint = (self.partition.follower.checkpoint(), len(self.partition.log))

    @rule(
        count=st.integers(1, 5), delay_ms=st.sampled_from([0, 1, 50, 3_000, 3_000]), group=st.sampled_from([b"a", b"b"])
    )  # fmt: skip
    def schedule(self, count: int, delay_ms: int, group: bytes) -> None:
        due_ms = self.partition.now_ms + delay_ms
        due = b"%d" % due_ms if count % 2 else b"+%d" % delay_ms
        base = self.partition.end
        self.due_ms |= {offset: {due_ms} for offset in range(base, base + count)}
        self.partition.schedule(due, count, group)

    @rule(count=st.integers(1, 3))
    def send(self, count: int) -> None:
        base = self.partition.end
        self.due_ms |= {offset: {0} for offset in range(base, base + count)}
        self.partition.send_keyed(*[(b"a", b"")] * count)

    @rule(data=st.data(), to_ms=st.sampled_from([0, 0, 1, 40, 5_000]))
    def reschedule(self, data: st.DataObject, to_ms: int) -> None:
        if not self.due_ms:
            return
        offsets = data.draw(st.lists(st.sampled_from(sorted(self.due_ms)), min_size=1, max_size=4, unique=True))
        due_ms = self.partition.now_ms + to_ms if to_ms else 0
        token = next(self.numbers)
        self.asked[token] = [(offset, due_ms) for offset in offsets]
        for offset in offsets:
            if due_ms:
                self.due_ms[offset].add(due_ms)
            else:
                self.perhaps_gone.add(offset)
        self.partition.reschedule(token, self.asked[token])

    @rule()
    def purge(self) -> None:
        token = next(self.numbers)
        self.partition.purge(token)
        self.partition.commit()
        self.follow_answers()
        result = self.partition.answers[token]
        assert isinstance(result, tuple)
        if result[0] is ErrorCode.OK:
            self.gone |= set(self.due_ms) - set(self.places)

    @rule(ms=st.sampled_from([1, 60, 2_900, 3_100]))
    def pass_time(self, ms: int) -> None:
        self.partition.pass_ms(ms)

    @rule()
    def commit(self) -> None:
        self.partition.commit()

    @rule(hold=st.booleans())
    def hold_releases(self, hold: bool) -> None:
        self.partition.holds_releases = hold
        if not hold:
            self.partition.run_releases()

    @rule()
    def fail_over(self) -> None:
        self.partition.fail_over()
        if not self.partition.holds_releases:
            self.partition.run_releases()

    @rule()
    def start_over_from_a_checkpoint(self) -> None:
        self.partition.rebuild_follower(*self.checkpoint)
        self.checkpoint = (self.partition.follower.checkpoint(), len(self.partition.log))

    @rule(count=st.integers(1, 20))
    def consume(self, count: int) -> None:
        self._consume(count)

    def _consume(self, count: int) -> int:
        token = next(self.numbers)
        self.partition.acquire(token, count, VISIBILITY_MS)
        self.partition.commit()
        picks = self.partition.delivered.get(token, [])
        for pick in picks:
            headers = decode_body(self.partition.body(pick.offset)).headers
            origin = origin_offset(headers, pick.offset)
            assert self.places.setdefault(origin, pick.offset) == pick.offset, "one message, two places"
            assert origin not in self.gone, "cancelled or purged, and delivered"
            assert min(self.due_ms[origin]) <= self.partition.now_ms, "before its time"
        self.partition.delete(next(self.numbers), [pick[:2] for pick in picks])
        self.partition.commit()
        return len(picks)

    @invariant()
    def follow_answers(self) -> None:
        for token in [token for token in self.asked if token in self.partition.answers]:
            codes = self.partition.answers[token]
            assert isinstance(codes, list)
            for (offset, due_ms), code in zip(self.asked.pop(token), codes, strict=True):
                if code is ErrorCode.OK and due_ms:
                    self.due_ms[offset] = {due_ms}
                elif code is ErrorCode.OK:
                    assert offset not in self.places, "cancelled after it was delivered"
                    self.gone.add(offset)

    @invariant()
    def replicas_agree_and_nothing_scheduled_is_dropped(self) -> None:
        self.partition.check()
        leader = self.partition.leader
        low = leader.low_watermark()
        for offset, due_ms in leader.state.scheduled:
            assert leader.is_live(offset, offset) and offset >= low
            assert offset not in self.gone and due_ms in self.due_ms[offset]

    def teardown(self) -> None:
        if not hasattr(self, "partition"):
            return
        self.partition.commit()
        self.follow_answers()
        self.hold_releases(False)
        self.partition.pass_ms(10_000)
        self.partition.commit()
        while self._consume(20):
            pass
        state = self.partition.leader.state
        assert len(state.scheduled) == 0 and state.fresh_count == 0
        missing = set(self.due_ms) - set(self.places) - self.gone - self.perhaps_gone
        assert not missing, "a message was lost"
        self.partition.check()


ScheduleAgainstModel.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestScheduleAgainstModel = ScheduleAgainstModel.TestCase
