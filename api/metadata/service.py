"""Lookups from a full copy of the records, which the change feed keeps true; and who is told of every change.

    away       PostgreSQL does not answer. Nothing can have changed, so the copy is as good as the database: it answers
               without a deadline. What it does not hold cannot be known, and is refused at once: nobody is sent to a
               database that is away.
    reachable  LISTEN stands. What was missed is read from the log of changes (`feed_change`), or, where that does not
               reach back far enough, everything is loaded anew and compared. Until there is a copy, and for records
               that the copy does not hold, lookups read the database.
    refused    PostgreSQL takes no more connections, or did so last: changes may be made that are not heard of here. The
               copy answers for METADATA_STALENESS_MS_MAX from the first refusal on, then nothing does, until what was
               missed has been read. While LISTEN stands, this is not the case: changes are heard, and connections that
               are there serve
    live       reachable, and nothing is missing

A service that was started while PostgreSQL is away holds nothing, and says so to its subscribers: they go on from what
they hold, and compare it when the copy is there. Once it has reached PostgreSQL, and until it has loaded, changes may
be made that it cannot tell: then they go on for no longer than their own deadline.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from functools import partial
from typing import Literal, cast

import structlog
from prometheus_client import Counter, Gauge

from api import limits
from api.metadata.demands import DemandTable
from api.metadata.holding import Holding
from api.metadata.store import FeedPosition, MetadataStore, Missed, StoreFull, StoreUnavailable
from frontend.metadata.interface import MISS, Missing
from frontend.metadata.limits import METADATA_FILL_ATTEMPTS_MAX, METADATA_STALENESS_MS_MAX
from frontend.metadata.messages import Change, FeedState
from frontend.metadata.records import RecordKind

_READS = Counter("penstock_metadata_database_reads_total", "Records read from PostgreSQL one by one.")
_LOADS = Counter("penstock_metadata_loads_total", "Times that all records were loaded.")
_LIVE = Gauge("penstock_metadata_feed_live", "1 while changes are heard from PostgreSQL.")
_SUBSCRIBERS = Gauge("penstock_metadata_subscribers", "Front ends that follow the change feed.")
_HELD = Gauge("penstock_metadata_records_held", "Records in the copy.", ["kind"])
_BYTES = Gauge("penstock_metadata_bytes_held", "What the copy takes, by its own count.", ["kind"])
_COMPLETE = Gauge("penstock_metadata_copy_complete", "1 while the copy holds every record.", ["kind"])
# Where an absence refuses a caller for good ("there is no such queue"): said only while changes are heard. One that was
# made just before PostgreSQL was lost, or just after it came back, is not in the copy.
_DENIED_WHEN_ABSENT = frozenset((RecordKind.KEY, RecordKind.QUEUE))
_log = structlog.get_logger(__name__)


class Subscriber:
    """Somebody who follows the feed."""

    def tell(self, change: Change) -> None:
        raise NotImplementedError

    def tell_state(self, state: FeedState) -> None:
        raise NotImplementedError


class MetadataLookups:
    """The copy, its way to the database, and its subscribers."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._holdings = {
            RecordKind.ACCOUNT: Holding(limits.ACCOUNTS_HELD_BYTES_MAX),
            RecordKind.KEY: Holding(limits.KEYS_HELD_BYTES_MAX),
            RecordKind.QUEUE: Holding(limits.QUEUES_HELD_BYTES_MAX),
            RecordKind.ENCRYPTION_KEY: Holding(limits.ENCRYPTION_KEYS_HELD_BYTES_MAX),
        }
        self.demands = DemandTable()
        self._flights: dict[tuple[RecordKind, str], asyncio.Task[bytes | None]] = {}
        self._subscribers: set[Subscriber] = set()
        # Names this run of the feed. What is told within it is numbered; another epoch says: compare what you hold.
        self._epoch = secrets.token_hex(8)
        self._sequence = 0
        self._remembered: deque[Change] = deque(maxlen=limits.CHANGES_REMEMBERED_MAX)
        self._position: FeedPosition | None = None
        # Versions that were told, and that the next look at the log of changes may find again.
        self._told: set[int] = set()
        self._looking = asyncio.Lock()
        self._next_look: asyncio.Task[bool] | None = None
        self._due: asyncio.Queue[tuple[RecordKind, str]] = asyncio.Queue()
        self._refreshers: list[asyncio.Task[None]] = []
        self._reachable = False
        self._lost_at_ms = _unix_ms()
        # Nobody was there, at every look since the start. False before the first one.
        self._never_reached = False
        self._was_reached = False
        # When PostgreSQL refused a connection first since changes were heard last (steady clock); None: it did not.
        self._refused_at_s: float | None = None
        self.live = False

    @property
    def loaded(self) -> bool:
        return self._position is not None

    @property
    def is_refused(self) -> bool:
        """PostgreSQL has refused a connection since changes were heard last."""
        return self._refused_at_s is not None

    @property
    def is_outdated(self) -> bool:
        """The copy may not be used any more."""
        at_s = self._refused_at_s
        return at_s is not None and (time.monotonic() - at_s) * 1000 >= METADATA_STALENESS_MS_MAX

    def start(self) -> None:
        for kind, holding in self._holdings.items():
            _HELD.labels(kind.value).set_function(partial(len, holding))
            _BYTES.labels(kind.value).set_function(partial(getattr, holding, "bytes"))
            _COMPLETE.labels(kind.value).set_function(partial(getattr, holding, "complete"))
        self._refreshers = [
            asyncio.create_task(self._refresh_forever(), name="metadata-refresh")
            for _ in range(limits.METADATA_REFRESHERS)
        ]

    async def close(self) -> None:
        looks = () if self._next_look is None else (self._next_look,)
        tasks = (*self._refreshers, *self._flights.values(), *looks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- lookups ---

    def held(self, kind: RecordKind, key: str, fresh: bool) -> bytes | Literal[Missing.MISS] | None:
        """The encoded reply, None where there is no such record, or MISS: use `read`.

        `fresh` asks for what the database says now; while it is away that is what the copy holds.
        """
        if (fresh and self._reachable) or self.is_outdated:
            return MISS
        held = self._holdings[kind].get(key)
        # An absence is looked into first: the record may have been made a moment ago, and its announcement be on the
        # way, while its owner uses it already.
        return MISS if held is None and (self.live or kind in _DENIED_WHEN_ABSENT) else held

    async def read(self, kind: RecordKind, key: str, fresh: bool) -> bytes | None:
        """The encoded reply from the database, or an absence that it confirms. Raises StoreUnavailable."""
        if self.is_outdated:
            raise StoreFull("PostgreSQL takes no more connections, and the copy of the records is too old")
        if not fresh and self.live and self._holdings[kind].get(key) is None:
            looked = await self.confirm()
            if looked and self.live and self._holdings[kind].get(key) is None:
                return None
        if self.is_refused:
            raise StoreFull("PostgreSQL takes no more connections, and this record is not held here")
        if not self._reachable:
            raise StoreUnavailable("PostgreSQL is away, and this record is not held here")
        if fresh:
            # Not another's answer: that may have been read before the change that this caller knows of.
            return await self._fill(kind, key)
        flight = self._flights.get((kind, key))
        if flight is None:
            # A task of its own: whoever gives up waiting must not take the answer away from the others.
            flight = asyncio.create_task(self._fill(kind, key), name="metadata-read")
            self._flights[(kind, key)] = flight
            flight.add_done_callback(lambda done: self._land((kind, key), done))
        return await asyncio.shield(flight)

    async def confirm(self) -> bool:
        """Returns when a look at the log of changes that began after this call is over: False, it came to nothing. All
        who wait share the look: names that do not exist cost PostgreSQL next to nothing, however many are asked for."""
        if self._next_look is None:
            self._next_look = asyncio.create_task(self._look_next(), name="metadata-look")
        return await asyncio.shield(self._next_look)

    async def _look_next(self) -> bool:
        await asyncio.sleep(limits.METADATA_CONFIRM_MS / 1000)
        async with self._looking:
            self._next_look = None
            if self._position is None or not self.live:
                return False
            try:
                missed = await self._store.missed(self._position, limits.METADATA_READ_MS_MAX)
            except StoreUnavailable:
                return False  # away, or about to be found so
            if missed is not None:
                self._apply(missed)
            return True

    def outdated(self, kind: RecordKind, keys: list[str], versions: list[int]) -> list[str]:
        """Those of somebody's records that are not what they were."""
        holding = self._holdings[kind]
        # While PostgreSQL is away, what is not held here could not be had again either: its holder keeps it.
        doubtful = self._reachable
        return [key for key, version in zip(keys, versions, strict=True) if holding.is_outdated(key, version, doubtful)]

    def _land(self, name: tuple[RecordKind, str], flight: asyncio.Task[bytes | None]) -> None:
        del self._flights[name]
        if not flight.cancelled():
            flight.exception()  # marks it as seen where every waiter has left

    async def _fill(self, kind: RecordKind, key: str) -> bytes | None:
        holding = self._holdings[kind]
        for _ in range(METADATA_FILL_ATTEMPTS_MAX):
            fill = holding.begin(key)
            _READS.inc()
            try:
                row = await self._store.row(kind, key)
            except BaseException:
                holding.abandon(fill)
                raise
            if holding.finish(fill, row):
                return None if row is None else row.reply
        raise StoreUnavailable("the record changes faster than it can be read")

    # --- subscribers ---

    def subscribe(self, subscriber: Subscriber, epoch: str, sequence: int) -> None:
        """It heard the feed up to there: what came since is told now, or that it cannot be told."""
        self._subscribers.add(subscriber)
        _SUBSCRIBERS.set(len(self._subscribers))
        behind = self._sequence - sequence
        missed = epoch != self._epoch or not 0 <= behind <= len(self._remembered)
        if not missed and behind:
            for change in list(self._remembered)[-behind:]:
                subscriber.tell(change)
        subscriber.tell_state(self.state(missed))

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.discard(subscriber)
        _SUBSCRIBERS.set(len(self._subscribers))

    def state(self, missed: bool = False) -> FeedState:
        is_loaded = self.loaded and not self.is_outdated
        lost = (self._lost_at_ms, self._never_reached, self.is_refused)
        return FeedState(self._epoch, self._sequence, missed, is_loaded, *lost)

    def _tell_state(self) -> None:
        _LIVE.set(self.live)
        state = self.state()
        for subscriber in list(self._subscribers):
            subscriber.tell_state(state)

    # --- what the listener reports ---

    async def catch_up(self) -> None:
        """LISTEN stands, or it is time to look again. Raises StoreUnavailable."""
        was_live = self.live
        self._reachable = True
        ms_max = limits.METADATA_READ_MS_MAX if was_live else limits.METADATA_LOAD_MS_MAX
        async with self._looking:
            missed = None if self._position is None else await self._store.missed(self._position, ms_max)
            if missed is None:
                await self._load()
            else:
                self._apply(missed)
        if not was_live or missed is None:
            self.live, self._lost_at_ms, self._refused_at_s = True, 0, None
            self._ask_for_due()
            self._tell_state()

    def reached(self) -> None:
        """PostgreSQL is there, whether or not the copy can be loaded from it."""
        self._was_reached = True
        if self._never_reached:
            self._never_reached = False
            self._tell_state()

    def unreachable(self) -> None:
        """No connection could be made."""
        if not self._was_reached and not self._never_reached:
            self._never_reached = True
            self._tell_state()

    def refused(self) -> None:
        """PostgreSQL is there, and takes no more connections."""
        self._was_reached, self._never_reached = True, False
        if self._refused_at_s is None:
            self._refused_at_s = time.monotonic()
            self._tell_state()

    async def lost(self) -> None:
        """PostgreSQL does not answer any more."""
        if self._reachable:
            self._reachable = self.live = False
            self._lost_at_ms = self._lost_at_ms or _unix_ms()
            self._tell_state()
        await self._store.drop_connections()

    def heard(self, change: Change) -> None:
        """Own copy first: who hears of a change and asks again must not get the old record."""
        if change.version in self._told:
            return
        self._told.add(change.version)
        self._note(change)
        self._sequence += 1
        numbered = Change(change.kind, change.key, change.version, self._sequence)
        self._remembered.append(numbered)
        for subscriber in list(self._subscribers):
            subscriber.tell(numbered)

    def _apply(self, missed: Missed) -> None:
        if len(missed.changes) > limits.CHANGES_REMEMBERED_MAX:
            # Too many to tell one by one: subscribers compare.
            for change in missed.changes:
                self._note(change)
            self._begin_epoch()
            self._tell_state()
        else:
            for change in missed.changes:
                self.heard(change)
        self._position = missed.position
        # Their announcements may still be on the way.
        self._told = missed.again.union(change.version for change in missed.changes)

    def _note(self, change: Change) -> None:
        holding = self._holdings.get(cast(RecordKind, change.kind))
        if holding is None:
            return  # of a kind that a later release has: nobody here can hold one
        if holding.heard(change.key, change.version):
            self._due.put_nowait((RecordKind(change.kind), change.key))

    async def _load(self) -> None:
        """Everything anew; what is held stays in use meanwhile. Announcements wait until it is done."""
        started = time.monotonic()
        _LOADS.inc()
        async with self._store.snapshot() as snapshot:
            seen: dict[RecordKind, set[str]] = {kind: set() for kind in self._holdings}
            for kind, holding in self._holdings.items():
                holding.begin_load()
                async for rows in snapshot.rows(kind):
                    for row in rows:
                        holding.put(row)
                        seen[kind].add(row.key)
            for kind, keys in seen.items():
                self._holdings[kind].end_load(keys)
            self._position, self._told = snapshot.position, set()
        self._begin_epoch()
        counts = {kind.value: len(holding) for kind, holding in self._holdings.items()}
        _log.info("metadata_loaded", elapsed_ms=int((time.monotonic() - started) * 1000), **counts)

    def _begin_epoch(self) -> None:
        """Subscribers have missed what cannot be told."""
        self._epoch, self._sequence = secrets.token_hex(8), 0
        self._remembered.clear()

    # --- records that have changed ---

    def _ask_for_due(self) -> None:
        """Reads that failed while PostgreSQL was away."""
        for kind, holding in self._holdings.items():
            for key in holding.due:
                self._due.put_nowait((kind, key))

    async def _refresh_forever(self) -> None:
        while True:
            kind, key = await self._due.get()
            if self._reachable and self._holdings[kind].get(key) is MISS:
                try:
                    await self.read(kind, key, fresh=False)
                except StoreUnavailable as error:
                    _log.warning("record_not_read", kind=kind.value, reason=str(error))
                except Exception:  # our own bug: the record stays due, and is read when somebody asks
                    _log.exception("record_not_read", kind=kind.value)


def _unix_ms() -> int:
    return int(time.time() * 1000)
