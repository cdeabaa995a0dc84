"""The measure of hot calls runs: nothing else that is tested uses its stand-ins, so a change of the storage client or
of the express lane would break it unseen."""

from __future__ import annotations

import asyncio

import pytest

from tests.frontend.measure_calls import CALLS, Counts, Scene

ANSWERED_S_MAX = 20


@pytest.mark.parametrize("call", CALLS)
async def test_measured_call_is_answered(call: str) -> None:
    """A refused call, and a message that does not open, would be measured as cheap ones."""
    scene = Scene()
    async with asyncio.timeout(ANSWERED_S_MAX):
        await scene.run(call, times=4, connections=1 if call.endswith("500") else 2)
    assert scene.left <= 0


async def test_counts_of_a_send_are_those_of_the_front_end() -> None:
    """Bytecodes of the front end's own stages are counted, those of the stand-ins are not."""
    scene = Scene()
    async with asyncio.timeout(ANSWERED_S_MAX):
        await scene.run("send", times=2, connections=1)
        counts = Counts()
        with counts:
            await scene.run("send", times=2, connections=1)
    counted = {code.co_qualname for code in counts.bytecodes}
    assert {"answer_sqs", "send_message", "QuotaTree.pay", "ClientConnection.ask"} <= counted
    assert not any(name.startswith(("Node.", "Client.", "Scene.")) for name in counted)
    assert counts.bytecodes.total() > 1_000
