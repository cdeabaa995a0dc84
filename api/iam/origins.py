"""Where the messages of a dead-letter queue may go, as far as it is known beforehand."""

from __future__ import annotations

from api.iam import limits
from api.queues.selectors import dead_letter_sources_of


def destinations_of(account_id: str, source: str, destination: str | None) -> tuple[str, ...]:
    """The destination; without one the queues that have the source as their dead-letter queue now."""
    if destination:
        return (destination,)
    return tuple(queue.name for queue in dead_letter_sources_of(account_id, source, "", limits.MOVE_ORIGINS_MAX))
