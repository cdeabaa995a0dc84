"""The Channels consumer of a bulk socket: which form its frames have, and what ends it. A thin shell around
`bulk_session.py`.

The token comes in the Authorization header of the upgrade: frames are large, and an unknown sender must not fill memory
with them. The subprotocol says the form of the frames; without one they are JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from frontend.authn.principal import Principal
from frontend.errors import RequestError
from frontend.push.bulk_frames import FORMS, JSON_FRAMES, error, read_bulk_frame, ready
from frontend.push.bulk_session import BulkSession
from frontend.push.closing import CLOSE_BAD_FRAME, CLOSE_OVER_LIMIT, close_code_of
from frontend.push.deliveries import RateExceeded
from frontend.push.frames import FilterFrame, FrameRefused
from frontend.push.socket_consumer import SocketConsumer

if TYPE_CHECKING:
    from frontend.services import FrontendServices


class BulkConsumer(SocketConsumer):
    """One websocket at /v1/queues/<name>/bulk, or at /v1/accounts/<id>/queues/<name>/bulk."""

    def __init__(self, services: FrontendServices) -> None:
        super().__init__(services)
        self._form = JSON_FRAMES
        self._session: BulkSession | None = None

    def _choose(self, caller: Principal | None, subprotocols: list[str]) -> str | None:
        if caller is None:
            raise RequestError("MissingAuthenticationToken", "A bulk socket takes its bearer token with the upgrade.")
        if not subprotocols:
            return None
        for name in subprotocols:
            if name in FORMS:
                self._form = FORMS[name]
                return name
        raise RequestError("UnsupportedOperation", f"The subprotocols are {' and '.join(FORMS)}.")

    async def _begin(self, caller: Principal | None) -> None:
        assert caller is not None
        session = BulkSession(self.services, caller, self._address_for(caller), self._say, self._shut)
        try:
            await session.start()
        except RequestError as refused:
            await self._say(error(refused, ()))
            await self._shut(close_code_of(refused.kind.rest_status), refused.message)
            return
        self._session = session
        await self._say(ready())

    async def websocket_receive(self, message: dict[str, Any]) -> None:
        session = self._session
        if self._closed or session is None:
            return
        frame = None
        try:
            raw = self._raw(message)
            frame = read_bulk_frame(self._form, raw)
            await session.handle(frame, len(raw))
        except FrameRefused as refusal:
            self.services.meters.count("push_frames_refused")
            await session.finish_publishes()
            await self._shut(CLOSE_BAD_FRAME, str(refusal))
        except RateExceeded as refusal:
            await session.finish_publishes()
            await self._shut(CLOSE_OVER_LIMIT, str(refusal))
        except RequestError as refused:
            await self._say(error(refused, ()))
            if isinstance(frame, FilterFrame):
                # The credit that follows would be for other messages.
                await session.finish_publishes()
                await self._shut(CLOSE_BAD_FRAME, refused.message)

    async def _finish(self) -> None:
        if self._session is not None:
            await self._session.finish_publishes()

    async def _end(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _raw(self, message: dict[str, Any]) -> bytes:
        """Raises FrameRefused."""
        if self._form.is_text:
            text = message.get("text")
            if text is None:
                raise FrameRefused("Frames are texts.")
            return str(text).encode(errors="replace")
        raw = message.get("bytes")
        if raw is None:
            raise FrameRefused("Frames are binary.")
        return bytes(raw)

    async def _say(self, frame: object) -> bool:
        if self._closed:
            return False
        raw = self._form.encode(frame)
        if self._form.is_text:
            await self.send(text_data=raw.decode())
        else:
            await self.send(bytes_data=raw)
        return True
