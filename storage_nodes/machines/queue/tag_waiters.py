"""Long polls where some ask for tags: those that ask for whatever there is stand in one line, the others in one a tag.

Who came first is served first, whichever line he stands in; a line is only looked at when something of its tag came.
"""

from __future__ import annotations

from collections import OrderedDict

from storage_nodes.machines.queue.effects import Tags, Token
from storage_nodes.machines.queue.waiters import Waiter, Waiters

_Line = OrderedDict[Token, Waiter]


class TagWaiters(Waiters):
    __slots__ = ("_plain", "by_tag")

    def __init__(self) -> None:
        super().__init__()
        self._plain: _Line = OrderedDict()
        self.by_tag: dict[bytes, _Line] = {}

    @classmethod
    def after(cls, plain: Waiters) -> TagWaiters:
        """Those who wait already."""
        waiters = cls()
        waiters._waiting, waiters._deadlines = plain._waiting, plain._deadlines
        waiters._hasty, waiters._next_number = plain._hasty, plain._next_number
        waiters._plain.update(plain._waiting)
        return waiters

    def park(
        self,
        token: Token,
        messages_max: int,
        visibility_ms: int,
        until_ms: int,
        is_long_poll: bool,
        attempt: bytes,
        tags: Tags = (),
    ) -> None:
        super().park(token, messages_max, visibility_ms, until_ms, is_long_poll, attempt, tags)
        waiter = self._waiting[token]
        for tag in tags:
            self.by_tag.setdefault(tag, OrderedDict())[token] = waiter
        if not tags:
            self._plain[token] = waiter

    def remove(self, token: Token) -> bool:
        waiter = self._waiting.pop(token, None)
        if waiter is None:
            return False
        self._plain.pop(token, None)
        for tag in waiter.tags:
            line = self.by_tag[tag]
            del line[token]
            if not line:
                del self.by_tag[tag]
        return True

    def first_plain(self) -> Waiter | None:
        return next(iter(self._plain.values()), None)

    def first_of(self, tag: bytes) -> Waiter | None:
        line = self.by_tag.get(tag)
        return next(iter(line.values())) if line else None
