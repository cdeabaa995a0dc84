"""Totals of a queue, beside how many messages it holds."""

from __future__ import annotations

from tests.support.frontend_plane import Installation


async def test_counts_say_what_left_without_a_delete(front: Installation) -> None:
    """Who misses messages asks for these first."""
    front.storage.set_config(1, retention_ms=60_000)

    async def counts() -> tuple[int, int, int]:
        told = (await front.rest("/v1/message-counts", {"queues": ["orders"]})).json["queues"]["orders"]
        return told["waiting"], told["expired"], told["purged"]

    for _ in range(3):
        await front.rest("/v1/queues/orders/messages", {"body": "hello"})
    assert await counts() == (3, 0, 0)
    for _ in range(8):
        front.clock.now_s += 20
        await front.rest("/v1/queues/orders/messages/receive", {"max_messages": 1, "visibility_seconds": 0})
    assert await counts() == (0, 3, 0)
    await front.rest("/v1/queues/orders/messages", {"body": "hello"})
    await front.storage.purge(1)
    assert await counts() == (0, 3, 1)
