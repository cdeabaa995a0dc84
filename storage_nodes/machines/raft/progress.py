"""How far one follower is, as its leader knows it.

    PROBE      where the logs meet is not known: one append at a time from `next`, which only moves back (to a conflict)
               or is proved by an answer
    REPLICATE  the logs meet: `next` runs ahead of the answers by at most APPEND_IN_FLIGHT_BYTES_MAX
    SNAPSHOT   `next` lies before what the leader's log still has in whole: the driver sends a snapshot, and nothing
               else is sent until that has ended, or an answer shows that it is not needed

    PROBE -> REPLICATE      an answer proves `next`
    PROBE, REPLICATE -> SNAPSHOT    `next` is needed and the log begins later
    any -> PROBE            a conflict, the end of a snapshot, silence, or the node of the follower comes up again

`match` <= `next` <= log end of the leader. `match` is what the follower said it had fsynced and only rises within
an epoch, while its node stays up: one that comes up again has to prove it anew, its disk may be another one.
"""

from __future__ import annotations

from enum import Enum

from storage_nodes.limits import APPEND_IN_FLIGHT_BYTES_MAX
from storage_nodes.machines.raft.timing import APPENDS_TRACKED_MAX

# Of a follower to which nothing is on its way; nothing is ever put into it.
_NOTHING: list[tuple[int, int]] = []


class ProgressState(Enum):
    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


# Attributes of an enumeration cost a look-up each; every append asks for these.
PROBE, REPLICATE, SNAPSHOT = ProgressState.PROBE, ProgressState.REPLICATE, ProgressState.SNAPSHOT


class Progress:
    """Exists only while this node leads."""

    __slots__ = (
        "asked",
        "commit_sent",
        "in_flight",
        "in_flight_bytes",
        "last_sent_ms",
        "leaving_at",
        "match",
        "next",
        "node_id",
        "reading",
        "round",
        "state",
        "suspect",
        "up",
        "votes",
        "waiting",
    )  # fmt: skip

    def __init__(self, node_id: int, up: bool, votes: bool, next_offset: int) -> None:
        self.node_id = node_id
        self.up = up
        # A voter of the configuration in force: its match counts. A learner's does not.
        self.votes = votes
        # Where the entry that removed it ends: it is still told of that. 0 = it is a member.
        self.leaving_at = 0
        # May lack what it acknowledged.
        self.suspect = False
        self.match = 0
        self.next = next_offset
        self.state = PROBE
        # The driver was asked to send from `asked` and has not said yet what it sent.
        self.reading = False
        self.asked = 0
        # The last one of the leader's leases that its answers in this epoch brought back: by then it followed.
        self.round = 0
        # Something was sent and no answer covers it yet.
        self.waiting = False
        self.last_sent_ms = 0
        # The commit position that the follower's answers say it knows, those of a suspect one left out.
        self.commit_sent = 0
        self.in_flight = _NOTHING
        self.in_flight_bytes = 0

    def is_learner(self) -> bool:
        return not self.votes and not self.leaving_at

    def may_send(self) -> bool:
        if self.reading or self.state is SNAPSHOT:
            return False
        return self.in_flight_bytes < APPEND_IN_FLIGHT_BYTES_MAX if self.state is REPLICATE else not self.waiting

    def track(self, end_offset: int, size_bytes: int) -> None:
        """An append up to end_offset left while replicating."""
        self.next = end_offset
        self.in_flight_bytes += size_bytes
        in_flight = self.in_flight
        if not in_flight:
            self.in_flight = [(end_offset, size_bytes)]
        elif len(in_flight) < APPENDS_TRACKED_MAX:
            in_flight.append((end_offset, size_bytes))
        else:
            in_flight[-1] = (end_offset, in_flight[-1][1] + size_bytes)

    def acknowledge(self, offset: int) -> None:
        """The follower has fsynced up to `offset` of this leader's log."""
        self.match = offset
        in_flight = self.in_flight
        while in_flight and in_flight[0][0] <= offset:
            self.in_flight_bytes -= in_flight.pop(0)[1]
        if not in_flight:
            self.in_flight = _NOTHING

    def become_probe(self, offset: int) -> None:
        """Forgets what is on its way and finds out again where the logs meet, from `offset` down."""
        self.state = PROBE
        self.waiting = False
        self.next = offset
        self.in_flight = _NOTHING
        self.in_flight_bytes = 0

    def become_replicate(self) -> None:
        """The logs meet at `next`."""
        assert self.state is PROBE, "only an answer to a probe proves where the logs meet"
        self.state = REPLICATE

    def become_snapshot(self) -> None:
        """`next` can be had by a snapshot only; nothing else is on its way."""
        self.become_probe(self.next)
        self.state = SNAPSHOT

    def restart(self) -> None:
        """What was sent may be lost: starts again from what is proved, or from where probing had come to."""
        self.become_probe(self.match if self.match or self.state is REPLICATE else self.next)
