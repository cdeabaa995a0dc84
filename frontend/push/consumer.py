"""The Channels consumer of a subscription: authentication, frames. A thin shell around `subscription.py`.

A token comes in the Authorization header of the upgrade or in the first frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from frontend.authn.principal import Principal
from frontend.errors import RequestError
from frontend.http import origin_of
from frontend.push.closing import (
    CLOSE_BAD_FRAME,
    CLOSE_OVER_LIMIT,
    CLOSE_TRY_LATER,
    CLOSE_UNAUTHENTICATED,
    close_code_of,
)
from frontend.push.deliveries import RateExceeded
from frontend.push.frames import READY, AuthFrame, FilterFrame, FrameRefused, error_frame, read_frame
from frontend.push.socket_consumer import SocketConsumer
from frontend.push.subscription import Subscription

if TYPE_CHECKING:
    from frontend.services import FrontendServices


class SubscribeConsumer(SocketConsumer):
    """One websocket at /v1/queues/<name>/subscribe."""

    def __init__(self, services: FrontendServices) -> None:
        super().__init__(services)
        self._subscription: Subscription | None = None

    def _choose(self, caller: Principal | None, subprotocols: list[str]) -> str | None:
        return None

    async def _begin(self, caller: Principal | None) -> None:
        if caller is not None:
            await self._subscribe(caller)
        else:
            self._expect_first_frame("auth")

    async def websocket_receive(self, message: dict[str, Any]) -> None:
        if self._closed:
            return
        try:
            text = message.get("text")
            frame = read_frame(text)
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
                await self._subscription.handle(frame, len(text or ""))
            except RateExceeded as error:
                await self._shut(CLOSE_OVER_LIMIT, str(error))
            except RequestError as error:
                await self._say(error_frame(error))
                if isinstance(frame, FilterFrame):
                    # The credit that follows would be for other messages.
                    await self._shut(CLOSE_BAD_FRAME, error.message)

    async def _end(self) -> None:
        if self._subscription is not None:
            await self._subscription.close()

    async def _first_frame(self, frame: object) -> None:
        if not isinstance(frame, AuthFrame):
            await self._shut(CLOSE_UNAUTHENTICATED, "The first frame must be auth.")
            return
        try:
            caller = await self.services.authenticator.bearer(frame.token, *origin_of(self.scope), self.headers)
            self._count_for(caller)
        except RequestError as error:
            # Where nobody can tell, the client may come back when somebody can.
            is_away = error.kind.rest_status in (429, 503)
            await self._shut(CLOSE_TRY_LATER if is_away else CLOSE_UNAUTHENTICATED, error.message)
            return
        await self._subscribe(caller)

    async def _subscribe(self, caller: Principal) -> None:
        self._first_frame_came()
        subscription = Subscription(self.services, caller, self._address_for(caller), self._say, self._shut)
        try:
            await subscription.start()
        except RequestError as error:
            await self._say(error_frame(error))
            await self._shut(close_code_of(error.kind.rest_status), error.message)
            return
        self._subscription = subscription
        await self._say(READY)

    async def _say(self, text: str) -> bool:
        if self._closed:
            return False
        await self.send(text_data=text)
        return True
