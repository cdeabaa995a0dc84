"""A share of the look-ups under way for each who asks: nobody's cold names stand in front of everybody else's."""

from __future__ import annotations

import asyncio
from types import TracebackType

from frontend.metadata.interface import MetadataUnavailable
from frontend.metadata.limits import METADATA_REQUEST_TIMEOUT_MS, METADATA_SHARE_MAX


class Shares:
    """`async with shares.turn(name):` around one look-up; waits while the name has its share under way."""

    def __init__(self) -> None:
        self._turns: dict[str, Turn] = {}

    def __len__(self) -> int:
        return len(self._turns)

    def turn(self, name: str) -> Turn:
        found = self._turns.get(name)
        if found is None:
            found = self._turns[name] = Turn(self._turns, name)
        return found


class Turn:
    """One name's share. Forgotten when nobody uses it."""

    __slots__ = ("_name", "_places", "_turns", "_users")

    def __init__(self, turns: dict[str, Turn], name: str) -> None:
        self._turns = turns
        self._name = name
        self._places = asyncio.Semaphore(METADATA_SHARE_MAX)
        self._users = 0

    async def __aenter__(self) -> None:
        self._users += 1
        try:
            async with asyncio.timeout(METADATA_REQUEST_TIMEOUT_MS / 1000):
                await self._places.acquire()
        except TimeoutError:
            self._leave()
            raise MetadataUnavailable("too many metadata lookups of one account are under way") from None
        except BaseException:
            self._leave()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._places.release()
        self._leave()

    def _leave(self) -> None:
        self._users -= 1
        if not self._users:
            self._turns.pop(self._name, None)
