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


async def test_nobody_waits_longer_than_the_limit_while_names_that_do_not_exist_keep_coming(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There is always one under way, and none gives anything back."""
    monkeypatch.setattr("frontend.authn.lookup_gate.LOOKUP_WAIT_S_MAX", 0.05)
    gate = LookupGate(1, lambda: 0.0)
    await entered(gate)
    waiting = [asyncio.ensure_future(gate.enter("a")) for _ in range(3)]
    await asyncio.sleep(0)
    gate.leave("a", True)
    for one in waiting:
        with pytest.raises(RequestError) as refused:
            await asyncio.wait_for(one, 1)
        assert refused.value.retry_after_s
    assert not gate._waiting and gate._under_way


async def test_those_that_wait_go_before_those_that_come_later() -> None:
    now_s = [0.0]
    gate = LookupGate(1, lambda: now_s[0])
    await entered(gate)
    first = asyncio.ensure_future(gate.enter("a"))
    await asyncio.sleep(0)
    now_s[0] = 1.0  # one is left again
    later = asyncio.ensure_future(gate.enter("a"))
    await asyncio.sleep(0)
    gate.leave("a", True)
    await asyncio.sleep(0)
    assert first.done() and not later.done()
    later.cancel()


async def test_client_that_left_when_its_turn_came_gives_it_back() -> None:
    gate = LookupGate(1, lambda: 0.0)
    count = await entered(gate)
    waiting = [asyncio.ensure_future(gate.enter("a")) for _ in range(2)]
    await asyncio.sleep(0)
    gate.leave("a", False)
    waiting[0].cancel()
    await asyncio.gather(waiting[0], return_exceptions=True)
    await asyncio.wait_for(waiting[1], 1)
    for _ in range(count):
        gate.leave("a", False)
    assert not gate._waiting and not gate._under_way
