"""Storage and metadata for tests of the front end: small, in one process, with an injected clock.

`FakeStorage` keeps the rules the front end depends on: leases with delivery numbers, long polls that wake, errors
by code; of FIFO queues groups, duplicates and attempts; dead letters. `configs` says what a partition is.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

import msgspec

from frontend.crypto.keyring import Keyring
from frontend.limits import QUEUE_NAME_CHARS_MAX
from frontend.metadata.interface import MISS, MetadataUnavailable, Missing
from frontend.metadata.records import (
    AccountRecord,
    DataKeyGrantRecord,
    DataKeyRecord,
    EncryptionKeyRecord,
    KeyRecord,
    PartitionRecord,
    QueueRecord,
)
from storage_nodes.model import Acks
from storage_nodes.node.replicas.queue_checks import check_count
from storage_nodes.protocol.deliveries import released
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import (
    NOT_TAKEN,
    AcquiredMessage,
    AcquireReply,
    BrowsedMessage,
    DeadSource,
    DeathReason,
    MessageState,
    ParkedGroup,
    ParkedGroupsReply,
    QueueBrowseReply,
    QueueConfig,
    QueueStats,
    ScheduledMessage,
    ScheduledReply,
    SendReply,
    VisibilityMode,
    encode_message,
)
from storage_nodes.protocol.records import (
    HEADER_DEAD_SOURCE,
    HEADER_DEDUP,
    HEADER_DELAY_MS,
    HEADER_DUE,
    HEADER_GROUP,
    HEADER_TAG,
    decode_body,
    encode_body,
)

EPOCH = 7
BROWSED_MAX = 50


class _Stored:
    def __init__(self, body: bytes, sent_ms: int, visible_ms: int, group: bytes | None = None) -> None:
        self.body = body
        self.group = group
        self.sent_ms = sent_ms
        self.visible_ms = visible_ms
        self.scheduled = False
        self.delivery = 0
        self.first_received_ms = 0


class FakeStorage:
    """`fail_with` makes every call raise, with `fail_text`; `codes` are what delete and change_visibility answer."""

    def __init__(self, now_s: Callable[[], float], partitions: Sequence[int] = (1,)) -> None:
        self._now_s = now_s
        self.logs: dict[int, list[_Stored | None]] = {partition: [] for partition in partitions}
        self.configs: dict[int, QueueConfig] = {}
        self.duplicates: dict[tuple[int, bytes], tuple[int, int]] = {}
        self.attempts: dict[tuple[int, bytes], tuple[int, list[AcquiredMessage]]] = {}
        self.calls: list[tuple[str, int]] = []
        self.plain: list[bool] = []
        self.acks: list[Acks] = []
        self.modes: list[VisibilityMode] = []
        self.parked: list[ParkedGroup] = []  # of any partition, by name
        self.fail_with: ErrorCode | None = None
        self.fail_text = ""
        self.codes: list[ErrorCode] | None = None
        self.cancelled = 0
        self.page_max = 1_000  # scheduled messages that a partition shows at a time
        self.polls = 0
        self._arrived = asyncio.Event()

    async def send(
        self, partition: int, bodies: list[bytes], plain: bool = True, acks: Acks = Acks.QUORUM
    ) -> SendReply:
        log = self._log("send", partition)
        self.plain.append(plain)
        self.acks.append(acks)
        first, now_ms = len(log), self._now_ms()
        config = self.configs.get(partition, QueueConfig())
        fifo = config.fifo
        duplicates = []
        for index, body in enumerate(bodies):
            headers = dict(decode_body(body).headers)
            assert not (plain and headers), "plain promises that no record has headers"
            assert not fifo or 1 <= len(headers[HEADER_GROUP]) <= 128
            name = _letter_name(headers) or headers.get(HEADER_DEDUP)
            if fifo or name is not None:
                assert name is not None and 1 <= len(name) <= 128
                original, until_ms = self.duplicates.get((partition, name), (0, 0))
                if until_ms > now_ms or config.closed:
                    original = original if until_ms > now_ms else NOT_TAKEN
                    duplicates.append((index, original))
                    log.append(None)
                    continue
                self.duplicates[(partition, name)] = (len(log), now_ms + 300_000)
            delay_ms = int(headers.get(HEADER_DELAY_MS, b"0"))
            due = headers.get(HEADER_DUE, b"")
            visible_ms = int(due) + (now_ms if due.startswith(b"+") else 0) if due else now_ms + delay_ms
            log.append(_Stored(body, now_ms, visible_ms, headers.get(HEADER_GROUP) if fifo else None))
            log[-1].scheduled = bool(due)
        self._arrived.set()
        return SendReply(first, now_ms, duplicates)

    async def acquire(
        self,
        partition: int,
        max_messages: int,
        visibility_ms: int,
        wait_ms: int = 0,
        attempt: bytes = b"",
        tags: Sequence[bytes] = (),
    ) -> AcquireReply:
        assert max_messages >= (0 if attempt else 1)
        log = self._log("acquire", partition)
        if self.configs.get(partition, QueueConfig()).paused and not wait_ms:
            return AcquireReply(EPOCH, [])
        self._bury(partition, log)
        messages = self._again(partition, attempt, visibility_ms) or self._take(log, max_messages, visibility_ms, tags)
        if messages and attempt:
            self.attempts[(partition, attempt)] = (self._now_ms() + 300_000, messages)
        if messages or not wait_ms:
            return self._reply(log, messages)
        self.polls += 1
        try:
            async with asyncio.timeout(wait_ms / 1000):
                while not messages:
                    self._arrived.clear()
                    await self._arrived.wait()
                    messages = self._take(log, max_messages, visibility_ms, tags)
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.polls -= 1
        return self._reply(log, messages)

    async def delete(self, partition: int, receipts: Sequence[tuple[int, int]]) -> list[ErrorCode]:
        check_count(len(receipts))
        log = self._log("delete", partition)
        if self.codes is not None:
            return self.codes
        codes = []
        for offset, delivery in receipts:
            stored = log[offset] if offset < len(log) else None
            if stored is not None and stored.group is not None and not self._is_held(stored, delivery):
                codes.append(ErrorCode.RECEIPT_STALE)
                continue
            if stored is not None:
                log[offset] = None
            codes.append(ErrorCode.OK)
        self._arrived.set()
        return codes

    async def change_visibility(
        self,
        partition: int,
        changes: Sequence[tuple[int, int, int]],
        mode: VisibilityMode = VisibilityMode.SET,
        epoch: int = 0,
        deadline_ms: int = 0,
    ) -> list[ErrorCode]:
        check_count(len(changes))
        log = self._log("change_visibility", partition)
        self.modes.append(mode)
        if self.codes is not None:
            return self.codes
        codes = []
        for offset, delivery, visibility_ms in changes:
            stored = log[offset] if offset < len(log) else None
            if stored is None:
                codes.append(ErrorCode.UNKNOWN_RECORD)
            elif deadline_ms and stored.visible_ms != deadline_ms:
                codes.append(ErrorCode.RECEIPT_STALE)
            elif self._is_held(stored, delivery) or (stored.group is None and mode == VisibilityMode.SET):
                stored.visible_ms = self._now_ms() + visibility_ms
                if mode in (VisibilityMode.UNCOUNTED, VisibilityMode.UNSEEN):
                    stored.delivery = released(stored.delivery)
                codes.append(ErrorCode.OK)
            else:
                codes.append(ErrorCode.NOT_IN_FLIGHT if stored.group is None else ErrorCode.RECEIPT_STALE)
        self._arrived.set()
        return codes

    def _is_held(self, stored: _Stored, delivery: int) -> bool:
        return stored.delivery == delivery and stored.visible_ms > self._now_ms()

    async def browse(self, partition: int, from_offset: int, messages_max: int, states: int = 7) -> QueueBrowseReply:
        """Looks at BROWSED_MAX offsets at most, as a node reads a piece of its log."""
        log, now_ms = self._log("browse", partition), self._now_ms()
        found: list[BrowsedMessage] = []
        end = min(len(log), from_offset + BROWSED_MAX)
        for offset in range(from_offset, end):
            stored = log[offset]
            if stored is None:
                continue
            hidden = stored.visible_ms > now_ms
            state = MessageState.WAITING
            if hidden:
                state = MessageState.IN_FLIGHT if stored.delivery else MessageState.DELAYED
            if not state & states:
                continue
            deadline_ms = stored.visible_ms if hidden else 0
            times = (deadline_ms, stored.sent_ms, stored.body, stored.first_received_ms)
            found.append(BrowsedMessage(offset, state, stored.delivery, *times))
            if len(found) == messages_max:
                return QueueBrowseReply(found, offset + 1, len(log))
        return QueueBrowseReply(found, max(end, from_offset), len(log))

    async def remove(self, partition: int, offsets: Sequence[int], moved: bool = False) -> list[ErrorCode]:
        log = self._log("remove", partition)
        codes = []
        for offset in offsets:
            stands = offset < len(log) and log[offset] is not None
            codes.append(ErrorCode.OK if stands else ErrorCode.UNKNOWN_RECORD)
            if stands:
                log[offset] = None
        return codes

    async def purge(self, partition: int) -> int:
        log = self._log("purge", partition)
        count = sum(stored is not None for stored in log)
        log[:] = [None] * len(log)
        return count

    async def scheduled(
        self, partition: int, messages_max: int, after: tuple[int, int] = (-1, -1), until_ms: int = 2**63 - 1
    ) -> ScheduledReply:
        log = self._log("scheduled", partition)
        found = sorted(
            (one.visible_ms, offset, one.body)
            for offset, one in enumerate(log)
            if one is not None and one.scheduled and self._now_ms() < one.visible_ms <= until_ms
        )
        found = [one for one in found if one[:2] > after]
        shown = found[: min(messages_max, self.page_max)]
        last = shown[-1][:2] if shown else after
        messages = [ScheduledMessage(offset, due_ms, body) for due_ms, offset, body in shown]
        return ScheduledReply(messages, *last, len(found) > len(shown))

    async def reschedule(self, partition: int, changes: Sequence[tuple[int, int]]) -> list[ErrorCode]:
        log = self._log("reschedule", partition)
        codes = []
        for offset, due_ms in changes:
            one = log[offset] if offset < len(log) else None
            if one is None or not one.scheduled or one.visible_ms <= self._now_ms():
                codes.append(ErrorCode.NOT_SCHEDULED)
                continue
            codes.append(ErrorCode.OK)
            one.visible_ms = due_ms
            if not due_ms:
                log[offset] = None
        return codes

    async def parked_groups(self, partition: int, after: bytes, groups_max: int) -> ParkedGroupsReply:
        self._log("parked_groups", partition)
        page = [one for one in self.parked if one.group > after][:groups_max]
        return ParkedGroupsReply(page, len(self.parked))

    async def unpark(self, partition: int, groups: list[bytes]) -> list[ErrorCode]:
        self._log("unpark", partition)
        held = {one.group for one in self.parked}
        codes = [ErrorCode.OK if group in held else ErrorCode.UNKNOWN_RECORD for group in groups or held]
        self.parked = [one for one in self.parked if groups and one.group not in groups]
        return codes

    async def stats(self, partition: int) -> QueueStats:
        now_ms = self._now_ms()
        alive = [stored for stored in self._log("stats", partition) if stored is not None]
        hidden = [stored for stored in alive if stored.visible_ms > now_ms]
        in_flight = sum(stored.delivery > 0 for stored in hidden)
        return QueueStats(len(alive) - len(hidden), in_flight, len(hidden) - in_flight)

    def count(self) -> int:
        return sum(stored is not None for log in self.logs.values() for stored in log)

    def swap(self, partition: int, first: int, second: int) -> None:
        """What an attacker at a node might do: put one message's bytes in the place of another's."""
        log = self.logs[partition]
        log[first], log[second] = log[second], log[first]

    def _take(
        self, log: list[_Stored | None], max_messages: int, visibility_ms: int, tags: Sequence[bytes]
    ) -> list[AcquiredMessage]:
        now_ms = self._now_ms()
        taken = []
        locked: set[bytes] = set()
        for offset, stored in enumerate(log):
            if stored is None or stored.group in locked:
                continue
            if tags and dict(decode_body(stored.body).headers).get(HEADER_TAG) not in tags:
                continue
            if stored.visible_ms > now_ms:
                if stored.group is not None:
                    locked.add(stored.group)
                continue
            if len(taken) == max_messages:
                break
            stored.delivery += 1
            stored.first_received_ms = stored.first_received_ms or now_ms
            stored.visible_ms = now_ms + visibility_ms
            taken.append(
                AcquiredMessage(offset, stored.delivery, stored.sent_ms, stored.first_received_ms, stored.body)
            )
        return taken

    def _again(self, partition: int, attempt: bytes, visibility_ms: int) -> list[AcquiredMessage]:
        """The messages of an attempt that is repeated, unless something became of them meanwhile."""
        until_ms, messages = self.attempts.get((partition, attempt), (0, []))
        now_ms = self._now_ms()
        stored = [self.logs[partition][message.offset] for message in messages]
        if until_ms <= now_ms or any(one is None or one.visible_ms <= now_ms for one in stored):
            return []
        for one in stored:
            assert one is not None
            one.visible_ms = now_ms + visibility_ms + (one.visible_ms == now_ms + visibility_ms)
        return messages

    def _reply(self, log: list[_Stored | None], messages: list[AcquiredMessage]) -> AcquireReply:
        leased = [log[message.offset] for message in messages]
        deadlines_ms = {one.visible_ms for one in leased if one is not None and one.group is not None}
        return AcquireReply(EPOCH, messages, max(deadlines_ms, default=0))

    def _bury(self, partition: int, log: list[_Stored | None]) -> None:
        """Messages that were received often enough move to the dead-letter partition."""
        config = self.configs.get(partition)
        if config is None or not config.max_receives:
            return
        for offset, stored in enumerate(log):
            if stored is None or stored.visible_ms > self._now_ms() or stored.delivery < config.max_receives:
                continue
            record = decode_body(stored.body)
            source = encode_message(
                DeadSource(
                    partition,
                    offset,
                    stored.sent_ms,
                    stored.first_received_ms,
                    stored.delivery,
                    DeathReason.MAX_RECEIVES,
                    stored.visible_ms,
                    config.max_receives,
                )
            )
            body = encode_body(record.value, record.key, [*record.headers, (HEADER_DEAD_SOURCE, source)])
            log[offset] = None
            group = stored.group
            self.logs[config.dead_letter_partition].append(_Stored(body, self._now_ms(), self._now_ms(), group))

    def _log(self, call: str, partition: int) -> list[_Stored | None]:
        self.calls.append((call, partition))
        if self.fail_with is not None:
            raise StorageError(self.fail_with, self.fail_text)
        if partition not in self.logs:
            raise StorageError(ErrorCode.UNKNOWN_PARTITION)
        return self.logs[partition]

    def _now_ms(self) -> int:
        return int(self._now_s() * 1000)


class FakeMetadata:
    """Records by key. `cold` makes the cache miss, so that the asynchronous way is taken; `down` raises."""

    def __init__(self) -> None:
        self.keys: dict[str, KeyRecord] = {}
        self.queues: dict[tuple[str, str], QueueRecord] = {}
        self.accounts: dict[str, AccountRecord] = {}
        self.encryption_keys: dict[str, EncryptionKeyRecord] = {}
        self.cold = False
        self.down = False
        self.lookups: list[tuple[str, ...]] = []

    def cached_key(self, access_key_id: str) -> KeyRecord | Missing | None:
        return MISS if self.cold or self.down else self.keys.get(access_key_id)

    def cached_queue(self, account_id: str, name: str) -> QueueRecord | Missing | None:
        return MISS if self.cold or self.down else self.queues.get((account_id, name))

    def cached_account(self, account_id: str) -> AccountRecord | Missing | None:
        return MISS if self.cold or self.down else self.accounts.get(account_id)

    def cached_encryption_key(self, key_id: str) -> EncryptionKeyRecord | Missing | None:
        return MISS if self.cold or self.down else self.encryption_keys.get(key_id)

    async def get_encryption_key(self, account_id: str, key_id: str) -> EncryptionKeyRecord | None:
        self._look("encryption key", key_id)
        return self.encryption_keys.get(key_id)

    async def refresh_encryption_key(self, account_id: str, key_id: str) -> EncryptionKeyRecord | None:
        self._look("refresh", key_id)
        return self.encryption_keys.get(key_id)

    async def get_key(self, access_key_id: str) -> KeyRecord | None:
        self._look("key", access_key_id)
        return self.keys.get(access_key_id)

    async def get_queue(self, account_id: str, name: str) -> QueueRecord | None:
        self._look("queue", account_id, name)
        return self.queues.get((account_id, name))

    async def get_account(self, account_id: str) -> AccountRecord | None:
        self._look("account", account_id)
        return self.accounts.get(account_id)

    async def refresh_queue(self, account_id: str, name: str) -> QueueRecord | None:
        self._look("refresh", account_id, name)
        return self.queues.get((account_id, name))

    async def look_up_queue(self, asker: str, account_id: str, name: str) -> QueueRecord | None:
        self._look("look up", asker, account_id, name)
        return self.queues.get((account_id, name))

    async def repeat_look_up(self, asker: str, account_id: str, name: str) -> None:
        self._look("look up", asker, account_id, name)

    def _look(self, *what: str) -> None:
        if self.down:
            raise MetadataUnavailable("down")
        assert all(len(word) <= QUEUE_NAME_CHARS_MAX + 1 for word in what), "a caller's text is looked up unbounded"
        self.lookups.append(what)


def queue_record(
    keyring: Keyring,
    account_id: str,
    name: str,
    partitions: Sequence[int] = (1,),
    attributes: dict[str, str] | None = None,
    state: str = "active",
    key_grants: Sequence[DataKeyGrantRecord] = (),
    layout: Sequence[PartitionRecord] = (),
) -> QueueRecord:
    """A queue with real, wrapped keys; its uuid follows from its name."""
    queue_uuid = f"{account_id}{name}".encode().ljust(16, b".")[-16:]
    account_key = keyring.new_account_key(account_id)
    data_keys = [DataKeyRecord(1, keyring.new_data_key(account_id, account_key, queue_uuid, 1))]
    return QueueRecord(
        account_id,
        name,
        queue_uuid,
        list(partitions),
        state,
        attributes or {},
        name.endswith(".fifo"),
        account_key,
        data_keys,
        1_700_000_000_000,
        1_700_000_001_000,
        1,
        list(key_grants),
        list(layout),
    )


async def settle(condition: Callable[[], bool], turns: int = 500) -> None:
    """Let the event loop run until the condition holds; fails after so many turns."""
    for _ in range(turns):
        if condition():
            return
        await asyncio.sleep(0)
    with contextlib.suppress(AssertionError):
        assert condition()
    raise AssertionError("the condition did not come true")


def _letter_name(headers: dict[bytes, bytes]) -> bytes | None:
    """Where a dead letter lay: a second copy of it is none."""
    if HEADER_DEAD_SOURCE not in headers:
        return None
    source = msgspec.msgpack.decode(headers[HEADER_DEAD_SOURCE], type=DeadSource)
    return b"letter/%d/%d" % (source.partition, source.place)
