"""Commands on their way into the log, and the requests that wait for them.

Staged commands are merged per kind until the driver takes them for a group commit; taken ones are matched, in order,
with what comes back through the fold, so that each request is answered exactly once: after commit, or refused when the
leadership ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple, cast

from storage_nodes.limits import KEYS_PER_COMMAND_BYTES_MAX
from storage_nodes.machines.driver_contract import Token
from storage_nodes.machines.queue.commands import (
    COMMAND_ITEMS_MAX,
    EXPIRED_PER_COMMAND_MAX,
    KEY_ITEM_BYTES_MAX,
    LEASED_ITEMS_MAX,
    NOT_ISSUED,
    SINGLE_COMMANDS_PER_BATCH_MAX,
    UNSEEN,
    AcquiredCommand,
    Acquisition,
    Command,
    DeadLetteredCommand,
    DeletedCommand,
    ExpiredCommand,
    FifoLease,
    HandedOverCommand,
    LeasedCommand,
    LeveledCommand,
    Sizes,
    VisibilityCommand,
    encode_command,
    pack_sizes,
    unseen_of,
)
from storage_nodes.machines.queue.delivery.groups import MessageGroup
from storage_nodes.machines.queue.delivery.handed_over import HandedOver
from storage_nodes.machines.queue.effects import CommandAnswer, FreshRange, Key


class Requester(NamedTuple):
    """A request whose answer the fold decides; `items` items of the command are its own."""

    token: Token
    items: int


class StagedLease(NamedTuple):
    """A lease of a FIFO queue, delivered when it is folded (R26): who waits for it, and the groups that it locks."""

    token: Token
    attempt: bytes
    groups: list[MessageGroup]


class InFlightCommand(NamedTuple):
    """A command that was handed to the driver and did not come back yet."""

    sequence: int
    answers: Sequence[CommandAnswer]
    askers: Sequence[Requester]
    fresh_picked: int = 0  # messages it takes out of the fresh ones, by a lease
    fresh_expired: int = 0  # ... and by expiry
    live_expired: int = 0  # messages in `live` that it expires
    leases: Sequence[StagedLease] = ()


class _CommandBuilder:
    """One command in the making: its flat items and who asked for them."""

    __slots__ = ("answers", "askers", "items")

    def __init__(self) -> None:
        self.items: list[int] = []
        self.answers: list[CommandAnswer] = []
        self.askers: list[Requester] = []


class PendingCommands:
    __slots__ = (
        "_acquisitions",
        "_changes",
        "_dead",
        "_deletes",
        "_expired_offsets",
        "_expired_ranges",
        "_fresh_expired_staged",
        "_fresh_picked_staged",
        "_keys",
        "_keys_bytes",
        "_leased",
        "_leases",
        "_level",
        "_sequence",
        "_singles",
        "_taken",
        "_term",
        "announced",
        "cursor",
        "expired_count",
        "fresh_expired",
        "fresh_picked",
        "handed_over",
        "leased_count",
        "live_expired",
        "outstanding",
        "picked_count",
    )

    def __init__(self, term: int, level: int) -> None:
        """`level`: of the partition."""
        self._term = term
        self._level = level  # once what was taken is folded
        self.cursor = 0  # of the fold, once what was taken is folded, or below it
        self._sequence = 0
        self._acquisitions: list[Acquisition] = []
        self._keys: dict[Key, list[int]] = {}  # of the fresh messages in _acquisitions: flat (first, last)...
        self._keys_bytes = 0
        self._deletes: list[_CommandBuilder] = []
        self._changes: list[_CommandBuilder] = []
        self._singles: deque[tuple[Command, Requester]] = deque()
        self._expired_ranges: list[int] = []
        self._expired_offsets: list[int] = []
        self._leases: list[FifoLease] = []  # `_leased` says, in the same order, who waits for each
        self._leased: list[StagedLease] = []
        self.leased_count = 0  # messages in _leases
        self._dead: list[int] = []
        self._taken: deque[InFlightCommand] = deque()
        self.handed_over = HandedOver()
        self.announced = False  # the driver knows that something is staged
        self.picked_count = 0  # messages in _acquisitions
        self._fresh_picked_staged = 0  # of them fresh ones
        self.expired_count = 0  # messages in _expired_*
        self._fresh_expired_staged = 0  # of them fresh ones
        # Messages that the fold still counts as fresh though a command of ours, staged or taken, says otherwise.
        self.fresh_picked = 0
        self.fresh_expired = 0
        self.live_expired = 0  # messages that the fold still holds in `live` though they are to expire
        self.outstanding = 0  # requests that are staged or taken

    # --- in -----------------------------------------------------------------------------------------------------

    def acquired_fresh(self, time_ms: int, deadline_ms: int, taken: FreshRange) -> None:
        flat = self._acquisition(time_ms, deadline_ms).fresh
        first, last, sent_ms = taken
        if flat and flat[-2] == first - 1 and flat[-1] == sent_ms:
            flat[-2] = last
        else:
            flat += taken
        count = last - first + 1
        self.picked_count += count
        self._fresh_picked_staged += count
        self.fresh_picked += count

    def keyed(self, key: Key, first: int, last: int) -> None:
        """The group and tag of messages just acquired."""
        ranges = self._keys.get(key)
        if ranges is None:
            ranges = self._keys[key] = []
            self._keys_bytes += len(key[0]) + len(key[1])
        elif ranges[-1] == first - 1:
            ranges[-1] = last
            return
        ranges += (first, last)
        self._keys_bytes += KEY_ITEM_BYTES_MAX

    def acquired_again(self, time_ms: int, deadline_ms: int, offsets: list[int]) -> None:
        self._acquisition(time_ms, deadline_ms).again += offsets
        self.picked_count += len(offsets)

    def leased(self, lease: FifoLease, staged: StagedLease, fresh: int, again: int) -> None:
        """A lease of so many fresh messages and others."""
        self._leases.append(lease)
        self._leased.append(staged)
        self.leased_count += fresh + again
        self._fresh_picked_staged += fresh
        self.fresh_picked += fresh
        self.outstanding += 1

    def dead_lettered(self, offsets: list[int]) -> None:
        self._dead += offsets

    def receipts(self, receipts: Sequence[tuple[int, int]], token: Token) -> None:
        """Deletes on which the fold decides."""
        merged = _open(self._deletes, 2)
        merged.items.extend(chain.from_iterable(receipts))
        merged.askers.append(Requester(token, len(receipts)))
        self.outstanding += 1

    def deleted(self, receipts: Iterable[tuple[int, int]], answer: CommandAnswer) -> None:
        merged = _open(self._deletes, 2)
        merged.items.extend(chain.from_iterable(receipts))
        merged.answers.append(answer)
        self.outstanding += 1

    def changed(self, changes: Sequence[tuple[int, int, int]], token: Token) -> None:
        merged = _open(self._changes, 3)
        merged.items.extend(chain.from_iterable(changes))
        merged.askers.append(Requester(token, len(changes)))
        self.outstanding += 1

    def single(self, command: Command, token: Token) -> None:
        """`command` is NOT_ISSUED yet."""
        self._singles.append((command, Requester(token, 1)))
        self.outstanding += 1

    def expired_range(self, first: int, last: int) -> None:
        self._expired_ranges += (first, last)
        count = last - first + 1
        self.expired_count += count
        self._fresh_expired_staged += count
        self.fresh_expired += count

    def expired_offsets(self, offsets: Sequence[int]) -> None:
        self._expired_offsets += offsets
        self.expired_count += len(offsets)
        self.live_expired += len(offsets)

    @property
    def picks_room(self) -> int:
        return COMMAND_ITEMS_MAX - self.picked_count

    @property
    def has_keys_room(self) -> bool:
        return self._keys_bytes < KEYS_PER_COMMAND_BYTES_MAX

    @property
    def leased_room(self) -> int:
        return LEASED_ITEMS_MAX - self.leased_count

    @property
    def groups_leased(self) -> int:
        """Groups of which leases are under way, those that were purged since, too."""
        under_way = [*self._leased, *(lease for taken in self._taken for lease in taken.leases)]
        return sum(len(lease.groups) for lease in under_way)

    @property
    def expired_room(self) -> int:
        return EXPIRED_PER_COMMAND_MAX - self.expired_count

    @property
    def is_empty(self) -> bool:
        staged = self._acquisitions or self._deletes or self._changes or self._singles or self.expired_count
        return not (staged or self._leases or self._dead)

    @property
    def is_settled(self) -> bool:
        """Nothing is staged, or to be told, and everything taken came back."""
        return not self._taken and self.is_empty and self.handed_over.is_settled

    def is_wanted(self, time_ms: int) -> bool:
        """Is there something to take? What was handed over waits for other commands, for a while."""
        return not self.is_empty or 0 < self.handed_over.due_ms <= time_ms

    # --- out ----------------------------------------------------------------------------------------------------

    def take(self, time_ms: int, cursor: int, level: int) -> list[bytes]:
        """Record bodies for one control batch. The first ones that may use a higher `level` raise the partition to it.

        Expiry goes first and leaves the cursor to the acquires beside it: the fold takes nothing below the cursor for
        fresh. Purges go last: they reach over everything before them.
        """
        self.announced = False
        bodies: list[bytes] = []
        if level > self._level and (self.handed_over.due_ms or not self.is_empty):
            self._level = level
            bodies.append(self._issue(LeveledCommand(*NOT_ISSUED, level), time_ms))
        if self.expired_count:
            offsets = self._expired_offsets
            moved = 0 if self._acquisitions else cursor
            sizes = self.handed_over.sizes_of(offsets)
            expired = ExpiredCommand(*NOT_ISSUED, moved, self._expired_ranges, offsets, sizes)
            fresh = self._fresh_expired_staged
            bodies.append(self._issue(expired, time_ms, fresh_expired=fresh, live_expired=len(offsets)))
            self._expired_ranges, self._expired_offsets = [], []
            self.expired_count = self._fresh_expired_staged = 0
            self.cursor = max(self.cursor, moved)
        if self._acquisitions:
            self.cursor = cursor
            keys = [field for key, ranges in self._keys.items() for field in (*key, ranges)]
            self._keys, self._keys_bytes = {}, 0
            acquired = AcquiredCommand(*NOT_ISSUED, cursor, self._acquisitions, keys)
            bodies.append(self._issue(acquired, time_ms, fresh_picked=self._fresh_picked_staged))
            self._acquisitions = []
            self.picked_count = self._fresh_picked_staged = 0
        if self._leases:
            leased = LeasedCommand(*NOT_ISSUED, self._leases)
            fresh = self._fresh_picked_staged
            bodies.append(self._issue(leased, time_ms, fresh_picked=fresh, leases=self._leased))
            self._leases, self._leased = [], []
            self.leased_count = self._fresh_picked_staged = 0
        if self._dead:
            dead = DeadLetteredCommand(*NOT_ISSUED, self._dead, self.handed_over.sizes_of(self._dead))
            bodies.append(self._issue(dead, time_ms))
            self._dead = []
        told = self.handed_over.take() if self.handed_over.due_ms else None
        if self._deletes and cursor > self.cursor:
            # Below it is nothing that waits, and control records, which no receipt may take for a message.
            bodies.append(self._issue(ExpiredCommand(*NOT_ISSUED, cursor, [], []), time_ms))
            self.cursor = cursor
        if self._deletes:
            merged = self._deletes.pop(0)
            deleted = DeletedCommand(*NOT_ISSUED, merged.items, self._sizes_deleted(merged.items[::2]), told)
            bodies.append(self._issue(deleted, time_ms, merged.answers, merged.askers))
        elif told is not None:
            bodies.append(self._issue(HandedOverCommand(*NOT_ISSUED, *told), time_ms))
        if self._changes:
            merged = self._changes.pop(0)
            changed = VisibilityCommand(*NOT_ISSUED, merged.items)
            if UNSEEN in merged.items:
                changed.sizes = self.handed_over.sizes_of(unseen_of(merged.items))
            bodies.append(self._issue(changed, time_ms, merged.answers, merged.askers))
        for _ in range(min(len(self._singles), SINGLE_COMMANDS_PER_BATCH_MAX)):
            single, asker = self._singles.popleft()
            bodies.append(self._issue(single, time_ms, askers=(asker,)))
        return bodies

    def folded(self, command: Command) -> InFlightCommand:
        """Who waits for a command that was just folded."""
        taken = self._taken.popleft()
        if isinstance(command, HandedOverCommand) or (isinstance(command, DeletedCommand) and command.told is not None):
            self.handed_over.folded()
        assert command.term == self._term and command.sequence == taken.sequence, "a command that was not ours"
        self.outstanding -= len(taken.answers) + len(taken.askers) + len(taken.leases)
        self.fresh_picked -= taken.fresh_picked
        self.fresh_expired -= taken.fresh_expired
        self.live_expired -= taken.live_expired
        return taken

    def tokens(self) -> list[Token]:
        """Every request that is not answered yet, oldest first."""
        tokens: list[Token] = []
        parts: list[InFlightCommand | _CommandBuilder] = [*self._taken, *self._deletes, *self._changes]
        tokens += [lease.token for taken in self._taken for lease in taken.leases]
        tokens += [lease.token for lease in self._leased]
        for part in parts:
            tokens += [answer.token for answer in part.answers]
            tokens += [asker.token for asker in part.askers]
        tokens += [asker.token for _, asker in self._singles]
        return [token for token in tokens if token is not None]

    # --- inside -------------------------------------------------------------------------------------------------

    def _sizes_deleted(self, offsets: Sequence[int]) -> Sizes:
        """Of messages that a delete lets out of the queue: packed where all are known."""
        sizes: list[int | None] = self.handed_over.sizes_of(offsets)
        return pack_sizes(cast(list[int], sizes)) if sizes and None not in sizes else sizes

    def _acquisition(self, time_ms: int, deadline_ms: int) -> Acquisition:
        """Messages acquired at one time until one deadline. Only the last one is looked at: the times of a busy queue
        repeat back to back."""
        if self._acquisitions:
            last = self._acquisitions[-1]
            if last.time_ms == time_ms and last.deadline_ms == deadline_ms:
                return last
        acquisition = Acquisition(time_ms, deadline_ms, [], [])
        self._acquisitions.append(acquisition)
        return acquisition

    def _issue(
        self,
        command: Command,
        time_ms: int,
        answers: Sequence[CommandAnswer] = (),
        askers: Sequence[Requester] = (),
        fresh_picked: int = 0,
        fresh_expired: int = 0,
        live_expired: int = 0,
        leases: Sequence[StagedLease] = (),
    ) -> bytes:
        self._sequence += 1
        taken = InFlightCommand(self._sequence, answers, askers, fresh_picked, fresh_expired, live_expired, leases)
        self._taken.append(taken)
        command.term, command.sequence, command.time_ms = self._term, self._sequence, time_ms
        return encode_command(command)


def _open(merged_list: list[_CommandBuilder], fields: int) -> _CommandBuilder:
    """The command to merge into: the last one, or a new one when that is full."""
    if not merged_list or len(merged_list[-1].items) >= COMMAND_ITEMS_MAX * fields:
        merged_list.append(_CommandBuilder())
    return merged_list[-1]
