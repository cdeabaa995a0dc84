"""Tasks of REST: look through what the queue held when the task began, in log order, and move what is wanted.

    look     a page of messages from where the task stands; nothing is leased, so what stays is as it was
    match    the task's filter, in the words of the message browser
    send     copies that keep id and history; answered when a majority has fsynced
    remove   the messages themselves (R30: a crash between repeats the send, which the target drops while it remembers)
    watch    what arrived since the task began: messages that it moved, and that died again

A page is looked at in order and sent in order, and a group goes to one partition of the target: its order is kept. In a
FIFO queue the task waits before a wanted message that somebody has leased; a standard queue keeps it (`skipped`).
What comes back stands behind the end that the task was given, so no message goes round.
"""

from __future__ import annotations

from typing import NamedTuple

import structlog

from api import limits
from api.queues import moving
from api.queues.moving import MoveClaim, ScanProgress
from frontend.message_browser.filters import EVERYTHING, MessageFilter, filter_of, matches
from frontend.message_browser.view import BrowsedView, see, unopened
from frontend.messages.opening import KeyNotGranted
from frontend.messages.storage_errors import check_taken
from frontend.queues.resolver import ResolvedQueue
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import BrowsedMessage, MessageState, QueueBrowseReply
from workers.moves.letters import copy_of, partition_for
from workers.moves.work import MoveFailed, MoveStorage, Slice, Step, Tools

_log = structlog.get_logger(__name__)

# Position of a partition.
_NEXT, _END, _WATCHED = range(3)
# A share says nothing of fewer messages.
PERCENT_OF_MIN = 100


class _Wanted(NamedTuple):
    target: ResolvedQueue
    seen: BrowsedView
    body: bytes


class _Page(NamedTuple):
    """What a look at the source came to. The task stands still before a FIFO message that is wanted and leased."""

    wanted: list[_Wanted]
    next_offset: int
    scanned: int
    matched: int
    skipped: int


class ScanSlice(Slice):
    def __init__(self, claim: MoveClaim, tools: Tools) -> None:
        super().__init__(claim, tools)
        assert claim.scan is not None
        self._task = claim.scan
        self._filter: MessageFilter = EVERYTHING if self._task.filter is None else filter_of(self._task.filter)
        self._position = {name: list(places) for name, places in self._task.position.items()}
        self._moved = self._task.moved
        self._returned = self._task.returned
        self._turn = 0  # whose partition is watched next

    def count_once(self) -> None:
        if self._filter == EVERYTHING and not self._task.dry_run:
            super().count_once()

    def step(self) -> Step:
        if not self._position:
            self._position = self.in_storage(self._ends)
        partition = self._partition()
        if partition is None:
            returned = sum(self._watch(name) for name in self._position)
            return self._checked(Step(0, ScanProgress(self._position, returned=returned), over=True))
        names = list(self._position)
        returned = self._watch(names[self._turn % len(names)])
        self._turn += 1
        places = self._position[str(partition)]
        page = self._read(partition, self._look(partition, places[_NEXT]))
        if page.wanted:
            self.in_storage(lambda client: self._deliver(client, partition, page.wanted))
        stands = page.next_offset <= places[_NEXT]
        places[_NEXT] = max(places[_NEXT], page.next_offset)
        progress = ScanProgress(self._position, page.scanned, page.matched, page.skipped, returned)
        wait_ms = limits.MOVE_RETRY_MS if stands and not page.wanted else 0
        return self._checked(Step(len(page.wanted), progress, wait_ms=wait_ms))

    # --- looking ------------------------------------------------------------------------------------------------

    async def _ends(self, client: MoveStorage) -> dict[str, list[int]]:
        """Where the task begins and ends: what arrives later is not its business, but for what comes back."""
        position = {}
        for partition in self.source.partitions:
            end = (await client.browse(partition, 0, 1)).log_end
            position[str(partition)] = [0, end, end]
        return position

    def _look(self, partition: int, from_offset: int) -> QueueBrowseReply:
        count = limits.MOVE_PAGE_MESSAGES_MAX
        reply: QueueBrowseReply = self.in_storage(lambda client: client.browse(partition, from_offset, count))
        return reply

    def _partition(self) -> int | None:
        """The first that is not through."""
        for partition in self.source.partitions:
            places = self._position.get(str(partition))
            if places is not None and places[_NEXT] < places[_END]:
                return partition
        return None

    def _read(self, partition: int, reply: QueueBrowseReply) -> _Page:
        end, room = self._position[str(partition)][_END], self.batch_max()
        wanted: list[_Wanted] = []
        scanned = matched = skipped = size_bytes = 0
        for message in reply.messages:
            if message.offset >= end:
                break
            seen = self._see(partition, message)
            if not self._is_wanted(seen):
                scanned += 1
                skipped += seen.record is None
                continue
            if self._task.dry_run:
                scanned, matched = scanned + 1, matched + 1
                continue
            if seen.state is not MessageState.WAITING:
                if self.source.fifo is not None:
                    return _Page(wanted, message.offset, scanned, matched, skipped)
                scanned, matched, skipped = scanned + 1, matched + 1, skipped + 1
                continue
            body = self._copy(seen)
            size_bytes += len(body.body)
            if wanted and (len(wanted) >= room or size_bytes > limits.MOVE_BATCH_BYTES_MAX):
                return _Page(wanted, message.offset, scanned, matched, skipped)
            wanted.append(body)
            scanned, matched = scanned + 1, matched + 1
        return _Page(wanted, min(reply.next_offset, end), scanned, matched, skipped)

    def _see(self, partition: int, message: BrowsedMessage) -> BrowsedView:
        try:
            return see(self.ids, self.source, partition, message)
        except KeyNotGranted:
            return unopened(partition, message)

    def _is_wanted(self, seen: BrowsedView) -> bool:
        if seen.record is None or not seen.state & self._filter.state_bits:
            return False
        return matches(self._filter, seen, self._task.started_ms)

    # --- moving -------------------------------------------------------------------------------------------------

    def _copy(self, seen: BrowsedView) -> _Wanted:
        assert seen.record is not None
        target = self.target_of(seen.record.dead)
        return _Wanted(target, seen, copy_of(target, self.source, seen, str(self._task.uuid)))

    async def _deliver(self, client: MoveStorage, partition: int, wanted: list[_Wanted]) -> None:
        bodies: dict[int, list[bytes]] = {}
        for target, seen, body in wanted:
            bodies.setdefault(partition_for(target, seen), []).append(body)
        for target_partition, sent in bodies.items():
            check_taken(await client.send(target_partition, sent, False))
        codes = await client.remove(partition, [seen.offset for _, seen, _ in wanted])
        left = sum(code is not ErrorCode.OK for code in codes)
        if left:
            # Received and deleted, due, expired or a dead letter by then: such a message may stand in two places.
            _log.warning("messages_left_during_move", task=str(self._task.uuid), partition=partition, messages=left)

    # --- watching -----------------------------------------------------------------------------------------------

    def _watch(self, name: str) -> int:
        """How many of the messages that this task moved came back to a partition since the last look; a page of it."""
        if self._task.dry_run:
            return 0
        places, partition = self._position[name], int(name)
        reply = self._look(partition, places[_WATCHED])
        places[_WATCHED] = max(places[_WATCHED], reply.next_offset)
        contents = [self._see(partition, message).content for message in reply.messages]
        histories = [content.history for content in contents if content is not None and content.history is not None]
        return sum(history.task == str(self._task.uuid) for history in histories)

    def _checked(self, step: Step) -> Step:
        """Raises MoveFailed when more came back than may."""
        assert step.scan is not None
        self._moved += step.moved
        self._returned += step.scan.returned
        task = self._task
        too_many = task.returned_max is not None and self._returned > task.returned_max
        if task.returned_percent_max is not None and self._moved >= PERCENT_OF_MIN:
            too_many = too_many or 100 * self._returned > task.returned_percent_max * self._moved
        if too_many:
            moving.note_progress(self.claim, step.moved, step.scan)
            raise MoveFailed(f"{self._returned} of {self._moved} messages that were moved died again and came back.")
        return step
