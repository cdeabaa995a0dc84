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

import msgspec
from channels.exceptions import StopConsumer
from channels.generic.websocket import AsyncWebsocketConsumer

from frontend.authn.principal import Principal
from frontend.errors import RequestError
from frontend.http import origin_of
from frontend.limits import SOCKET_AUTH_S_MAX, SOCKET_FRAME_BYTES_MAX
from frontend.metadata.interface import MetadataUnavailable
from frontend.push.frames import READY, AuthFrame, FilterFrame, decode_frame, error_frame
from frontend.push.subscription import Subscription, close_code_of
from frontend.queues.names import Address

if TYPE_CHECKING:
    from frontend.services import FrontendServices

CLOSE_BAD_FRAME = 4400
CLOSE_UNAUTHENTICATED = 4401
CLOSE_ORIGIN = 4403
CLOSE_AUTH_TIMEOUT = 4408
CLOSE_TRY_LATER = 1013


class SubscribeConsumer(AsyncWebsocketConsumer):
    """One websocket at /v1/queues/<name>/subscribe."""

    services: FrontendServices

    def __init__(self, services: FrontendServices) -> None:
        super().__init__()
        self.services = services
        self._subscription: Subscription | None = None
        self._auth_timer: asyncio.TimerHandle | None = None
        self._counted = False
        self._closed = False

    async def dispatch(self, message: dict[str, Any]) -> None:
        """As Channels does it, without its look at database connections, which costs a thread switch per frame."""
        await getattr(self, message["type"].replace(".", "_"))(message)

    async def websocket_connect(self, message: dict[str, Any]) -> None:
        headers = dict(self.scope["headers"])
        if not origin_is_same_host(headers.get(b"origin"), headers.get(b"host", b"")):
            await self._shut(CLOSE_ORIGIN)
            return
        authorization = headers.get(b"authorization")
        try:
            self.services.sockets.__enter__()
            self._counted = True
            caller = None
            if authorization is not None:
                caller = await self._bearer_header(authorization)
        except (RequestError, MetadataUnavailable):
            await self._shut(CLOSE_UNAUTHENTICATED if self._counted else CLOSE_TRY_LATER)
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
        text = message.get("text")
        try:
            if text is None or len(text) > SOCKET_FRAME_BYTES_MAX:
                raise msgspec.DecodeError
            frame = decode_frame(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            self.services.meters.count("push_frames_refused")
            await self._shut(CLOSE_BAD_FRAME)
            return
        if self._subscription is None:
            await self._first_frame(frame)
        elif isinstance(frame, AuthFrame):
            await self._shut(CLOSE_BAD_FRAME)
        else:
            try:
                await self._subscription.handle(frame)
            except RequestError as error:
                await self._say(error_frame(error))
                if isinstance(frame, FilterFrame):
                    await self._shut(CLOSE_BAD_FRAME)  # the credit that follows would be for other messages

    async def websocket_disconnect(self, message: dict[str, Any]) -> None:
        self._closed = True
        if self._auth_timer is not None:
            self._auth_timer.cancel()
        try:
            if self._subscription is not None:
                await self._subscription.close()
        finally:
            if self._counted:
                self._counted = False
                self.services.sockets.__exit__(None, None, None)
        raise StopConsumer

    async def _first_frame(self, frame: object) -> None:
        if not isinstance(frame, AuthFrame):
            await self._shut(CLOSE_UNAUTHENTICATED)
            return
        try:
            caller = await self.services.authenticator.bearer(frame.token, *origin_of(self.scope))
        except (RequestError, MetadataUnavailable):
            await self._shut(CLOSE_UNAUTHENTICATED)
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
            await self._shut(close_code_of(error))
            return
        self._subscription = subscription
        await self._say(READY)

    async def _bearer_header(self, authorization: bytes) -> Principal:
        if authorization[:7].lower() != b"bearer ":
            raise RequestError("InvalidClientTokenId", "Subscriptions take a bearer token.")
        token = authorization[7:].strip().decode("latin-1")
        return await self.services.authenticator.bearer(token, *origin_of(self.scope))

    async def _say(self, text: str) -> None:
        if not self._closed:
            await self.send(text_data=text)

    async def _shut(self, code: int) -> None:
        if not self._closed:
            self._closed = True
            await self.close(code)

    def _auth_is_late(self) -> None:
        task = asyncio.ensure_future(self._shut_quietly(CLOSE_AUTH_TIMEOUT))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _shut_quietly(self, code: int) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            await self._shut(code)


def origin_is_same_host(origin: bytes | None, host: bytes) -> bool:
    """No Origin: not a browser. Otherwise it must name exactly the host that was connected to."""
    if origin is None:
        return True
    try:
        parts = urlsplit(origin.decode("ascii"))
    except (UnicodeDecodeError, ValueError):
        return False
    return parts.scheme in ("http", "https") and bool(host) and parts.netloc.lower().encode() == host.lower()
