"""The loop of a process whose connections are the simulated network's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tests.simulation.clockwork import Owner, SimLoop
from tests.simulation.network import Network
from tests.simulation.transport import End, SimTransport


class NetworkOwner(Owner, End, Protocol):
    """Whoever has such a loop."""

    @property
    def network(self) -> Network: ...
    def connected(self, here: SimTransport) -> None: ...


class ProcessLoop(SimLoop):
    def __init__(self, owner: NetworkOwner, scheduler: Any) -> None:
        super().__init__(scheduler, owner)
        self._end = owner

    async def create_connection(  # type: ignore[override]
        self, factory: Callable[[], Any], host: str, port: int
    ) -> tuple[None, Any]:
        """The transport is told to the protocol only."""
        future = self.create_future()
        made: list[Any] = []

        def make() -> Any:
            made.append(factory())
            return made[0]

        def answer(error: Exception | None) -> bool:
            if future.done():
                return False
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(None)
            return True

        self._end.network.dial(self._end, port, make, answer, self._end.connected)
        await future
        return None, made[0]
