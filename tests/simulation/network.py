"""The network between processes: connections over links that delay, lose, repeat, reorder, stall and are cut.

A connection is a pair of `SimTransport`s (`transport.py`), one at each end, each of which hands what arrives to its
protocol on the loop of its process. Links may be narrow, and large writes arrive in pieces. A cut link either drops or
stalls what is sent over it (a stalled link delivers when it heals, as TCP does). The end of a process resets its
connections; whoever dials a process that is down is refused.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from storage_nodes.node.transport.peer_link import PeerLink
from tests.simulation.clockwork import Scheduler
from tests.simulation.transport import RESET_DELAY_US, End, SimTransport

# Between two pieces of one write.
PIECE_PAUSE_US = 400


@dataclass
class LinkFaults:
    """Rates are per write, between nodes; between clients and nodes only `client_loss` and delays happen."""

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    client_loss: float = 0.0
    delay_us: tuple[int, int] = (100, 1_000)
    late: float = 0.0  # share of writes that take up to `late_us`
    late_us: int = 1_500_000
    stall: bool = False
    bytes_per_s: int = 0  # of a link, one way, in all its connections; 0 = as much as you like
    socket_bytes: int = 200_000  # taken on the way, before a write waits in its sender's buffer
    piece_bytes: int = 65_536  # more does not arrive at a time
    split: float = 0.0  # share of the writes that arrive in two pieces, cut anywhere
    cut: set[tuple[int, int]] = field(default_factory=set)

    def heal(self) -> None:
        self.loss = self.duplicate = self.reorder = self.client_loss = self.late = self.split = 0.0
        self.bytes_per_s = 0
        self.cut.clear()


def between(chance: random.Random, low: int, high: int) -> int:
    """As `randint`, from the same draws, in a third of the time."""
    count = high - low + 1
    draw, bits = chance.getrandbits, count.bit_length()
    number = draw(bits)
    while number >= count:
        number = draw(bits)
    return low + number


class Network:
    def __init__(self, scheduler: Scheduler, seed: str, faults: LinkFaults) -> None:
        self.faults = faults
        self.servers: dict[int, tuple[End, Callable[[], Any]]] = {}
        self.nodes: dict[int, End] = {}
        self._scheduler = scheduler
        self._random = random.Random(f"{seed}-network")
        self._open: dict[SimTransport, None] = {}
        self.on_cut: Callable[[SimTransport], None] = lambda transport: None
        self._stalled: list[tuple[SimTransport, bytes]] = []
        self._busy_until_us: dict[tuple[int, int], int] = {}  # (sender, receiver) of what the link has taken

    @property
    def now_us(self) -> int:
        return self._scheduler.now_us

    def dial(
        self,
        caller: End,
        node_id: int,
        make: Callable[[], Any],
        answer: Callable[[Exception | None], bool],
        connected: Callable[[SimTransport], None] = lambda here: None,
    ) -> None:
        """Connect; `answer(None)` says whether the caller still wants it. No answer at all where the link is cut.
        `connected` hears of the transport before its protocol does."""
        self._scheduler.after(self._delay_us(), self._dialled, caller, node_id, make, answer, connected)

    def _dialled(
        self,
        caller: End,
        node_id: int,
        make: Callable[[], Any],
        answer: Callable[[Exception | None], bool],
        tell: Callable[[SimTransport], None],
    ) -> None:
        if self._is_cut(caller.process_id, node_id) or self._is_cut(node_id, caller.process_id):
            return
        server = self.servers.get(node_id)
        if server is None or not server[0].is_up:
            caller.post(answer, ConnectionRefusedError(111, "nobody listens"))
            return
        there = SimTransport(self, server[0], caller)
        here = SimTransport(self, caller, server[0])
        there.peer, here.peer = here, there
        self._open[here] = self._open[there] = None
        server[0].post(self._accepted, server[1], there)
        self._scheduler.after(self._delay_us(), self._connected, here, make, answer, tell)

    @staticmethod
    def _accepted(accept: Callable[[], Any], there: SimTransport) -> None:
        if not there.closed:
            there.protocol = accept()
            if there.on_accept is not None:
                there.on_accept(there.protocol)
            there.protocol.connection_made(there)

    def _connected(
        self,
        here: SimTransport,
        make: Callable[[], Any],
        answer: Callable[[Exception | None], bool],
        tell: Callable[[SimTransport], None],
    ) -> None:
        def connected() -> None:
            if here.closed or here.peer.protocol is None or not answer(None):
                self.close(here, RESET_DELAY_US)
                return
            here.protocol = make()
            tell(here)
            here.protocol.connection_made(here)

        here.own.post(connected)

    def carry(self, sender: SimTransport, to: End, data: bytes) -> None:
        scheduler, chance, faults, receiver = self._scheduler, self._random, self.faults, sender.peer
        scheduler.note(crc32(data))
        size = len(data)
        between_nodes = type(sender.protocol) is PeerLink or type(receiver.protocol) is PeerLink
        if faults.cut and (sender.own.process_id, to.process_id) in faults.cut:
            if faults.stall:
                self._stalled.append((sender, data))
            else:
                sender.was_lost(size)
            return
        if chance.random() < (faults.loss if between_nodes else faults.client_loss):
            sender.was_lost(size)
            return
        delay_us = between(chance, *faults.delay_us)
        now_us = scheduler.now_us
        if faults.late and chance.random() < faults.late:
            delay_us += chance.randrange(faults.late_us)
            sender.hindered_us = now_us + delay_us
        if faults.bytes_per_s:
            delay_us += self._busy_us(sender.own.process_id, to.process_id, size)
        in_order = not between_nodes or not (faults.reorder or faults.duplicate)
        if in_order and (size > faults.piece_bytes or (faults.split and chance.random() < faults.split)):
            self._carry_pieces(sender, data, delay_us)
        elif between_nodes and faults.reorder and chance.random() < faults.reorder:
            scheduler.at(now_us + delay_us, receiver.arrive, data, size)
        else:
            sender.last_us = last_us = max(sender.last_us + 1, now_us + delay_us)
            scheduler.at(last_us, receiver.arrive, data, size)
        if between_nodes and faults.duplicate and chance.random() < faults.duplicate:
            scheduler.at(now_us + delay_us + chance.randrange(faults.late_us), receiver.arrive, data, 0)

    def _busy_us(self, sender: int, receiver: int, count: int) -> int:
        """How long the link needs for so many bytes, and for what is before them."""
        now_us = self._scheduler.now_us
        begin_us = max(now_us, self._busy_until_us.get((sender, receiver), 0))
        end_us = self._busy_until_us[sender, receiver] = begin_us + count * 1_000_000 // self.faults.bytes_per_s
        return end_us - now_us

    def _carry_pieces(self, sender: SimTransport, data: bytes, delay_us: int) -> None:
        """In order, one after the other: whoever reads gets a part of a frame, and must wait for the rest."""
        size, chance = self.faults.piece_bytes, self._random
        if len(data) <= size:
            size = chance.randrange(1, len(data)) if len(data) > 1 else 1
        end_us = max(sender.last_us + 1, self._scheduler.now_us + delay_us)
        for at in range(0, len(data), size):
            piece = data[at : at + size]
            self._scheduler.at(end_us, sender.peer.arrive, piece, len(piece))
            end_us += chance.randrange(1, PIECE_PAUSE_US)
        sender.last_us = end_us

    def close(self, transport: SimTransport, delay_us: int) -> None:
        self._open.pop(transport, None)
        if transport.protocol is not None:
            transport.lost()
        transport.closed = True
        self._scheduler.after(delay_us, self._reset, transport.peer)

    def _reset(self, transport: SimTransport) -> None:
        self._open.pop(transport, None)
        if transport.protocol is not None:
            transport.lost()
        transport.closed = True

    def ended(self, process: End) -> None:
        """A process is gone, and with it all its connections, and whoever listened: the next life listens anew."""
        self.servers = {port: server for port, server in self.servers.items() if server[0] is not process}
        for transport in [candidate for candidate in self._open if candidate.own is process]:
            transport.closed = True
            self._open.pop(transport, None)
            end_us = self._scheduler.now_us + self._delay_us()
            if self._random.random() < 0.5:
                end_us = max(end_us, transport.last_us + 1)  # what is under way still arrives
            self._scheduler.at(end_us, self._reset, transport.peer)

    def heal(self, links: set[tuple[int, int]] | None = None) -> None:
        """These links (None = all) carry again; what was stalled on them arrives."""
        cut = self.faults.cut
        cut.difference_update(set(cut) if links is None else links)
        stalled, self._stalled = self._stalled, []
        for sender, data in stalled:
            if (sender.own.process_id, sender.peer.own.process_id) in cut:
                self._stalled.append((sender, data))
                continue
            sender.last_us = max(sender.last_us, self._scheduler.now_us) + 1
            self._scheduler.at(sender.last_us, sender.peer.arrive, data, len(data))

    def _is_cut(self, a: int, b: int) -> bool:
        return (a, b) in self.faults.cut

    def _delay_us(self) -> int:
        return between(self._random, *self.faults.delay_us)
