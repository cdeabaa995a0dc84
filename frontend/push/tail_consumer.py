"""The Channels consumer of a live tail: the ticket, frames. A thin shell around `tail_session.py`.

The ticket comes in the first frame, never in the URL. A page of the console alone is given one; a key opens no tail.
"""

from __future__ import annotations

from collections.abc import Callable
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
from frontend.push.connection import STILL
from frontend.push.frames import FrameRefused
from frontend.push.socket_consumer import SocketConsumer
from frontend.push.tail_frames import OpenFrame, PauseFrame, TailFrame, TextFrame, filter_of_text, read_tail_frame
from frontend.push.tail_rights import TailRights
from frontend.push.tail_session import TailSession

if TYPE_CHECKING:
    from frontend.services import FrontendServices


class TailConsumer(SocketConsumer):
    """One websocket at /v1/queues/<name>/tail."""

    def __init__(self, services: FrontendServices, rights: TailRights) -> None:
        super().__init__(services)
        self._rights = rights
        self._session: TailSession | None = None
        self._asked = False

    def _choose(self, caller: Principal | None, subprotocols: list[str]) -> str | None:
        if caller is not None:
            raise RequestError("InvalidClientTokenId", "A live tail is opened by a page's ticket, and by no key.")
        return None

    async def _begin(self, caller: Principal | None) -> None:
        self._expect_first_frame("open")

    async def websocket_receive(self, message: dict[str, Any]) -> None:
        if self._closed:
            return
        try:
            frame = read_tail_frame(message.get("text"))
            if self._session is None:
                await self._open(frame)
            else:
                self._handle(self._session, frame)
        except FrameRefused as error:
            self.services.meters.count("push_frames_refused")
            await self._shut(CLOSE_BAD_FRAME, str(error))
        except RequestError as error:
            code = close_code_of(error.kind.rest_status)
            await self._shut(CLOSE_BAD_FRAME if error.kind.rest_status == 400 else code, error.message)

    async def _end(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _open(self, frame: TailFrame) -> None:
        """Raises RequestError, FrameRefused."""
        if not isinstance(frame, OpenFrame) or self._asked:
            await self._shut(CLOSE_UNAUTHENTICATED, "The first frame must be open.")
            return
        self._asked = True
        self._first_frame_came()
        wanted = filter_of_text(frame.text)
        tail = await self._rights.open(frame.ticket, self._queue_name, *origin_of(self.scope))
        caller = tail.caller
        tails_max = self.services.quotas.limits(caller.account_id, caller.name).browser_searches
        try:
            self._move_to(self._rights.places.place(caller.account_id, tails_max))
        except RequestError as error:
            is_full = error.kind.rest_status == 503
            await self._shut(CLOSE_TRY_LATER if is_full else CLOSE_OVER_LIMIT, "Too many live tails are open.")
            return
        session = TailSession(self.services, self._rights, tail, self._say, self._show, self._shut)
        session.filter = wanted
        await session.start()
        self._session = session

    def _handle(self, session: TailSession, frame: TailFrame) -> None:
        """Raises RequestError, FrameRefused."""
        if isinstance(frame, OpenFrame):
            raise FrameRefused("The tail is open already.")
        session.pay_for_frame()
        if isinstance(frame, TextFrame):
            session.filter = filter_of_text(frame.text)
        elif isinstance(frame, PauseFrame):
            session.pause()
        else:
            session.resume()

    async def _say(self, text: str) -> None:
        if not self._closed:
            await self.send(text_data=text)

    async def _show(self, text: str, still: Callable[[], bool]) -> None:
        """Raises FrameExpired."""
        if not self._closed:
            await self.base_send({"type": "websocket.send", "text": text, STILL: still})
