"""The websocket, opened again whenever it is lost.

    open -> ready -> `on_ready` (what is not confirmed is repeated, credit is given) -> frames -> lost -> pause -> open

What the service refuses for good (the key, the queue, a frame) ends it: `failure` holds why.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any
from urllib.parse import quote, urlsplit

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_websocket
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.typing import Subprotocol

from penstock_client.errors import ClientError, ConnectionRefused, NotConnected
from penstock_client.wire import Form

# A frame of the service: 500 messages, up to 3 MiB of bodies, which JSON may make six times as long.
FRAME_BYTES_MAX = 32 * 1024 * 1024
PING_S = 20.0
# While the service may be holding frames back, it reads nothing, pings neither: for its rate, or for room.
HELD_PONG_S = 120.0
PAUSE_S_MIN = 0.1
_FATAL_STATUSES = frozenset((400, 401, 403, 404))
_FATAL_CODES = frozenset((4400, 4401, 4403, 4404))

_log = logging.getLogger("penstock_client")


class Link:
    """`connection` numbers the connections from 1 on, 0 while there was none. `is_held` says whether frames were
    sent that the service may not have read yet: a pong may be late then."""

    def __init__(
        self,
        endpoint: str,
        token: str,
        queue: str,
        form: Form,
        on_ready: Callable[[], Awaitable[None]],
        on_frame: Callable[[dict[str, Any]], None],
        is_held: Callable[[], bool],
        pause_s_max: float,
        options: dict[str, Any],
    ) -> None:
        parts = urlsplit(endpoint)
        scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
        self._uri = f"{scheme}://{parts.netloc}{parts.path.rstrip('/')}/v1/queues/{quote(queue, safe='')}/bulk"
        self._token = token
        self._form = form
        self._on_ready = on_ready
        self._on_frame = on_frame
        self._is_held = is_held
        self._pause_s_max = pause_s_max
        self._options = options
        self._socket: ClientConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self.limits: dict[str, int] = {}
        self._heard_s = 0.0
        self.connection = 0
        self.failure: ClientError | None = None
        self.failed = asyncio.Event()
        self.ready = asyncio.Event()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        self._fail(NotConnected("the queue was closed"))
        if self._socket is not None:
            await self._socket.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    async def send(self, frame: bytes | str) -> bool:
        """False: there is no connection now."""
        socket = self._socket
        if socket is None:
            return False
        try:
            await socket.send(frame)
        except ConnectionClosed:
            return False
        return True

    async def say(self, frame: dict[str, Any]) -> bool:
        return await self.send(self._form.encode(frame))

    async def _run(self) -> None:
        pause_s = PAUSE_S_MIN
        while self.failure is None:
            began_s = monotonic()
            try:
                if await self._connection() and monotonic() - began_s > self._pause_s_max:
                    pause_s = PAUSE_S_MIN
            except ConnectionRefused as error:
                self._fail(error)
                return
            except (OSError, TimeoutError, InvalidHandshake, ConnectionClosed) as error:
                _log.info("not connected: %s", error)
            except Exception as error:  # an option or the endpoint is wrong, or a frame is none
                failure = ClientError(f"the connection failed: {error!r}")
                failure.__cause__ = error
                self._fail(failure)
                return
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(pause_s * 2, self._pause_s_max)

    async def _connection(self) -> bool:
        """One connection, to its end. Returns whether it was ready once. Raises ConnectionRefused, and what opening
        raises."""
        try:
            socket = await open_websocket(
                self._uri,
                additional_headers={"Authorization": f"Bearer {self._token}"},
                subprotocols=[Subprotocol(self._form.subprotocol)],
                compression=None,
                max_size=FRAME_BYTES_MAX,
                ping_interval=None,
                **self._options,
            )
        except InvalidStatus as error:
            if error.response.status_code in _FATAL_STATUSES:
                raise _refused(error) from None
            raise
        was_ready = False
        keeping = asyncio.create_task(self._keep_alive(socket))
        try:
            async for raw in socket:
                self._heard_s = monotonic()
                frame = self._form.decode(raw)
                if frame["type"] == "ready":
                    was_ready = True
                    await self._begin(socket, frame)
                else:
                    self._on_frame(frame)
        except ConnectionClosed:
            pass
        finally:
            self._socket = None
            self.ready.clear()
            keeping.cancel()
            with contextlib.suppress(ConnectionClosed, OSError):
                await socket.close()
        if socket.close_code in _FATAL_CODES:
            raise ConnectionRefused(socket.close_code or 0, socket.close_reason or "")
        return was_ready

    async def _keep_alive(self, socket: ClientConnection) -> None:
        """Pings, and cuts a connection over which nothing has come for too long."""
        while True:
            await asyncio.sleep(PING_S)
            # A task: where the service reads nothing, the ping itself may wait.
            pinging = asyncio.create_task(_pong(socket))
            asked_s = monotonic()
            try:
                while not (await asyncio.wait({pinging}, timeout=PING_S / 20))[0]:
                    silent_s = monotonic() - max(asked_s, self._heard_s)
                    if silent_s > (HELD_PONG_S if self._is_held() else PING_S):
                        _log.info("no answer for %.0f s", silent_s)
                        socket.transport.abort()
                        return
            finally:
                pinging.cancel()

    async def _begin(self, socket: ClientConnection, frame: dict[str, Any]) -> None:
        self.limits = {name: value for name, value in frame.items() if name != "type"}
        self.connection += 1
        self._socket = socket
        await self._on_ready()
        self.ready.set()

    def _fail(self, error: ClientError) -> None:
        if self.failure is None:
            self.failure = error
        self.failed.set()


async def _pong(socket: ClientConnection) -> None:
    with contextlib.suppress(ConnectionClosed):
        await (await socket.ping())


def _refused(error: InvalidStatus) -> ConnectionRefused:
    reason = error.response.reason_phrase
    with contextlib.suppress(ValueError, KeyError, TypeError):
        reason = json.loads(error.response.body or b"{}")["detail"]
    return ConnectionRefused(error.response.status_code, reason)
