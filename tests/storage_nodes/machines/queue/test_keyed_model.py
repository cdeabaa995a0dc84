"""A standard queue with groups and tags against a naive one, which looks at everything that waits at every receive.

All promises of `test_queue_model.py` hold, and: what an acquire gets is exactly what the naive rule gives it, tags
are obeyed, and nobody waits for a tag of which something waits.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from storage_nodes.machines.queue.delivery import backlog, fair, fairness
from storage_nodes.machines.queue.effects import Deliver
from tests.storage_nodes.machines.queue.partition import RETRY_FIELDS
from tests.storage_nodes.machines.queue.test_queue_model import QueueAgainstModel

NOISY_MIN = 3
NOISY_PERCENT = 30
GROUPS = st.sampled_from([b"", b"flood", b"flood", b"flood", b"g1", b"g2"])
TAGS = st.sampled_from([b"", b"red", b"blue"])
ASKED = st.sampled_from([(), (), (b"red",), (b"blue", b"red"), (b"green",)])


class KeyedQueueAgainstModel(QueueAgainstModel):
    @initialize(
        in_flight_max=st.sampled_from([5, 1_000]), fetch_batches_max=st.integers(1, 4), small=st.booleans(),
        retention_ms=st.sampled_from([4_000, 500_000_000]), retry=st.sampled_from([(), *RETRY_FIELDS]),
    )  # fmt: skip
    def start(
        self, in_flight_max: int, fetch_batches_max: int, small: bool, retention_ms: int, retry: tuple[int, ...]
    ) -> None:
        super().start(in_flight_max, fetch_batches_max, retention_ms, retry)
        self.key_of: dict[int, tuple[bytes, bytes]] = {}
        self.tags_of: dict[object, tuple[bytes, ...]] = {}
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(fairness, "NOISY_IN_FLIGHT_MIN", NOISY_MIN)
        self.patch.setattr(fairness, "NOISY_SHARE_PERCENT", NOISY_PERCENT)
        self.is_small = small
        if small:
            self.patch.setattr(backlog, "SIGHT_RUNS_NEAR", 3)
            self.patch.setattr(backlog, "LOOKAHEAD_RUNS_MAX", 12)
            self.patch.setattr(backlog, "LOOKAHEAD_TAG_QUEUES_MAX", 4)
            self.patch.setattr(backlog, "LOOKAHEAD_STEPS_MAX", 2)
            self.patch.setattr(fair, "TAKEN_AHEAD_RANGES_MAX", 4)

    @rule(
        keys=st.lists(st.tuples(GROUPS, TAGS), min_size=1, max_size=8), times=st.integers(1, 4),
        delay_ms=st.sampled_from([0, 0, 0, 1, 3_000]),
    )  # fmt: skip
    def send_keyed(self, keys: list[tuple[bytes, bytes]], times: int, delay_ms: int) -> None:
        keys = [key for key in keys for _ in range(times)]
        self.partition.pass_ms(1)  # no two batches have one time
        self.observe()
        now_ms = self.partition.now_ms
        base = self.partition.end
        self.sent |= dict.fromkeys(range(base, base + len(keys)), (now_ms, now_ms + delay_ms))
        self.key_of |= dict(enumerate(keys, base))
        self.partition.send_tagged(*keys, delay_ms=delay_ms)
        self.observe()

    @rule(
        count=st.integers(1, 12), visibility_ms=st.sampled_from([0, 1, 2_000, 30_000]), tags=ASKED,
        wait_ms=st.sampled_from([0, 0, 5_000]),
    )  # fmt: skip
    def acquire(self, count: int, visibility_ms: int, wait_ms: int, tags: tuple[bytes, ...] = ()) -> None:
        token = next(self.numbers)
        self.visibility_of[token] = visibility_ms
        self.tags_of[token] = tags
        expected = self._naive_picks(count, tags)
        picks = self.partition.acquire(token, count, visibility_ms, wait_ms, tags=tags)
        if expected is not None and (picks is not None or token not in self.partition.refused):
            found = [pick.offset for pick in picks or ()]
            assert found == expected if self._places() is not None else len(found) == len(expected)
        self.observe()

    @rule(count=st.integers(5, 30))
    def commit_acquire(self, count: int) -> None:
        """With everything committed and read the naive rule holds to the letter."""
        self.hold_fetches(False)
        self.commit()
        self.acquire(count, 30_000, 0)
        self.commit()

    def _naive_picks(self, count: int, tags: tuple[bytes, ...]) -> list[int] | None:
        """What the rule of `fairness.py` gives, by looking at all messages; None where the state does not tell."""
        partition = self.partition
        if self.is_small or partition.is_proposed or partition.fetches or partition.leader.next_tick_ms() == 1:
            return None
        state, now_ms = partition.leader.state, partition.now_ms
        partition.leader.stats(now_ms)  # what is due is ready
        places = self._places() or {}
        again = [offset for offset, entry in state.live.items() if state.due_ms(offset, entry) <= now_ms]
        again.sort(key=lambda offset: (places.get(offset, offset), offset))
        oldest_ms = now_ms - state.config.retention_ms
        fresh = [
            offset for offset in sorted(self.sent)
            if state.cursor <= offset < state.log_end and offset not in state.live
            and offset not in state.removed_above_cursor and self.sent[offset][0] > oldest_ms
        ]  # fmt: skip
        waiting = [offset for offset in fresh + again if not tags or self._key(offset)[1] in tags]
        waiting.sort(key=lambda offset: places.get(offset, offset))  # at one place the fresh one goes first
        hidden = [o for o, entry in state.live.items() if state.due_ms(o, entry) > now_ms and entry[1]]
        in_flight = sum(state.live[o][0] > now_ms for o in hidden)  # and not between a failed receive and the next
        of_group: dict[bytes, int] = {}
        for offset in hidden:
            group = self._key(offset)[0]
            of_group[group] = of_group.get(group, 0) + 1
        picks: list[int] = []
        was_noisy = False
        while waiting and len(picks) < min(count, self.in_flight_max - in_flight):
            noisy = {
                group for group, n in of_group.items()
                if group and n >= NOISY_MIN and n * 100 > in_flight * NOISY_PERCENT
            }  # fmt: skip
            chosen = next((offset for offset in waiting if self._key(offset)[0] not in noisy), waiting[0])
            # Neighbours that were sent together go together, whatever came back to stand between them.
            beside = picks[-1] + 1 if picks else -1
            is_run = {beside - 1, beside} <= {*fresh} and self._is_alike(beside - 1, beside)
            if is_run and beside in waiting and (was_noisy or self._key(beside)[0] not in noisy):
                chosen = beside
            waiting.remove(chosen)
            was_noisy = self._key(chosen)[0] in noisy
            picks.append(chosen)
            group = self._key(chosen)[0]
            of_group[group] = of_group.get(group, 0) + 1
        return picks

    def _places(self) -> dict[int, int] | None:
        """Where messages that came back stand; None where the desk is that of a queue without groups and tags."""
        leader = self.partition.leader.leader
        if leader is None or not isinstance(leader.delivery, fair.FairDelivery):
            return None
        entries = sorted(
            (entry for tag_queue in leader.delivery.window._tag_queues.values() for entry in tag_queue.again),
            reverse=True,
        )
        return {offset: place for place, offset in entries if leader._leases.is_ready(offset)}

    def _is_alike(self, one: int, other: int) -> bool:
        return self._key(one) == self._key(other) and self.sent[one][0] == self.sent[other][0]

    def _key(self, offset: int) -> tuple[bytes, bytes]:
        return self.key_of.get(offset, (b"", b""))

    def observe(self) -> None:
        for effect in self.partition.effects[self.seen_effects :]:
            tags = self.tags_of.get(getattr(effect, "token", None))
            if tags and isinstance(effect, Deliver):
                assert all(self._key(pick.offset)[1] in tags for pick in effect.picks), "a tag nobody asked for"
        super().observe()

    @invariant()
    def keys_are_those_of_live_messages(self) -> None:
        state = self.partition.leader.state
        assert state.keys == {offset: self.key_of[offset] for offset in state.live if self._key(offset) != (b"", b"")}

    @invariant()
    def nobody_waits_for_what_is_there(self) -> None:
        partition = self.partition
        if self.is_small or partition.is_proposed or partition.fetches or partition.holds_fetches:
            return
        for token, tags in self.tags_of.items():
            is_open = token not in partition.delivered and token not in partition.refused
            assert not (is_open and self._naive_picks(1, tags)), "a waiter was not woken"

    @invariant()
    def view_agrees_with_itself(self) -> None:
        leader = self.partition.leader.leader
        if leader is None or not isinstance(leader.delivery, fair.FairDelivery):
            return
        view = leader.delivery.window
        tag_queues = list(view._tag_queues.values())
        assert view.count == sum(tag_queue.count for tag_queue in tag_queues)
        assert view.noisy_count == sum(tag_queue.count for tag_queue in tag_queues if tag_queue.is_noisy)
        assert view._runs == sum(tag_queue.runs for tag_queue in tag_queues)
        assert view.head == min(
            [tag_queue.first_fresh for tag_queue in tag_queues if tag_queue.count], default=view.end
        )
        assert {id(s) for of_tag in view._tags.values() for s in of_tag.values()} == {id(s) for s in tag_queues}
        if not self.partition.is_proposed:
            assert not view.taken
            state, now_ms = leader._state, self.partition.now_ms
            hidden = {o for o, entry in state.live.items() if entry[1] and state.due_ms(o, entry) > now_ms}
            assert {o for o in hidden if self._key(o)[0]} == hidden.intersection(leader.delivery._in_flight._group_of)

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            if hasattr(self, "patch"):
                self.patch.undo()


KeyedQueueAgainstModel.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestKeyedQueueAgainstModel = KeyedQueueAgainstModel.TestCase
