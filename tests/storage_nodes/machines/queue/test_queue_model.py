"""The queue machine against a naive queue: random histories with failovers, every promise checked after every step.

Promises (docs/storage/queue_machine.md; R25, R27): at least once; an acknowledged delete is never redelivered, whatever
leader follows; a lease that stands in the log hides its message until it runs out; counts and conservation are exact;
replicas fold to equal bytes.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from storage_nodes.limits import RETENTION_MS_DEFAULT, RETENTION_MS_MIN
from storage_nodes.machines.queue.commands import NACKED, UNSEEN, uncounted
from storage_nodes.machines.queue.effects import CommandAnswer, Deliver
from storage_nodes.machines.queue.state.retry import RetryPolicy
from storage_nodes.protocol.deliveries import released
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import QueueConfig
from tests.storage_nodes.machines.queue.partition import RETRY_FIELDS, Partition


class QueueAgainstModel(RuleBasedStateMachine):
    @initialize(
        in_flight_max=st.sampled_from([5, 1_000]), fetch_batches_max=st.integers(1, 4),
        retention_ms=st.sampled_from([4_000, RETENTION_MS_MIN, RETENTION_MS_DEFAULT]),
        retry=st.sampled_from(RETRY_FIELDS),
    )  # fmt: skip
    def start(self, in_flight_max: int, fetch_batches_max: int, retention_ms: int, retry: tuple[int, ...]) -> None:
        config = QueueConfig(retention_ms, in_flight_max, False, 300_000, 0, 0, False, *retry)
        self.retry = RetryPolicy.of(config)
        self.partition = Partition(config, fetch_batches_max)
        self.in_flight_max = in_flight_max
        self.sent: dict[int, tuple[int, int]] = {}  # offset -> (sent_ms, due_ms)
        self.gone: set[int] = set()  # deletes that were acknowledged
        self.put_off = False  # a change of visibility made a message wait
        self.purged_below = 0
        self.receipts: list[tuple[int, int]] = []  # every receipt ever handed out
        # Leases that nothing but this leader's own commands touch: offset -> (delivery, deadline_ms).
        self.leases: dict[int, tuple[int, int]] = {}
        self.given_back: set[int] = set()  # by a caller who said when: no pause
        self.staged: list[tuple[str, object, list[tuple[int, ...]]]] = []
        self.numbers = iter(range(1_000_000))
        self.seen_effects = 0
        self.visibility_of: dict[object, int] = {}

    # --- rules --------------------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 30), delay_ms=st.sampled_from([0, 0, 0, 1, 3_000]))
    def send(self, count: int, delay_ms: int) -> None:
        now_ms = self.partition.now_ms
        # Registered before: a waiter may be served while the batch is applied.
        base = self.partition.end
        self.sent |= dict.fromkeys(range(base, base + count), (now_ms, now_ms + delay_ms))
        self.partition.send(count, delay_ms)
        self.observe()

    @rule(
        count=st.integers(1, 12), visibility_ms=st.sampled_from([0, 1, 2_000, 30_000]),
        wait_ms=st.sampled_from([0, 0, 5_000]),
    )  # fmt: skip
    def acquire(self, count: int, visibility_ms: int, wait_ms: int) -> None:
        token = next(self.numbers)
        self.visibility_of[token] = visibility_ms
        self.partition.acquire(token, count, visibility_ms, wait_ms)
        self.observe()

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        if self.receipts:
            receipts = data.draw(st.lists(st.sampled_from(self.receipts), min_size=1, max_size=8))
            self._delete(receipts)

    @rule()
    def delete_newest(self) -> None:
        if self.receipts:
            self._delete(self.receipts[-10:])

    @rule(offset=st.integers(0, 400))
    def delete_garbage(self, offset: int) -> None:
        """Any offset that holds no message, or none that was handed out."""
        if offset not in self.sent:
            self._delete([(offset, 1)], "delete garbage")

    @rule(offsets=st.lists(st.integers(0, 400), min_size=1, max_size=6, unique=True), moved=st.booleans())
    def remove(self, offsets: list[int], moved: bool) -> None:
        """Whatever stands there, leased or not; control records and what is gone among it."""
        token = next(self.numbers)
        self.staged.append(("remove", token, [(offset, offset < self.partition.end) for offset in offsets]))
        self.partition.remove(token, offsets, moved)
        self.observe()

    def _delete(self, receipts: list[tuple[int, int]], kind: str = "delete") -> None:
        token = next(self.numbers)
        self.staged.append((kind, token, list(receipts)))
        self.partition.delete(token, receipts)
        self.observe()

    @rule(data=st.data(), visibility_ms=st.sampled_from([0, 10, 20_000, NACKED, UNSEEN, uncounted(0), uncounted(10)]))
    def change(self, data: st.DataObject, visibility_ms: int) -> None:
        if self.receipts:
            offset, delivery = data.draw(st.sampled_from(self.receipts[-20:]))
            token = next(self.numbers)
            self.staged.append(("change", token, [(offset, delivery, visibility_ms)]))
            self.partition.change(token, [(offset, delivery, visibility_ms)])
            self.observe()

    @rule()
    def purge(self) -> None:
        token = next(self.numbers)
        self.staged.append(("purge", token, []))
        self.partition.purge(token)
        self.observe()

    @rule(ms=st.sampled_from([1, 500, 2_500, 31_000]))
    def pass_time(self, ms: int) -> None:
        self.partition.pass_ms(ms)
        self.observe()

    @rule()
    def commit(self) -> None:
        self.partition.commit()
        self.observe()

    @rule()
    def fail_over(self) -> None:
        self.partition.fail_over()
        self.leases.clear()  # those that were not committed are void; a new leader owes nothing to them
        self.observe()
        for kind, token, _ in self.staged:
            assert token in self.partition.refused or token in self.partition.answers, f"{kind} was left unanswered"
        self.staged.clear()

    @rule(hold=st.booleans())
    def hold_fetches(self, hold: bool) -> None:
        self.partition.holds_fetches = hold
        if not hold:
            self.partition.run_fetches()
        self.observe()

    # --- checks -------------------------------------------------------------------------------------------------

    def observe(self) -> None:
        """Follow the effects in their order and hold each of them against the model."""
        partition = self.partition
        times_ms = partition.effect_times_ms
        new = list(zip(partition.effects, times_ms, strict=True))[self.seen_effects :]
        self.seen_effects = len(times_ms)
        for effect, now_ms in new:
            self.effect_ms = now_ms
            token = getattr(effect, "token", None)
            if isinstance(effect, Deliver):
                for pick in effect.picks:
                    self._delivered(pick.offset, pick.delivery, pick.sent_ms, self.visibility_of[token])
            elif isinstance(effect, CommandAnswer):
                self._answered(token, effect.result)

    def _delivered(self, offset: int, delivery: int, sent_ms: int, visibility_ms: int) -> None:
        assert offset in self.sent, "delivered what nobody sent"
        now_ms = self.effect_ms
        assert offset not in self.gone, "redelivered after an acknowledged delete"
        assert offset >= self.purged_below, "delivered after the purge was acknowledged"
        assert sent_ms == self.sent[offset][0]
        assert self.sent[offset][1] <= now_ms, "delivered before its delay was over"
        before = self.leases.get(offset)
        if before is not None:
            assert before[1] <= now_ms, "delivered while another lease holds"
            assert delivery > before[0], "the delivery number must grow under one leader"
            if self.retry is not None and offset not in self.given_back:
                pause_ms = self.retry.pause_ms(offset, before[0])
                assert before[1] + pause_ms <= now_ms, "delivered before the pause of its failed receive was over"
        self.given_back.discard(offset)
        self.leases[offset] = (delivery, now_ms + visibility_ms)
        self.receipts.append((offset, delivery))

    def _answered(self, token: object, result: object) -> None:
        for kind, staged_token, items in self.staged:
            if staged_token != token:
                continue
            if kind == "purge":
                assert isinstance(result, tuple)
                if result[0] == ErrorCode.OK:
                    self.purged_below = max(o for o in range(self.partition.end) if o not in self.sent) + 1
                return
            assert isinstance(result, list) and len(result) == len(items)
            for item, code in zip(items, result, strict=True):
                self._item_answered(kind, item, code)
            return
        raise AssertionError("an answer to nobody's request")

    def _item_answered(self, kind: str, item: tuple[int, ...], code: ErrorCode) -> None:
        offset, delivery = item[:2]
        if kind == "remove":
            assert code in (ErrorCode.OK, ErrorCode.UNKNOWN_RECORD)
            assert offset in self.sent or code == ErrorCode.UNKNOWN_RECORD, "what is no message was removed"
            if item[1]:
                self.gone.add(offset)
        elif kind == "delete garbage":
            assert code in (ErrorCode.OK, ErrorCode.UNKNOWN_RECORD)
        elif kind == "delete":
            assert code == ErrorCode.OK
            self.gone.add(offset)  # whichever delivery the receipt is of
        elif code == ErrorCode.OK:
            lease = self.leases.get(offset)
            if lease is not None and item[2] >= 0:
                self.put_off |= item[2] > 0
                self.leases[offset] = (lease[0], self.effect_ms + item[2])
                self.given_back.discard(offset) if item[2] else self.given_back.add(offset)
            elif lease is not None and lease[0] == delivery:
                visibility_ms = max(0, item[2])
                if item[2] == UNSEEN:
                    delivery = released(delivery)
                elif item[2] < NACKED:
                    delivery, visibility_ms = released(delivery), uncounted(item[2])
                self.leases[offset] = (delivery, self.effect_ms + visibility_ms)
                if item[2] != NACKED and item[2] <= 0:
                    self.given_back.add(offset)
        else:
            assert code in (ErrorCode.NOT_IN_FLIGHT, ErrorCode.UNKNOWN_RECORD)

    @invariant()
    def replicas_agree(self) -> None:
        self.partition.check()

    @invariant()
    def counts_agree(self) -> None:
        """With everything committed the leader's counts are those of its state at this time."""
        partition = self.partition
        if partition.is_proposed:
            return
        state, now_ms = partition.leader.state, partition.now_ms
        stats = partition.leader.stats(now_ms)
        available = sum(state.due_ms(offset, entry) <= now_ms for offset, entry in state.live.items())
        leased = sum(entry[1] > 0 and entry[0] > now_ms for entry in state.live.values())
        assert stats.waiting == state.fresh_count + available
        assert stats.in_flight == leased
        assert stats.delayed == len(state.live) - available - leased, "not due yet, or in a pause before the next try"
        assert stats.in_flight <= self.in_flight_max or self.put_off, "changes put off what was available"

    @invariant()
    def live_offsets_are_kept(self) -> None:
        """The log may drop only what `is_live` gives up: every message that can still come is live."""
        leader = self.partition.leader
        low = leader.low_watermark()
        for offset in self.sent:
            if offset in leader.state.live:
                assert leader.is_live(offset, offset) and offset >= low

    def teardown(self) -> None:
        """At least once: whatever was not deleted, purged or expired comes, in the end."""
        if not hasattr(self, "partition"):
            return
        partition = self.partition
        self.hold_fetches(False)
        partition.commit()
        self.observe()
        expected = set(self.sent) - self.gone
        partition.pass_ms(5_001)  # nobody waits any more, who might lease again
        partition.pass_ms(34_000)  # every lease, delay and pause is over
        partition.commit()
        self.observe()
        drained: set[int] = set()
        for _ in range(1_000):
            token = next(self.numbers)
            self.visibility_of[token] = 30_000
            picks = partition.acquire(token, 10, 30_000)
            self.observe()
            if not picks:
                break
            self._delete([(pick.offset, pick.delivery) for pick in picks])
            partition.commit()
            self.observe()
            drained |= {pick.offset for pick in picks}
        partition.commit()
        self.observe()
        assert drained <= expected
        state = partition.leader.state
        if state.expired == 0 and state.purged == 0:
            assert drained >= expected, "a message was lost"
        assert (state.fresh_count, len(state.live)) == (0, 0), "something is stuck"
        assert state.cursor == state.log_end
        partition.check()


QueueAgainstModel.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestQueueAgainstModel = QueueAgainstModel.TestCase
