"""One attempt of a call of the storage client: it waits for the answer, or for the deadline.

An answer that comes when the attempt was given up goes to who takes late answers: leases in it are handed back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from storage_nodes.client.leaders import Call, NodeLinks
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import ChangeVisibilityRequest, Opcode, VisibilityMode, encode_message

_change_request = msgspec.msgpack.Decoder(ChangeVisibilityRequest)


class CallAttempt:
    """Of one call, put to one node; called with the answer. A plain timer is cheaper than a timeout context."""

    __slots__ = ("_asked", "_call", "_late", "_timer", "future")

    def __init__(self, future: asyncio.Future[bytes], asked: int, late: Callable[[bytes], None] | None) -> None:
        self.future = future
        self._asked = asked
        # Who takes an answer that comes after the call was given up.
        self._late = late
        self._call: Call | None = None
        self._timer: asyncio.TimerHandle | None = None

    def ask(self, links: NodeLinks, opcode: int, payload: bytes, deadline_s: float) -> None:
        call = links.ask_node(self._asked, opcode, payload, self)
        if not self.future.done():
            self._call = call
            self._timer = self.future.get_loop().call_at(deadline_s, self.give_up)

    def give_up(self) -> None:
        """The deadline is over, or the caller is gone (perhaps in the very moment of the answer)."""
        self._stop_timer()
        if self.future.done() and not self.future.cancelled():
            if self._late is not None and self.future.exception() is None:
                self._late(self.future.result())
            return
        assert self._call is not None, "asked, and not answered"
        node_is_there = self._call.node_is_there
        code = ErrorCode.OUTCOME_UNKNOWN if self._end(self._call) else ErrorCode.UNREACHABLE
        if not self.future.done():
            error = StorageError(code, "no answer in time")
            error.asked, error.node_is_there = self._asked, node_is_there
            self.future.set_exception(error)

    def _end(self, call: Call) -> bool:
        """May the node have heard of it?"""
        if self._late is None:
            return call.cancel()
        call.ask_to_cancel()
        return True

    def __call__(self, result: bytes | StorageError) -> None:
        self._stop_timer()
        if isinstance(result, StorageError):
            result.asked = self._asked
            if not self.future.done():
                self.future.set_exception(result)
        elif not self.future.done():
            self.future.set_result(result)
        elif self._late is not None:
            self._late(result)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def asked_again(opcode: int, payload: bytes) -> bytes:
    """What the next attempt asks for where an earlier one may have taken effect: visibility is changed only of what is
    still held."""
    if opcode != Opcode.CHANGE_VISIBILITY:
        return payload
    request = _change_request.decode(payload)
    if request.mode == VisibilityMode.SET:
        request = msgspec.structs.replace(request, mode=VisibilityMode.HELD)
    return encode_message(request)
