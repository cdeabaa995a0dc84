"""One leadership of one replica, for what is begun in it and ends later: a read from disk, a send elsewhere.

What ends after the leadership did must change nothing: the next leadership, even one of this same replica, may have
given out other messages under the same numbers. So every such end goes through `then`, or a read that does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from storage_nodes.node.replicas.leased import no_lease
from storage_nodes.node.replicas.replica import Replica
from storage_nodes.node.replicas.stopped_replicas import StopKind
from storage_nodes.node.transport.connections import Token

T = TypeVar("T")


def _nothing() -> None:
    pass


class LeaderContext:
    """Begins when it is made; ends when the replica stops leading or leads in another epoch."""

    __slots__ = ("_epoch", "replica")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self._epoch = replica.raft.epoch

    def then(self, done: Callable[[T], None], lost: Callable[[], None] = _nothing) -> Callable[[T], None]:
        """What is to be called at the end: `done` with the outcome while the leadership lasts, else `lost`."""

        replica = self.replica

        def ended(outcome: T) -> None:
            if not replica.leads_in(self._epoch):
                lost()
                return
            try:
                done(outcome)
            except Exception as error:
                # What it read may raise at each leader, one after the other.
                replica.host.stopped.stop(replica, StopKind.LEADING, replica.applied, error)

        return ended

    def run_cold(self, work: Callable[[], T], done: Callable[[T], None], lost: Callable[[], None] = _nothing) -> None:
        """Run blocking reads off the event loop, `then` go on. Damage to what is read ends the leadership."""
        self.replica.host.run_cold(work, self.then(done, lost), lost)

    def read_then(self, token: Token, offset: int, bytes_max: int, done: Callable[[list[bytes]], None]) -> None:
        """Batches of the log from this offset on: at once where they are in memory. The token is refused where the
        leadership, or its lease, was lost before they were read."""
        log = self.replica.log
        batches = log.read_hot(offset, bytes_max)
        if batches is not None:
            done(batches)
        else:
            answer = partial(self._answer_leased, token, done)
            self.run_cold(lambda: log.read_cold(offset, bytes_max), answer, lambda: self.refuse(token))

    def _answer_leased(self, token: Token, done: Callable[[list[bytes]], None], batches: list[bytes]) -> None:
        if self.replica.holds_lease():
            done(batches)
        else:
            token.connection.refuse(token, no_lease())

    def refuse(self, token: Token) -> None:
        """The leadership that this request was taken in is over."""
        token.connection.refuse(token, self.replica.leadership_lost())
