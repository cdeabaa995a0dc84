"""Rounds of deliveries: one at a time in an installation, with places that the accounts share.

Rows are claimed and noted by the thread of the round. The calls are on an event loop of a thread of its own: an
endpoint that does not answer keeps a place of its account, and nothing else waits for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import FIRST_COMPLETED, Future, wait
from time import monotonic
from typing import Any

import structlog

from api import clock
from api.settings.server_urls import DATABASE_URL, server_url
from api.webhooks import deliveries, limits
from api.webhooks.actions import call_policy
from api.webhooks.deliveries import CallOutcome, ClaimedDelivery
from api.webhooks.models import CallResult
from workers.limits import WEBHOOK_CLAIM_KEY
from workers.schedule import ScheduleLock
from workers.webhooks.calls import call_webhook

_log = structlog.get_logger(__name__)
_THREAD_STOP_S_MAX = 5.0

Call = Callable[[ClaimedDelivery, int], Coroutine[Any, Any, CallOutcome]]


class CallThread:
    """An event loop for the calls of a round."""

    def __enter__(self) -> CallThread:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="webhook-calls", daemon=True)
        self._thread.start()
        return self

    def begin(self, call: Coroutine[Any, Any, CallOutcome]) -> Future[CallOutcome]:
        return asyncio.run_coroutine_threadsafe(call, self._loop)

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_THREAD_STOP_S_MAX)
        if not self._thread.is_alive():
            self._loop.close()


def deliver_webhooks() -> int:
    """How many calls were made. Where another worker does a round: none."""
    claim = ScheduleLock(server_url(DATABASE_URL), WEBHOOK_CLAIM_KEY)
    try:
        return run_round(_call_by_settings()) if claim.hold() else 0
    finally:
        claim.release()


def run_round(call: Call) -> int:
    """Claims as long as the round lasts; waits for what it began."""
    deliveries.end_lost_deliveries(clock.now())
    ends_s, made = monotonic() + limits.DELIVER_ROUND_S, 0
    under_way: dict[Future[CallOutcome], ClaimedDelivery] = {}
    with CallThread() as calls:
        while True:
            places = limits.CALLS_AT_ONCE_MAX - len(under_way)
            if places and monotonic() < ends_s:
                now = clock.now()
                busy = Counter(one.account_id for one in under_way.values())
                for claimed in deliveries.claim_deliveries(now, places, busy):
                    under_way[calls.begin(call(claimed, int(now.timestamp())))] = claimed
            if not under_way:
                return made
            done, _ = wait(under_way, limits.DELIVER_LOOK_S, FIRST_COMPLETED)
            for future in done:
                _note(under_way.pop(future), future)
                made += 1


def _call_by_settings() -> Call:
    policy = call_policy()
    return lambda claimed, signed_s: call_webhook(claimed, policy, signed_s)


def _note(claimed: ClaimedDelivery, future: Future[CallOutcome]) -> None:
    error = future.exception()
    if error is not None:
        _log.error("webhook_call_failed", delivery=claimed.public_id, error=type(error).__name__)
    outcome = CallOutcome(CallResult.NO_ANSWER) if error is not None else future.result()
    deliveries.note_outcome(claimed, outcome, clock.now())
