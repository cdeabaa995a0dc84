"""What the Channels consumers of websockets share: who may come in, and how the server ends it.

A token comes in the Authorization header of the upgrade, or where the wire says so later, never in the URL, where logs
would keep it. A browser's Origin must be the host it connects to: a page of another site must not speak with a
visitor's network position.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from channels.exceptions import StopConsumer
from channels.generic.websocket import AsyncWebsocketConsumer

from frontend.authn.principal import Principal
from frontend.errors import RequestError
from frontend.http import network_of, origin_of
from frontend.limits import SOCKET_AUTH_S_MAX
from frontend.push.closing import ASKED_TO_END, CLOSE_LATE, STOPPING, close_reason
from frontend.push.connection import HOLDER
from frontend.queues.names import Address
from frontend.rest.problems import refuse_upgrade
from frontend.routing.bulkhead import Place

if TYPE_CHECKING:
    from frontend.services import FrontendServices


class SocketConsumer(AsyncWebsocketConsumer):
    """One websocket of a queue."""

    services: FrontendServices

    def __init__(self, services: FrontendServices) -> None:
        super().__init__()
        self.services = services
        self._place: Place | None = None
        self._closed = False
        self._first_frame_timer: asyncio.TimerHandle | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Nothing is left behind, however it ends: a frame that is answered when the client is gone already (OSError)
        ends it without a disconnect."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._closed = True
            self._first_frame_came()
            try:
                await self._end()
            finally:
                self._move_to(None)

    async def dispatch(self, message: dict[str, Any]) -> None:
        """As Channels does it, without its look at database connections, which costs a thread switch per frame."""
        await getattr(self, message["type"].replace(".", "_"))(message)

    async def websocket_connect(self, message: dict[str, Any]) -> None:
        headers = dict(self.scope["headers"])
        authorization = headers.get(b"authorization")
        caller = None
        try:
            if not origin_is_same_host(headers.get(b"origin"), headers.get(b"host", b"")):
                raise RequestError("AccessDeniedException", "The Origin is not the host that was connected to.")
            # Until its key is known, a socket counts for the address that it comes from.
            self._move_to(self.services.open_sockets.place(network_of(origin_of(self.scope)[0])))
            if authorization is not None:
                caller = await self._bearer_header(authorization)
                self._count_for(caller)
            subprotocol = self._choose(caller, self.scope.get("subprotocols") or [])
        except RequestError as error:
            await self._refuse(error)
            return
        await self.accept(subprotocol)
        await self._begin(caller)

    async def websocket_disconnect(self, message: dict[str, Any]) -> None:
        code = message.get("code")
        if code in ASKED_TO_END:
            await self._finish()
            await self._shut(code, message.get("reason") or STOPPING)
        raise StopConsumer

    # --- of the wire ---

    def _choose(self, caller: Principal | None, subprotocols: list[str]) -> str | None:
        """The subprotocol that is spoken. Raises RequestError where the upgrade is refused."""
        raise NotImplementedError

    async def _begin(self, caller: Principal | None) -> None:
        """The socket is accepted. None: the key is not known yet."""
        raise NotImplementedError

    async def _finish(self) -> None:
        """The socket is about to be closed: what is under way is answered first."""

    async def _end(self) -> None:
        """The socket is gone."""
        raise NotImplementedError

    # --- what wires use ---

    @property
    def _queue_name(self) -> str:
        return str(self.scope["url_route"]["kwargs"]["name"])

    def _address_for(self, caller: Principal) -> Address:
        account_id = self.scope["url_route"]["kwargs"].get("account_id") or caller.account_id
        return Address(account_id, self._queue_name)

    def _count_for(self, caller: Principal) -> None:
        """From now on the socket, and what it holds, are the account's. Raises RequestError where that has too many."""
        sockets_max = self.services.quotas.limits(caller.account_id, caller.name).sockets
        self._move_to(self.services.sockets.place(caller.account_id, sockets_max))
        self.scope.setdefault("state", {})[HOLDER] = caller.account_id

    def _move_to(self, place: Place | None) -> None:
        """Into another place, or out. Raises RequestError, and stays, where that has no room."""
        if place is not None:
            place.__enter__()
        left, self._place = self._place, place
        if left is not None:
            left.__exit__(None, None, None)

    def _expect_first_frame(self, frame: str) -> None:
        """The one that says who this is: it must come in time."""
        late = f"No {frame} frame came in time."
        loop = asyncio.get_running_loop()
        self._first_frame_timer = loop.call_later(SOCKET_AUTH_S_MAX, self._first_frame_is_late, late)

    def _first_frame_came(self) -> None:
        if self._first_frame_timer is not None:
            self._first_frame_timer.cancel()

    def _first_frame_is_late(self, reason: str) -> None:
        task = asyncio.ensure_future(self._shut_quietly(CLOSE_LATE, reason))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.scope["headers"])

    async def _bearer_header(self, authorization: bytes) -> Principal:
        if authorization[:7].lower() != b"bearer ":
            raise RequestError("InvalidClientTokenId", "Subscriptions take a bearer token.")
        token = authorization[7:].strip().decode("latin-1")
        return await self.services.authenticator.bearer(token, *origin_of(self.scope), self.headers)

    async def _refuse(self, error: RequestError) -> None:
        """Before the upgrade: as any other request."""
        self._closed = True
        await refuse_upgrade(self.base_send, error)

    async def _shut(self, code: int, reason: str) -> None:
        if not self._closed:
            self._closed = True
            await self.close(code, close_reason(reason))

    async def _shut_quietly(self, code: int, reason: str) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            await self._shut(code, reason)


def origin_is_same_host(origin: bytes | None, host: bytes) -> bool:
    """No Origin: not a browser. Otherwise it must name exactly the host that was connected to."""
    if origin is None:
        return True
    try:
        parts = urlsplit(origin.decode("ascii"))
    except (UnicodeDecodeError, ValueError):
        return False
    return parts.scheme in ("http", "https") and bool(host) and parts.netloc.lower().encode() == host.lower()
