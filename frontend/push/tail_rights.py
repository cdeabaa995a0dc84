"""May the people of this front end's live tails still look? The control plane is asked about all of them at once.

open      uses the ticket up; the control plane says whose it was
confirm   every TAIL_CONFIRM_S, while there are tails: the session lives, the person is a member, the account is
          active, role and policies allow to read messages of the queue
fresh     the question that was answered last was asked TAIL_CONFIRMED_S_MAX ago at most. A tail that is not shows
          nothing, so nothing is seen later than that after a right was taken away, whatever answers late or not
          at all
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from frontend.authn.principal import Principal, person
from frontend.authn.rights import page_rights
from frontend.errors import RequestError, throttled, unavailable
from frontend.http import network_of, new_request_id
from frontend.limits import TAIL_CONFIRM_S, TAIL_CONFIRMED_S_MAX, TAIL_UNCONFIRMED_S_MAX, TAILS_MAX
from frontend.routing.bulkhead import Bulkhead

if TYPE_CHECKING:
    from frontend.services import FrontendServices

_log = structlog.get_logger("frontend.push")


class OpenedTail:
    """`ended` is set when the right is gone; `why` says so in a word of the control plane."""

    def __init__(self, caller: Principal, session_id: str, queue: str, confirmed_s: float) -> None:
        self.caller = caller
        self.session_id = session_id
        self.queue = queue
        self.confirmed_s = confirmed_s
        self.why = ""
        self.ended = asyncio.Event()

    def claim(self) -> dict[str, object]:
        return {
            "account_id": self.caller.account_id,
            "session_id": self.session_id,
            "queue": self.queue,
            "source_ip": self.caller.source_ip,
            "is_secure": self.caller.is_secure,
        }

    def end(self, why: str) -> None:
        self.why = why
        self.ended.set()


class TailRights:
    """Of one front end."""

    def __init__(self, services: FrontendServices) -> None:
        self._services = services
        self._tails: set[OpenedTail] = set()
        self._task: asyncio.Task[None] | None = None
        self.places = Bulkhead("live tail", TAILS_MAX)
        services.meters.gauge("tails_open", lambda: self.places.calls)

    async def open(self, ticket: str, queue: str, source_ip: str, is_secure: bool) -> OpenedTail:
        """Raises RequestError."""
        asked_s = self._services.steady_s()
        wait_s = self._services.addresses.admit(network_of(source_ip), asked_s)
        if wait_s:
            raise throttled(wait_s)
        claim = {"ticket": ticket, "queue": queue, "source_ip": source_ip, "is_secure": is_secure}
        found = await self._services.control.open_tail(new_request_id(), source_ip, claim)
        account_id, person_id = found["account_id"], found["person_id"]
        rights = page_rights(account_id, person_id)
        caller = person(account_id, person_id, source_ip, is_secure)._replace(rights=rights)
        return OpenedTail(caller, found["session_id"], queue, asked_s)

    def watch(self, tail: OpenedTail) -> None:
        self._tails.add(tail)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._confirm_forever(), name="tail-rights")

    def forget(self, tail: OpenedTail) -> None:
        self._tails.discard(tail)

    def is_fresh(self, tail: OpenedTail) -> bool:
        return self._services.steady_s() - tail.confirmed_s <= TAIL_CONFIRMED_S_MAX

    async def _confirm_forever(self) -> None:
        while self._tails:
            await asyncio.sleep(TAIL_CONFIRM_S)
            try:
                await self.confirm()
            except RequestError:
                self._end_unconfirmed()
            except Exception:
                _log.exception("tails_not_confirmed")
                self._end_unconfirmed()

    async def confirm(self) -> None:
        """Raises RequestError."""
        tails = list(self._tails)
        if not tails:
            return
        asked_s = self._services.steady_s()
        ends = await self._services.control.confirm_tails(new_request_id(), [tail.claim() for tail in tails])
        if len(ends) != len(tails):
            raise unavailable("The control plane has not answered for every tail.")
        for tail, why in zip(tails, ends, strict=True):
            if why:
                tail.end(why)
            else:
                tail.confirmed_s = asked_s

    def _end_unconfirmed(self) -> None:
        now_s = self._services.steady_s()
        for tail in self._tails:
            if now_s - tail.confirmed_s > TAIL_UNCONFIRMED_S_MAX:
                tail.end("unconfirmed")
