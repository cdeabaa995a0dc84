"""Searches of the message browser share the turns of the event loop with everybody else."""

from __future__ import annotations

import asyncio

from frontend.limits import BROWSER_TURN_MESSAGES_MAX
from tests.support.frontend_plane import Installation
from tests.support.message_browser import MESSAGES, send

COUNT = 8 * BROWSER_TURN_MESSAGES_MAX
# What a request takes besides opening messages.
TURNS_OF_A_REQUEST_MAX = 30


async def turns_of_a_search(front: Installation, searches: int = 1) -> int:
    """Turns of the event loop until all searches have looked at every message of the queue."""
    asked = {"filter": {"body_contains": "is not there"}, "limit": 5}
    tasks = [asyncio.create_task(front.rest(f"{MESSAGES}/find", asked)) for _ in range(searches)]
    turns = 0
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        turns += 1
    for task in tasks:
        assert task.result().status == 200, task.result().body
        assert task.result().json["cursor"] is None
    return turns


async def test_search_gives_way_after_every_few_messages(front: Installation) -> None:
    without = await turns_of_a_search(front)
    assert without <= TURNS_OF_A_REQUEST_MAX
    for number in range(COUNT):
        await send(front, f"message {number}")
    assert await turns_of_a_search(front) >= without + COUNT // BROWSER_TURN_MESSAGES_MAX
    # Several take their turns side by side, not one after the other.
    assert await turns_of_a_search(front, 3) <= without + COUNT // BROWSER_TURN_MESSAGES_MAX + TURNS_OF_A_REQUEST_MAX
