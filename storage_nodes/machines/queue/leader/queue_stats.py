"""What a leader knows of its queue in numbers: messages that wait, that are in flight, that are delayed."""

from __future__ import annotations

from storage_nodes.machines.queue.delivery.strategy import DeliveryContext, DeliveryStrategy
from storage_nodes.protocol.messages import QueueStats


def queue_stats(context: DeliveryContext, delivery: DeliveryStrategy) -> QueueStats:
    """Of this moment: leases that ran out by then are counted as messages that wait."""
    state, staging, leases, window = context.state, context.staging, context.leases, delivery.window
    fresh_count = max(0, state.fresh_count - staging.fresh_picked - staging.fresh_expired)
    first_ready = leases.first_ready()
    oldest_ms = window.oldest_ms
    if first_ready is not None:
        sent_ms = state.live[first_ready][3]
        oldest_ms = min(oldest_ms, sent_ms) if oldest_ms else sent_ms
    return QueueStats(
        fresh_count + leases.ready_count,
        context.in_flight_count,
        leases.delayed + leases.paused_count + len(state.scheduled) + len(state.delayed),
        oldest_ms,
        *window.group_counts(),
        state.duplicates,
        state.dead_lettered,
        state.parked_count,
        *delivery.noisy_counts(),
        scheduled=len(state.scheduled),
        expired=state.expired,
        purged=state.purged,
    )
