"""A look of the live meter: close the open windows, read the end of the usage stream, judge the budgets of the accounts
that used more. Needs no Spark. Safe to run twice, and beside itself: each figure replaces what its key had."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from time import monotonic
from typing import NamedTuple

import structlog

from api import clock
from api.billing import limits as billing_limits
from api.billing.actions.budgets import judge_budgets
from api.billing.errors import BillingError
from api.billing.models import MeterReading, SpendingBudget
from api.billing.provisional import FULL, drop_settled, merge_provisional, note_reading, position_of
from api.settings.environment import environment
from storage_nodes.protocol.errors import StorageError
from workers import limits
from workers.storage import StorageThread
from workers.usage.open_windows import Say, close_windows
from workers.usage.stream_tail import Tail, read_tail, usage_partitions

MORE = "More usage stands in the stream than one look reads: the next one goes on."
_log = structlog.get_logger(__name__)


class MeterLook(NamedTuple):
    """`missing`: why not all that was acknowledged before is in; empty: it is. `accounts`: those that used more."""

    missing: str
    accounts: set[str]
    as_of: datetime


def is_due(reading: MeterReading, now: datetime) -> bool:
    """A look that took long leaves the nodes longer for their work. One that ended in the future was noted
    by a clock that was wrong."""
    if reading.ended_at is None or reading.ended_at > now:
        return True
    rest = timedelta(milliseconds=reading.took_ms * billing_limits.METER_REST_FACTOR)
    return now >= reading.ended_at + min(rest, timedelta(seconds=billing_limits.METER_REST_S_MAX))


def look(storage: StorageThread, say: Say = lambda text: None) -> MeterLook:
    """Never raises for storage nodes that do not answer: the meter says what is missing."""
    as_of, began_s = clock.now(), monotonic()
    accounts: set[str] = set()
    try:
        missing = storage.run(lambda client: close_windows(client, say), limits.USAGE_CLOSE_CALL_S_MAX)
        say("reading what they say")
        missing = _read(storage, as_of, accounts) or missing
    except (StorageError, TimeoutError, OSError) as error:
        missing = f"The storage nodes do not answer: {error or type(error).__name__}"
    drop_settled()
    took_ms = int((monotonic() - began_s) * 1000)
    note_reading(None if missing else as_of, took_ms, clock.now(), missing)
    if missing:
        _log.warning("meter_incomplete", missing=missing)
    return MeterLook(missing, accounts, as_of)


def judge_spending(accounts: set[str], is_late: Callable[[], bool]) -> int:
    """Budgets of these accounts, in any order, until it is late. How many events are new."""
    watched = SpendingBudget.objects.filter(account_id__in=accounts).values_list("account_id", flat=True).distinct()
    made = 0
    order = list(watched)
    random.shuffle(order)  # where time is short, not the same accounts are left out each time
    for account_id in order:
        if is_late():
            break
        try:
            made += judge_budgets(account_id)
        except BillingError as error:
            _log.warning("billing_failed", work="judge", error=type(error).__name__, detail=str(error))
        except Exception:  # of one account: the budgets of the others are judged all the same
            _log.exception("billing_failed", work="judge", account_id=account_id)
    return made


def _read(storage: StorageThread, as_of: datetime, accounts: set[str]) -> str:
    """Why something is missing; empty: nothing is."""
    now_ms = int(as_of.timestamp() * 1000)
    ends_s = monotonic() + limits.METER_READ_S_MAX
    for partition in storage.run(usage_partitions, limits.METER_READ_S_MAX):
        name = f"{environment().cluster_id}/{partition}"
        for _ in range(limits.METER_READS_MAX):
            if monotonic() > ends_s:
                return MORE
            offset = position_of(name)
            tail = _tail(storage, partition, offset, now_ms)
            changed = merge_provisional(name, tail.next_offset, tail.rows)
            if changed is None:
                return FULL
            accounts |= changed
            if tail.at_end:
                break
        else:
            return MORE
    return ""


def _tail(storage: StorageThread, partition: int, offset: int, now_ms: int) -> Tail:
    return storage.run(lambda client: read_tail(client, partition, offset, now_ms), limits.METER_READ_S_MAX)
