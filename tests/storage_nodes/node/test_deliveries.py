"""What becomes of leases whose answer does not leave, by the meter: `deliver` over a real queue machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from storage_nodes.machines.queue.effects import Deliver, Effect
from storage_nodes.node.replicas.deliveries import deliver
from storage_nodes.node.transport.connections import Token
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import QueueConfig
from tests.storage_nodes.machines.queue.metered import delete, delivered, message, send, tell
from tests.storage_nodes.machines.queue.partition import Partition


class Connection:
    is_open = True
    is_full = False

    def __init__(self) -> None:
        self.answers = 0
        self.refused: list[ErrorCode] = []
        self.lost: list[Callable[[], None]] = []

    def answer(self, token: Token, payload: bytes, undelivered: Callable[[], None] | None = None) -> None:
        self.answers += 1
        if undelivered is not None:
            self.lost.append(undelivered)

    def refuse(self, token: Token, error: StorageError) -> None:
        self.refused.append(error.code)


class Replica:
    """Of the partition of a rig, which leads."""

    partition = 1
    handing_over = False
    serving = True

    def __init__(self, rig: Partition) -> None:
        self._rig = rig
        self.holds = True
        self.raft: Any = SimpleNamespace(epoch=1)
        self.host: Any = SimpleNamespace(
            room=SimpleNamespace(refusal=lambda text: StorageError(ErrorCode.OVERLOADED, text))
        )
        self.machine = rig.leader
        self.bodies: Any = SimpleNamespace(read=self._read)

    def _read(self, offsets: Sequence[int]) -> dict[int, bytes]:
        return {offset: self._rig.body(offset) for offset in offsets}

    def now_ms(self) -> int:
        return self._rig.now_ms

    def holds_lease(self) -> bool:
        return self.holds

    def leads_in(self, epoch: int) -> bool:
        return True

    def leader_context(self) -> Any:
        raise AssertionError("all is in memory")

    def staged(self, effects: Iterable[Effect]) -> None:
        self._rig.perform(list(effects))

    def schedule(self) -> None:
        """The rig commits when it is told."""


@pytest.fixture(params=[False, True], ids=["standard", "fifo"])
def rig(request: pytest.FixtureRequest) -> Partition:
    return Partition(QueueConfig(account_id="1" * 12, fifo=request.param))


@pytest.fixture
def replica(rig: Partition, monkeypatch: pytest.MonkeyPatch) -> Replica:
    made = Replica(rig)

    def hand_over(effect: Deliver) -> None:
        deliver(made, effect)

    monkeypatch.setattr(rig, "_hand_over", hand_over)
    send(rig, *[message(100, group=b"%d" % number) for number in range(5)], plain=False)
    return made


def receive(rig: Partition, connection: Connection, number: int) -> list[tuple[int, int]]:
    token = Token(connection, number, 1)  # type: ignore[arg-type]
    rig.acquire(token, 5)
    rig.commit()
    return [pick[:2] for pick in rig.delivered[token]]


def test_leases_refused_for_want_of_a_majority_are_settled(rig: Partition, replica: Replica) -> None:
    connection = Connection()
    replica.holds = False  # nothing was heard of a majority for a moment
    receive(rig, connection, 1)
    assert connection.refused and not connection.answers
    replica.holds = True
    receive(rig, connection, 2)
    tell(rig)
    assert delivered(rig) == (5, 500, 5)
    meter = rig.leader.state.metering
    assert meter is not None and meter.leased == 0, "the next leader bills what nobody settled"


def test_answer_that_is_lost_with_its_connection_is_taken_back(rig: Partition, replica: Replica) -> None:
    connection = Connection()
    receive(rig, connection, 1)
    tell(rig)
    assert delivered(rig) == (5, 500, 5)
    (lost,) = connection.lost
    lost()
    rig.commit()
    assert delivered(rig) == (0, 0, 0)
    receive(rig, connection, 2)
    tell(rig)
    assert delivered(rig) == (5, 500, 5)


def test_answer_for_a_full_connection_is_neither_billed_nor_taken_back(rig: Partition, replica: Replica) -> None:
    connection = Connection()
    connection.is_full = True
    receive(rig, connection, 1)
    tell(rig)
    assert delivered(rig) == (0, 0, 0) and connection.refused
    connection.is_full = False
    picks = receive(rig, connection, 2)
    tell(rig)
    assert delivered(rig) == (5, 500, 5)
    delete(rig, *[pick for pick in rig.delivered[Token(connection, 2, 1)] if pick[:2] in picks])  # type: ignore[arg-type]
    assert delivered(rig) == (5, 500, 5)
