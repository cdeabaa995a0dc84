"""The FIFO machine against a naive queue: random histories with failovers and restores, checked after every entry.

Promises (docs/storage/fifo_queues.md; R25, R26, R28, R30, I8, I9): order within groups, one open lease a group, one
message per deduplication id and window, nothing lost, nothing delivered that is not committed, equal replicas however
they came to be.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from storage_nodes.limits import RETENTION_MS_DEFAULT
from storage_nodes.machines.queue.commands import NACKED, UNSEEN, uncounted
from storage_nodes.machines.queue.effects import Deliver
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import QueueConfig
from tests.storage_nodes.machines.queue.naive_fifo import NaiveFifo
from tests.storage_nodes.machines.queue.partition import RETRY_FIELDS, Partition

WINDOW_MS = 8_000
GROUPS = st.sampled_from([b"a", b"b", b"c", b"d"])
RETRIES = st.sampled_from(RETRY_FIELDS)
IDS = st.one_of(st.just(b""), st.integers(0, 12).map(lambda number: b"id-%d" % number))


class FifoAgainstModel(RuleBasedStateMachine):
    @initialize(
        in_flight_max=st.sampled_from([4, 1_000]), fetch_batches_max=st.integers(1, 4),
        retention_ms=st.sampled_from([5_000, RETENTION_MS_DEFAULT]), max_receives=st.sampled_from([0, 0, 1, 3]),
        retry=RETRIES, parks=st.booleans(),
    )  # fmt: skip
    def start(
        self, in_flight_max: int, fetch_batches_max: int, retention_ms: int, max_receives: int, retry: tuple[int, ...],
        parks: bool,
    ) -> None:  # fmt: skip
        target = 7 if max_receives else 0
        policies = (False, *(retry or (0, 0, 0, 0)), parks)
        self.config = QueueConfig(retention_ms, in_flight_max, True, WINDOW_MS, max_receives, target, *policies)
        self.partition = Partition(self.config, fetch_batches_max)
        self.naive = NaiveFifo(self.config)
        self.folded = 0
        self.receipts: list[tuple[int, int]] = []
        self.numbers = iter(range(1_000_000))
        self.seen_effects = 0
        self.saved: tuple[bytes, int] = (self.partition.leader.checkpoint(), len(self.partition.log))

    # --- rules --------------------------------------------------------------------------------------------------

    @rule(
        messages=st.lists(st.tuples(GROUPS, IDS), min_size=1, max_size=12),
        delay_ms=st.sampled_from([0, 0, 0, 1_500]),
    )
    def send(self, messages: list[tuple[bytes, bytes]], delay_ms: int) -> None:
        self.partition.send_keyed(*messages, delay_ms=delay_ms)

    @rule(
        count=st.integers(1, 10), visibility_ms=st.sampled_from([0, 1, 2_000, 30_000]),
        wait_ms=st.sampled_from([0, 0, 5_000]), attempt=st.sampled_from([b"", b"", b"x", b"y"]),
    )  # fmt: skip
    def acquire(self, count: int, visibility_ms: int, wait_ms: int, attempt: bytes) -> None:
        self.partition.acquire(next(self.numbers), count, visibility_ms, wait_ms, attempt)

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        if self.receipts:
            self._delete(data.draw(st.lists(st.sampled_from(self.receipts), min_size=1, max_size=8)))

    @rule()
    def delete_newest(self) -> None:
        if self.receipts:
            self._delete(self.receipts[-10:])

    @rule(offset=st.integers(0, 200))
    def delete_garbage(self, offset: int) -> None:
        self._delete([(offset, 1)])

    @rule(offsets=st.lists(st.integers(0, 200), min_size=1, max_size=6, unique=True), moved=st.booleans())
    def remove(self, offsets: list[int], moved: bool) -> None:
        """Whatever stands there, leased or not; control records and what is gone among it."""
        token = next(self.numbers)
        self.partition.remove(token, offsets, moved)
        self.partition.commit()
        if token in self.partition.refused:
            assert self.partition.refused[token].code is ErrorCode.OVERLOADED and self.partition.moves
            return
        self.observe()
        assert self.partition.answers[token] == self.naive.removed_codes
        assert not set(offsets) & self.naive.messages.keys(), "acknowledged, and still there"

    @rule(offsets=st.lists(st.integers(0, 200), min_size=1, max_size=6, unique=True))
    def remove_later(self, offsets: list[int]) -> None:
        self.partition.remove(next(self.numbers), offsets)

    def _delete(self, receipts: list[tuple[int, int]]) -> None:
        token = next(self.numbers)
        self.partition.delete(token, receipts)
        self.partition.commit()
        codes = self.partition.answers.get(token)
        assert isinstance(codes, list) and len(codes) == len(receipts)
        self.observe()
        for code, expected in zip(codes, self.naive.delete_codes, strict=True):
            assert expected is None or code is expected
        done = {offset for (offset, _), code in zip(receipts, codes, strict=True) if code is ErrorCode.OK}
        assert not done & self.naive.messages.keys(), "acknowledged, and still there"

    @rule(data=st.data(), visibility_ms=st.sampled_from([0, 10, 20_000, NACKED, UNSEEN, uncounted(0), uncounted(10)]))
    def change(self, data: st.DataObject, visibility_ms: int) -> None:
        if self.receipts:
            offset, delivery = data.draw(st.sampled_from(self.receipts[-20:]))
            self.partition.change(next(self.numbers), [(offset, delivery, visibility_ms)])

    @rule()
    def purge(self) -> None:
        self.partition.purge(next(self.numbers))

    @rule(ms=st.sampled_from([1, 500, 2_500, 4_000, 8_001]))
    def pass_time(self, ms: int) -> None:
        self.partition.pass_ms(ms)

    @rule()
    def commit(self) -> None:
        self.partition.commit()

    @rule(share=st.sampled_from([1, 100]))
    def move(self, share: int) -> None:
        if self.partition.moves:
            offsets = [letter.offset for letter in self.partition.moves.pop().letters]
            self.partition.perform(self.partition.leader.moved(offsets[:share], self.partition.now_ms))

    @rule(is_final=st.booleans())
    def fail_to_move(self, is_final: bool) -> None:
        if self.partition.moves:
            letters = self.partition.moves.pop().letters
            self.naive.spared |= {letter.offset for letter in letters} if is_final else set()
            self.partition.perform(self.partition.leader.move_failed(is_final, self.partition.now_ms))

    @rule(groups=st.lists(GROUPS, max_size=2))
    def unpark(self, groups: list[bytes]) -> None:
        partition = self.partition
        partition.perform(partition.leader.unpark(next(self.numbers), groups, partition.now_ms))

    @rule()
    def fail_over(self) -> None:
        self.partition.fail_over()

    @rule()
    def save(self) -> None:
        self.saved = (self.partition.leader.checkpoint(), len(self.partition.log))

    @rule()
    def restore(self) -> None:
        self.partition.rebuild_follower(*self.saved)

    @rule()
    def drain(self) -> None:
        """Whatever happened: consumers that go on get everything."""
        partition = self.partition
        for _ in range(200):
            partition.pass_ms(31_000)
            partition.commit()
            if partition.moves:
                self.move(100)
            self.unpark([])
            token = next(self.numbers)
            partition.acquire(token, 10, 30_000)
            partition.commit()
            self.observe()
            if not self.naive.messages:
                break
            picks = partition.delivered.get(token)
            if picks:
                self._delete([pick[:2] for pick in picks])
        assert not self.naive.messages, "messages that nobody gets"

    # --- what must hold -------------------------------------------------------------------------------------------

    @invariant()
    def observe(self) -> None:
        partition, naive = self.partition, self.naive
        for header, batch in partition.log[self.folded :]:
            naive.fold(header, batch)
        self.folded = len(partition.log)
        for effect in partition.effects[self.seen_effects :]:
            if isinstance(effect, Deliver):
                self.receipts += [pick[:2] for pick in effect.picks]
        self.seen_effects = len(partition.effects)
        assert partition.duplicates == naive.duplicates
        self._check_state()
        partition.check()

    def _check_state(self) -> None:
        state, messages = self.partition.leader.state, self.naive.messages
        touched = {offset: m for offset, m in messages.items() if m.touched}
        expected = {o: (m.deadline_ms, m.delivery, m.first_received_ms, m.sent_ms) for o, m in touched.items()}
        assert state.live == expected
        assert state.group_of == {offset: message.group for offset, message in touched.items()}  # type: ignore[attr-defined]
        waiting = {offset for offset in messages if offset not in touched}
        assert state.fresh_count == len(waiting)
        assert all(offset >= state.cursor and offset not in state.removed_above_cursor for offset in waiting)
        assert len(state.removed_above_cursor) <= len(waiting)
        assert set(state.parked) == self.naive.parked  # type: ignore[attr-defined]
        assert all(state.is_live(offset, offset) for offset in messages)
        waiting_count, in_flight, delayed = self.partition.counts()
        expiring = self.partition.leader.leader._staging.fresh_expired if self.partition.leader.leader else 0  # type: ignore[union-attr]
        assert waiting_count + in_flight + delayed + expiring == len(messages)


FifoAgainstModel.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestFifoAgainstModel = FifoAgainstModel.TestCase
