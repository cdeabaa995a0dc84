"""A replicated queue partition in a few lines: one log, two machines, and a driver that performs effects.

`Partition` commits what the leader's machine stages, when told to (`commit`), or loses it (`fail_over`), so that tests
decide what happens between an answer and its commit. Real record batches are built and parsed on the way.
"""

from __future__ import annotations

from collections.abc import Hashable

from storage_nodes.log.record_batch import (
    CONTROL_EPOCH_START,
    BatchHeader,
    build_batch,
    control_key,
    iterate_bodies,
    read_header,
    records_to_fold,
)
from storage_nodes.machines.driver_contract import Propose, Refuse
from storage_nodes.machines.queue.effects import (
    CommandAnswer,
    DeadLetter,
    Deliver,
    Duplicated,
    Effect,
    Fetch,
    FreshRange,
    Pick,
    Release,
    Retired,
)
from storage_nodes.machines.queue.machine import QueueMachine
from storage_nodes.machines.queue.state.headers import group_of, key_of
from storage_nodes.node.replicas.scheduled import released_copy
from storage_nodes.protocol.messages import QueueConfig, RetryKind
from storage_nodes.protocol.records import (
    HEADER_DEDUP,
    HEADER_DELAY_MS,
    HEADER_DUE,
    HEADER_GROUP,
    HEADER_TAG,
    encode_body,
)

NOW_MS = 1_700_000_000_000
VISIBILITY_MS = 30_000
# Of retry policies: kind, delay_ms, max_ms, jitter_permille.
RETRY_FIELDS = ((), (RetryKind.FIXED, 700, 700, 0), (RetryKind.EXPONENTIAL, 500, 3_000, 500))


class Partition:
    def __init__(self, config: QueueConfig | None = None, fetch_batches_max: int = 100, leads: bool = True) -> None:
        self.config = config
        self.now_ms = NOW_MS
        self.log: list[tuple[BatchHeader, bytes]] = []
        self.machines = [QueueMachine(config), QueueMachine(config)]
        self.leader_index = 0
        self.fetch_batches_max = fetch_batches_max
        self.effects: list[Effect] = []  # everything the leader asked for, fetches aside
        self.effect_times_ms: list[int] = []  # when
        self.answers: dict[Hashable, object] = {}
        self.delivered: dict[Hashable, list[Pick]] = {}
        self.deadlines_ms: dict[Hashable, int] = {}  # of the leases in `delivered`; 0 in a standard queue
        self.refused: dict[Hashable, Refuse] = {}
        self.duplicates: dict[int, int] = {}  # offset -> offset of the original
        self.moves: list[DeadLetter] = []  # under way
        self.fetches: list[Fetch] = []
        self.holds_fetches = False
        self.releases: list[Release] = []
        self.holds_releases = False
        self.keeps_back = 0  # so many of the next answer do not fit into it, and are given back
        self.is_proposed = False
        if leads:
            self.start_epoch()

    @property
    def leader(self) -> QueueMachine:
        return self.machines[self.leader_index]

    @property
    def follower(self) -> QueueMachine:
        return self.machines[1 - self.leader_index]

    @property
    def end(self) -> int:
        return self.log[-1][0].end_offset if self.log else 0

    # --- the log ------------------------------------------------------------------------------------------------

    def append(self, bodies: list[bytes], control: bool = False, plain: bool = True) -> range:
        base = self.end
        batch = build_batch(base, 1, self.now_ms, bodies, control=control, plain=plain)
        header = read_header(batch)
        self.log.append((header, batch))
        for machine in (self.follower, self.leader):
            effects = machine.apply(header, lambda: records_to_fold(batch), self.now_ms)
            if machine is self.leader:
                self.perform(effects)
            else:
                assert effects == [], "a follower has nobody to tell"
        return range(base, base + len(bodies))

    def send(self, count: int = 1, delay_ms: int = 0) -> range:
        headers = [(HEADER_DELAY_MS, b"%d" % delay_ms)] if delay_ms else ()
        return self.append([encode_body(b"body", headers=headers)] * count, plain=not delay_ms)

    def send_keyed(self, *messages: tuple[bytes, bytes], delay_ms: int = 0) -> range:
        """Messages as (group, deduplication id), empty where there is none."""
        bodies = []
        for group, dedup_id in messages:
            headers = [(HEADER_GROUP, group)] if group else []
            headers += [(HEADER_DEDUP, dedup_id)] if dedup_id else []
            headers += [(HEADER_DELAY_MS, b"%d" % delay_ms)] if delay_ms else []
            bodies.append(encode_body(b"body", headers=headers))
        return self.append(bodies, plain=False)

    def schedule(self, due: bytes, count: int = 1, group: bytes = b"", dedup_id: bytes = b"") -> range:
        """Scheduled messages; `due` as in HEADER_DUE."""
        headers = [(HEADER_DUE, due)]
        headers += [(HEADER_GROUP, group)] if group else []
        headers += [(HEADER_DEDUP, dedup_id)] if dedup_id else []
        return self.append([encode_body(b"body", headers=headers)] * count, plain=False)

    def body(self, offset: int) -> bytes:
        for header, batch in self.log:
            if header.base_offset <= offset <= header.last_offset:
                return dict(iterate_bodies(batch))[offset]
        raise AssertionError(f"there is no offset {offset}")

    def send_tagged(self, *messages: tuple[bytes, bytes], delay_ms: int = 0) -> range:
        """Messages as (group, tag), empty where there is none."""
        bodies = []
        for group, tag in messages:
            headers = [(HEADER_GROUP, group)] if group else []
            headers += [(HEADER_TAG, tag)] if tag else []
            headers += [(HEADER_DELAY_MS, b"%d" % delay_ms)] if delay_ms else []
            bodies.append(encode_body(b"body", headers=headers))
        return self.append(bodies, plain=False)

    def rebuild_follower(self, checkpoint: bytes, entries: int) -> None:
        """The follower starts over from a checkpoint that was made when the log had so many entries."""
        machine = QueueMachine(self.config)
        machine.restore(checkpoint)
        for header, batch in self.log[entries:]:
            assert machine.apply(header, lambda batch=batch: records_to_fold(batch), self.now_ms) == []
        self.machines[1 - self.leader_index] = machine

    def commit(self) -> None:
        """Take what is staged through the log, until nothing is."""
        while self.is_proposed:
            bodies = self.take()
            if bodies:
                self.append(bodies, control=True)

    def take(self) -> list[bytes]:
        """Take what is staged; the caller decides what becomes of it."""
        self.is_proposed = False
        return self.leader.take_commands(self.now_ms)

    def start_epoch(self) -> None:
        self.append([encode_body(b"", control_key(CONTROL_EPOCH_START))], control=True)
        self.perform(self.leader.lead(self.now_ms))

    def fail_over(self) -> None:
        """The other replica leads; what was staged and not committed is lost."""
        self.fetches.clear()
        self.moves.clear()
        self.releases.clear()
        self.perform(self.leader.follow())
        self.is_proposed = False
        self.leader_index = 1 - self.leader_index
        self.start_epoch()

    # --- the driver -----------------------------------------------------------------------------------------------

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Fetch):
                assert not self.fetches, "one fetch at a time"
                self.fetches.append(effect)
                continue
            self.effects.append(effect)
            self.effect_times_ms.append(self.now_ms)
            if isinstance(effect, Deliver):
                self._answered(effect.token)
                self.delivered[effect.token] = effect.picks
                self.deadlines_ms[effect.token] = effect.deadline_ms
                self._hand_over(effect)
            elif isinstance(effect, CommandAnswer):
                self._answered(effect.token)
                self.answers[effect.token] = effect.result
            elif isinstance(effect, Duplicated):
                assert not self.duplicates.keys() & dict(effect.pairs).keys()
                self.duplicates.update(effect.pairs)
            elif isinstance(effect, DeadLetter):
                assert not self.moves, "one move at a time"
                self.moves.append(effect)
            elif isinstance(effect, Release):
                assert not self.releases, "one slice at a time"
                self.releases.append(effect)
            elif isinstance(effect, Refuse):
                self._answered(effect.token)
                self.refused[effect.token] = effect
            else:
                if isinstance(effect, Retired):
                    continue
                assert isinstance(effect, Propose)
                assert not self.is_proposed, "announced twice"
                self.is_proposed = True
        if not self.holds_fetches:
            self.run_fetches()
        if not self.holds_releases:
            self.run_releases()

    def _hand_over(self, effect: Deliver) -> None:
        """The answer leaves, and the meter is told."""
        fitting = len(effect.picks) - self.keeps_back
        self.keeps_back = 0
        back = [pick[:2] for pick in effect.picks[fitting:]]
        if back:
            self.perform(self.leader.release(back, self.now_ms, effect.deadline_ms))
        if self.leader.usage.is_metered and not effect.is_repeat:
            offsets = [pick.offset for pick in effect.picks[:fitting]]
            self.leader.handed_over(dict(zip(offsets, map(self.body, offsets), strict=True)), len(back))

    def run_releases(self) -> None:
        while self.releases:
            due = self.releases.pop().messages
            copies = [released_copy(self.body(offset), offset, due_ms) for due_ms, offset in due]
            self.perform(self.leader.release_begun([offset for _, offset in due], self.now_ms))
            self.append(copies, plain=False)

    def run_fetches(self) -> None:
        while self.fetches:
            from_offset = self.fetches.pop().from_offset
            found = [entry for entry in self.log if entry[0].last_offset >= from_offset][: self.fetch_batches_max]
            data = [entry for entry in found if not entry[0].is_control]
            ranges = [FreshRange(h.base_offset, h.last_offset, h.timestamp_ms) for h, _ in data]
            name_of = key_of if self.leader.tracks_keys else group_of
            groups = [[name_of(section) for _, section in records_to_fold(batch)] for _, batch in data]
            next_offset = found[-1][0].end_offset if found else self.end
            self.perform(self.leader.fetched(from_offset, ranges, next_offset, self.now_ms, groups))

    def tick(self) -> None:
        self.perform(self.leader.tick(self.now_ms))

    def pass_ms(self, ms: int) -> None:
        """Let time pass, ticking whenever the machine asked for it."""
        until_ms = self.now_ms + ms
        for _ in range(1_000):
            due_ms = self.leader.next_tick_ms()
            if not due_ms or due_ms > until_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            self.tick()
        else:
            raise AssertionError("the machine asks to be woken again and again")
        self.now_ms = until_ms

    # --- requests -------------------------------------------------------------------------------------------------

    def acquire(
        self,
        token: Hashable,
        count: int = 10,
        visibility_ms: int = VISIBILITY_MS,
        wait_ms: int = 0,
        attempt: bytes = b"",
        tags: tuple[bytes, ...] = (),
    ) -> list[Pick] | None:
        """The picks, or None when it waits (FIFO: for its commit, too) or was refused."""
        until_ms = self.now_ms + wait_ms if wait_ms else 0
        self.perform(self.leader.acquire(token, count, visibility_ms, until_ms, self.now_ms, attempt, tags))
        return self.delivered.get(token)

    def delete(self, token: Hashable, receipts: list[tuple[int, int]]) -> None:
        self.perform(self.leader.delete(token, receipts))

    def change(self, token: Hashable, changes: list[tuple[int, int, int]]) -> None:
        self.perform(self.leader.change_visibility(token, changes, self.now_ms))

    def reschedule(self, token: Hashable, changes: list[tuple[int, int]]) -> None:
        self.perform(self.leader.reschedule(token, changes, self.now_ms))

    def purge(self, token: Hashable) -> None:
        self.perform(self.leader.purge(token, self.now_ms))

    def remove(self, token: Hashable, offsets: list[int], moved: bool = False) -> None:
        """As the node's driver does it: the log says what is a message, and of which group."""
        live = self.leader.state.live
        groups: dict[int, bytes] = {}
        for header, batch in self.log:
            if not header.is_control:
                sections = records_to_fold(batch)
                groups |= {at: group_of(section) for at, section in sections if at in offsets and at not in live}
        named = [offset if offset in live or offset in groups else -1 for offset in offsets]
        self.perform(self.leader.remove(token, named, groups, moved))

    def counts(self) -> tuple[int, int, int]:
        """(waiting, in flight, delayed) as the leader counts them."""
        stats = self.leader.stats(self.now_ms)
        return stats.waiting, stats.in_flight, stats.delayed

    def check(self) -> None:
        """What holds at any time: replicas are equal, nothing was lost or made up."""
        checkpoint = self.leader.checkpoint()
        assert checkpoint == self.follower.checkpoint()
        if self.leader.leader is not None:
            self.leader.leader.delivery.check()
        state = self.leader.state
        gone = state.deleted + state.expired + state.purged + state.dead_lettered
        assert state.sent == state.fresh_count + len(state.live) + len(state.scheduled) + len(state.delayed) + gone
        assert state.cursor <= state.log_end == self.end
        assert not any(offset < state.cursor for offset in state.removed_above_cursor)
        assert self.leader.is_fifo or not any(offset in state.live for offset in state.removed_above_cursor)
        restored = QueueMachine()
        restored.restore(checkpoint)
        assert restored.checkpoint() == checkpoint

    def _answered(self, token: Hashable) -> None:
        assert token not in self.answers and token not in self.delivered and token not in self.refused, "answered twice"


def receipts_of(picks: list[Pick] | None) -> list[tuple[int, int]]:
    assert picks is not None
    return [(pick.offset, pick.delivery) for pick in picks]


def offsets_of(picks: list[Pick] | None) -> list[int]:
    assert picks is not None
    return [pick.offset for pick in picks]
