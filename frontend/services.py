"""Holds everything a request may touch in one object that is built once. Tests build it from parts of their own."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from frontend.authn.authenticator import Authenticator
from frontend.crypto.keyring import Keyring
from frontend.crypto.message_ids import MessageIds
from frontend.crypto.message_tokens import MessageTokens
from frontend.crypto.receipts import ReceiptMaker
from frontend.errors import RequestError
from frontend.limits import (
    ADDRESS_REQUESTS_PER_S,
    BROWSER_CALLS_MAX,
    BULK_SENDS_MAX,
    POLLS_PARKED_MAX,
    SENDS_TO_ALL_MAX,
    SOCKETS_MAX,
    SOCKETS_WITHOUT_KEY_MAX,
    STORAGE_CALLS_IN_FLIGHT_MAX,
)
from frontend.limits.gcra import LeakyBuckets
from frontend.limits.quota_tree import QuotaTree
from frontend.metadata.account_quotas import AccountQuotas
from frontend.metadata.interface import MetadataService
from frontend.metering.meters import Meters
from frontend.metering.request_counts import RequestCounts
from frontend.queues.names import Address
from frontend.queues.resolver import QueueResolver
from frontend.readiness import Trouble
from frontend.refused_calls import RefusedCalls
from frontend.routing.bulkhead import Bulkhead
from frontend.routing.storage import MessageStorage

if TYPE_CHECKING:
    from frontend.control import ControlPlane
    from frontend.routing.poll import Lease


class FrontendServices:
    """The stages of the message path and what they share."""

    def __init__(
        self,
        *,
        region: str,
        more_regions: Collection[str] = (),
        storage: MessageStorage,
        metadata: MetadataService,
        control: ControlPlane,
        keyring: Keyring,
        pepper: bytes,
        receipt_key: bytes,
        page_key: bytes = b"",
        quotas: QuotaTree | None = None,
        addresses: LeakyBuckets | None = None,
        now_s: Callable[[], float] = time.time,
        steady_s: Callable[[], float] = time.monotonic,
        metadata_serves: Callable[[], bool] = lambda: True,
        metadata_troubles: Callable[[], list[Trouble]] = list,
        metadata_look: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.region = region
        self.storage = storage
        self.metadata = metadata
        self.control = control
        self.authenticator = Authenticator(
            metadata, keyring, pepper, (region, *more_regions), now_s, steady_s, page_key
        )
        self.queues = QueueResolver(metadata, keyring)
        self.receipts = ReceiptMaker(receipt_key)
        self.message_ids = MessageIds(receipt_key)
        self.message_tokens = MessageTokens(receipt_key)
        known = AccountQuotas(metadata)
        self.account_limits = known.limits_of
        self.quotas = quotas if quotas is not None else _quota_tree(known)
        self.addresses = addresses if addresses is not None else LeakyBuckets(ADDRESS_REQUESTS_PER_S)
        control.limit_calls(lambda caller: self.quotas.limits(caller.account_id, caller.name).control_calls)
        self.meters = Meters()
        self.request_counts = RequestCounts(
            int(now_s() * 1000), lambda amount: self.meters.count("request_counts_dropped", amount)
        )
        self.refused_calls = RefusedCalls()
        self.now_s = now_s
        # For rates: a clock that is set moves no bucket.
        self.steady_s = steady_s
        self.metadata_serves = metadata_serves
        self._metadata_troubles = metadata_troubles
        self._metadata_look = metadata_look
        self.storage_calls = Bulkhead("storage", STORAGE_CALLS_IN_FLIGHT_MAX)
        self.sends_to_all = Bulkhead("send with acks all", SENDS_TO_ALL_MAX)
        self.browser_calls = Bulkhead("message browser", BROWSER_CALLS_MAX)
        self.bulk_sends = Bulkhead("bulk send", BULK_SENDS_MAX)
        # By account: which of its sockets may look for a place among them. Gone with the last one that waits.
        self.bulk_turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.polls = Bulkhead("long poll", POLLS_PARKED_MAX)
        self.sockets = Bulkhead("websocket", SOCKETS_MAX)
        self.open_sockets = Bulkhead("websocket without a key", SOCKETS_WITHOUT_KEY_MAX)  # by address
        self.parked: set[asyncio.Task[list[Lease]]] = set()
        self.creations: dict[Address, asyncio.Task[None]] = {}  # of queues that are made by sends to them
        self.stopping = asyncio.Event()
        self._add_gauges()

    async def look(self) -> None:
        """Before `troubles`: what hangs is found by a question alone."""
        if self._metadata_look is not None:
            await self._metadata_look()

    def troubles(self) -> list[Trouble]:
        """What this front end needs and does not have."""
        stopping = [Trouble("front end", "It is about to stop.", int(self.now_s() * 1000))]
        return [*(stopping if self.stopping.is_set() else ()), *self._metadata_troubles(), *self.control.troubles()]

    async def note_quota(self, account_id: str, name: str, level: str, percent: int, subject: str) -> None:
        """Into the audit trail, if that can be reached. What was not written stands in the log alone."""
        with contextlib.suppress(RequestError):
            await self.control.note_quota(account_id, name, level, percent, subject)

    def drain(self) -> None:
        """The process is about to stop: parked polls answer empty, sockets close, new ones are refused."""
        self.stopping.set()
        for poll in list(self.parked):
            poll.cancel()

    def _add_gauges(self) -> None:
        self.meters.gauge("storage_calls_in_flight", lambda: self.storage_calls.calls)
        self.meters.gauge("polls_parked", lambda: self.polls.calls)
        self.meters.gauge("websockets_open", lambda: self.sockets.calls)


def _quota_tree(known: AccountQuotas) -> QuotaTree:
    return QuotaTree(
        known.limits_of, known.installation, key_rates_of=known.key_rates_of, queue_rates_of=known.queue_rates_of
    )
