"""A machine that was suspended during a send: the clock of the call stood still, that of the nodes did not."""

from __future__ import annotations

from functools import partialmethod

import pytest

from storage_nodes.client import StorageClient
from storage_nodes.client.suspensions import Suspensions
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.frames import Frame
from storage_nodes.protocol.messages import SendReply, encode_message
from tests.storage_nodes.client.scripted_node import ScriptedNode, run


@pytest.mark.parametrize(("suspended_s", "is_repeated"), [(0.0, True), (1.0, True), (600.0, False)])
def test_send_that_may_be_stored_is_not_repeated_once_its_machine_was_suspended(
    monkeypatch: pytest.MonkeyPatch, suspended_s: float, is_repeated: bool
) -> None:
    asleep_s = 50.0
    monkeypatch.setattr(Suspensions, "__init__", partialmethod(Suspensions.__init__, lambda: asleep_s))

    def script(frame: Frame) -> bytes | StorageError:
        nonlocal asleep_s
        if asleep_s == 50.0 and suspended_s:
            asleep_s += suspended_s
            return StorageError(ErrorCode.OUTCOME_UNKNOWN)
        if not suspended_s and not frames:
            frames.append(frame)
            return StorageError(ErrorCode.OUTCOME_UNKNOWN)
        return encode_message(SendReply(7, 1))

    frames: list[Frame] = []

    async def scenario(client: StorageClient, nodes: list[ScriptedNode]) -> None:
        if is_repeated:
            assert (await client.send(1, [b"x"])).first_offset == 7
            assert len(nodes[0].frames) == 2
            return
        with pytest.raises(StorageError) as error:
            await client.send(1, [b"x"])
        assert error.value.code is ErrorCode.OUTCOME_UNKNOWN and len(nodes[0].frames) == 1
        assert (await client.send(1, [b"x"])).first_offset == 7, "what begins after it is sent"

    run([script], scenario)


def test_suspension_counts_for_calls_that_began_before_anybody_looked() -> None:
    asleep_s = 0.0
    suspensions = Suspensions(lambda: asleep_s)
    assert not suspensions.any_since(1.0, 2.0)
    asleep_s = 100.0
    suspensions.look(3.0)
    asleep_s = 101.0
    suspensions.look(5.0)
    assert suspensions.any_since(2.9, 6.0) and not suspensions.any_since(3.1, 6.0)
