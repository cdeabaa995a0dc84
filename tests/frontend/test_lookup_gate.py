"""Look-ups that wait for others to end: in order, and without a trace of clients that left."""

from __future__ import annotations

import asyncio

import pytest

from frontend.authn.lookup_gate import LookupGate
from frontend.errors import RequestError


async def entered(gate: LookupGate) -> int:
    """Takes all that is left."""
    count = 0
    while not await _waits(asyncio.ensure_future(gate.enter("a"))):
        count += 1
    return count


async def _waits(entering: asyncio.Future[None]) -> bool:
    await asyncio.sleep(0)
    if entering.done():
        return False
    entering.cancel()
    await asyncio.gather(entering, return_exceptions=True)
    return True


async def test_client_that_left_takes_no_turn_and_leaves_nothing_behind() -> None:
    gate = LookupGate(1, lambda: 0.0)
    count = await entered(gate)
    assert count > 1 and not gate._waiting
    waiting = [asyncio.ensure_future(gate.enter("a")) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    gate.leave("a", False)
    await asyncio.sleep(0)
    assert [one.done() for one in waiting] == [True, True, False], "the turn goes to the next that is there"
    waiting[2].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    for _ in range(count):
        gate.leave("a", False)
    assert not gate._waiting and not gate._under_way


async def test_all_that_wait_are_woken_by_the_last() -> None:
    gate = LookupGate(1, lambda: 0.0)
    count = await entered(gate)
    waiting = [asyncio.ensure_future(gate.enter("a")) for _ in range(3)]
    await asyncio.sleep(0)
    for _ in range(count):
        gate.leave("a", True)
    for one in waiting:
        with pytest.raises(RequestError):
            await asyncio.wait_for(one, 1)
    assert not gate._waiting and not gate._under_way
