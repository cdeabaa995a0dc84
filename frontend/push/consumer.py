"""The Channels consumer of a subscription: upgrade, authentication, frames. A thin shell around `subscription.py`.

A token comes in the Authorization header of the upgrade or in the first frame, never in the URL, where logs would
keep it. A browser's Origin must be the host it connects to: a page of another site must not speak with a visitor's
network position.
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
from frontend.push.closing import (
    CLOSE_AUTH_TIMEOUT,
    CLOSE_BAD_FRAME,
    CLOSE_OVER_LIMIT,
    CLOSE_TRY_LATER,
    CLOSE_UNAUTHENTICATED,
    close_code_of,
    close_reason,
)
from frontend.push.frames import READY, AuthFrame, FilterFrame, FrameRefused, error_frame, read_frame
from frontend.push.subscription import RateExceeded, Subscription
from frontend.queues.names import Address
from frontend.rest.problems import refuse_upgrade
from frontend.routing.bulkhead import Place

if TYPE_CHECKING:
    from frontend.services import FrontendServices


class SubscribeConsumer(AsyncWebsocketConsumer):
    """One websocket at /v1/queues/<name>/subscribe."""

    services: FrontendServices

    def __init__(self, services: FrontendServices) -> None:
        super().__init__()
        self.services = services
        self._subscription: Subscription | None = None
        self._auth_timer: asyncio.TimerHandle | None = None
        self._place: Place | None = None
        self._closed = False

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
                self._move_to(self._place_of(caller))
        except RequestError as error:
            await self._refuse(error)
            return
        await self.accept()
        if caller is not None:
            await self._subscribe(caller)
        else:
            loop = asyncio.get_running_loop()
            self._auth_timer = loop.call_later(SOCKET_AUTH_S_MAX, self._auth_is_late)

    async def websocket_receive(self, message: dict[str, Any]) -> None:
        if self._closed:
            return
        try:
            frame = read_frame(message.get("text"))
        except FrameRefused as error:
            self.services.meters.count("push_frames_refused")
            await self._shut(CLOSE_BAD_FRAME, str(error))
            return
        if self._subscription is None:
            await self._first_frame(frame)
        elif isinstance(frame, AuthFrame):
            await self._shut(CLOSE_BAD_FRAME, "The subscription is authenticated already.")
        else:
            try:
                await self._subscription.handle(frame)
            except RateExceeded as error:
                await self._shut(CLOSE_OVER_LIMIT, str(error))
            except RequestError as error:
                await self._say(error_frame(error))
                if isinstance(frame, FilterFrame):
                    # The credit that follows would be for other messages.
                    await self._shut(CLOSE_BAD_FRAME, error.message)

    async def websocket_disconnect(self, message: dict[str, Any]) -> None:
        self._closed = True
        if self._auth_timer is not None:
            self._auth_timer.cancel()
        try:
            if self._subscription is not None:
                await self._subscription.close()
        finally:
            self._move_to(None)
        raise StopConsumer

    async def _first_frame(self, frame: object) -> None:
        if not isinstance(frame, AuthFrame):
            await self._shut(CLOSE_UNAUTHENTICATED, "The first frame must be auth.")
            return
        try:
            caller = await self.services.authenticator.bearer(frame.token, *origin_of(self.scope))
            self._move_to(self._place_of(caller))
        except RequestError as error:
            # Where nobody can tell, the client may come back when somebody can.
            is_away = error.kind.rest_status in (429, 503)
            await self._shut(CLOSE_TRY_LATER if is_away else CLOSE_UNAUTHENTICATED, error.message)
            return
        await self._subscribe(caller)

    async def _subscribe(self, caller: Principal) -> None:
        if self._auth_timer is not None:
            self._auth_timer.cancel()
        name = self.scope["url_route"]["kwargs"]["name"]
        address = Address(caller.account_id, name)
        subscription = Subscription(self.services, caller, address, self._say, self._shut)
        try:
            await subscription.start()
        except RequestError as error:
            await self._say(error_frame(error))
            await self._shut(close_code_of(error.kind.rest_status), error.message)
            return
        self._subscription = subscription
        await self._say(READY)

    def _place_of(self, caller: Principal) -> Place:
        sockets_max = self.services.quotas.limits(caller.account_id, caller.access_key_id).sockets
        return self.services.sockets.place(caller.account_id, sockets_max)

    def _move_to(self, place: Place | None) -> None:
        """Into another place, or out. Raises RequestError, and stays, where that has no room."""
        if place is not None:
            place.__enter__()
        left, self._place = self._place, place
        if left is not None:
            left.__exit__(None, None, None)

    async def _bearer_header(self, authorization: bytes) -> Principal:
        if authorization[:7].lower() != b"bearer ":
            raise RequestError("InvalidClientTokenId", "Subscriptions take a bearer token.")
        token = authorization[7:].strip().decode("latin-1")
        return await self.services.authenticator.bearer(token, *origin_of(self.scope))

    async def _say(self, text: str) -> None:
        if not self._closed:
            await self.send(text_data=text)

    async def _refuse(self, error: RequestError) -> None:
        """Before the upgrade: as any other request."""
        self._closed = True
        await refuse_upgrade(self.base_send, error)

    async def _shut(self, code: int, reason: str) -> None:
        if not self._closed:
            self._closed = True
            await self.close(code, close_reason(reason))

    def _auth_is_late(self) -> None:
        task = asyncio.ensure_future(self._shut_quietly(CLOSE_AUTH_TIMEOUT, "No auth frame came in time."))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

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
