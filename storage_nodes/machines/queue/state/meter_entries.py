"""What the fold tells the meter of an entry. Sums where the entry says them; message by message only where a batch is
of several origins, or has messages that were dropped."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from storage_nodes.machines.queue.effects import BatchFacts
from storage_nodes.machines.queue.state.headers import FoldedHeaders
from storage_nodes.machines.queue.state.metering import Metering, Totals
from storage_nodes.machines.queue.state.queue_state import QueueState
from storage_nodes.protocol.usage import MIXED, Usage, unpack_sum

Usages = Callable[[], Sequence[Usage]]


def no_usages() -> Sequence[Usage]:
    raise AssertionError("the sums of this batch do not say enough, and its messages cannot be asked")


def meter_messages(state: QueueState, batch: BatchFacts, noted: FoldedHeaders | None, usages: Usages) -> None:
    """A metered data batch was folded. Releases are in none."""
    meter = _at_last_time(state)
    origin, billed_bytes, units = unpack_sum(batch.usage)
    if origin != MIXED and (noted is None or not noted.duplicates):
        meter.sent(origin, batch.record_count, billed_bytes, units)
        if noted is not None and noted.scheduled:
            meter.scheduled(origin, len(noted.scheduled))
        return
    noted = noted or FoldedHeaders()
    dropped = {offset for offset, _ in noted.duplicates}
    scheduled = set(noted.scheduled)
    for offset, (origin, billed_bytes, units) in enumerate(usages(), batch.base_offset):
        if offset not in dropped:
            meter.sent(origin, 1, billed_bytes, units)
        if offset in scheduled:
            meter.scheduled(origin, 1)


def totals_of(state: QueueState) -> Totals:
    held = state.fresh_count + len(state.live) + state.scheduled.count + state.delayed.count  # `held_count`, inline
    return held, state.received, state.deleted, state.dead_lettered


def meter_commands(state: QueueState, before: Totals) -> Totals:
    """Commands of a control batch were folded; `before` are the totals from before them. What they are now."""
    after = totals_of(state)
    _at_last_time(state).settle(before, after)
    return after


def meter_new_leader(state: QueueState) -> None:
    """The entry was folded with which another leadership begins."""
    _at_last_time(state).end_leadership(state.held_count)


def drop_idle_meter(state: QueueState) -> None:
    """The queue holds no messages."""
    if state.metering is not None and state.metering.is_idle:
        state.metering = None


def _at_last_time(state: QueueState) -> Metering:
    """The meter of a partition to which something happened, at the time of the last entry."""
    if state.metering is None:
        state.metering = Metering(state.last_ms)
    else:
        state.metering.advance(state.last_ms)
    return state.metering
