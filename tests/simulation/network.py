"""The network between processes: connections over links that delay, lose, repeat, reorder, stall and are cut.

A connection is a pair of `SimTransport`s, one at each end, each of which hands what arrives to its protocol on the
loop of its process. A cut link either drops or stalls what is sent over it (a stalled link delivers when it heals, as
TCP does). The end of a process resets its connections; whoever dials a process that is down is refused.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from storage_nodes.node.peers import PeerLink
from tests.simulation.clockwork import Scheduler

RESET_DELAY_US = 300


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
    cut: set[tuple[int, int]] = field(default_factory=set)

    def heal(self) -> None:
        self.loss = self.duplicate = self.reorder = self.client_loss = self.late = 0.0
        self.cut.clear()


class End(Protocol):
    """A process as the network sees it."""

    process_id: int

    @property
    def is_up(self) -> bool: ...
    def post(self, callback: Callable[..., object], *args: Any) -> None: ...


class SimTransport:
    """One end of a connection. `on_write` lets an observer see and `on_arrival` announce what passes."""

    def __init__(self, network: Network, own: End, other: End) -> None:
        self.own = own
        self.protocol: Any = None
        self.peer: SimTransport
        self.closed = False
        self.last_us = 0
        self.on_write: Callable[[bytes], None] | None = None
        self.on_arrival: Callable[[bytes], None] | None = None
        self._network = network
        self._other = other

    def write(self, data: bytes) -> None:
        if not self.closed:
            if self.on_write is not None:
                self.on_write(data)
            self._network.carry(self, self._other, data)

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        """What is written has left at once."""

    def pause_reading(self) -> None:
        """Nothing that a node is asked here is more than it takes."""

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str) -> None:
        return None

    def close(self) -> None:
        if not self.closed:
            self._network.close(self, RESET_DELAY_US)

    abort = close

    def arrive(self, data: bytes) -> None:
        if not self.closed:
            self.own.post(self._receive, data)

    def _receive(self, data: bytes) -> None:
        if not self.closed:
            if self.on_arrival is not None:
                self.on_arrival(data)
            self.protocol.data_received(data)

    def lost(self) -> None:
        if not self.closed:
            self.closed = True
            self.own.post(self.protocol.connection_lost, None)


class Network:
    def __init__(self, scheduler: Scheduler, seed: str, faults: LinkFaults) -> None:
        self.faults = faults
        self.servers: dict[int, tuple[End, Callable[[], Any]]] = {}
        self.nodes: dict[int, End] = {}
        self._scheduler = scheduler
        self._random = random.Random(f"{seed}-network")
        self._open: dict[SimTransport, None] = {}
        self._stalled: list[tuple[SimTransport, bytes]] = []

    def dial(
        self, caller: End, node_id: int, make: Callable[[], Any], answer: Callable[[Exception | None], bool]
    ) -> None:
        """Connect; `answer(None)` says whether the caller still wants it. No answer at all where the link is cut."""
        self._scheduler.after(self._delay_us(), self._dialled, caller, node_id, make, answer)

    def _dialled(
        self, caller: End, node_id: int, make: Callable[[], Any], answer: Callable[[Exception | None], bool]
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
        self._scheduler.after(self._delay_us(), self._connected, here, make, answer)

    @staticmethod
    def _accepted(accept: Callable[[], Any], there: SimTransport) -> None:
        if not there.closed:
            there.protocol = accept()
            there.protocol.connection_made(there)

    def _connected(
        self, here: SimTransport, make: Callable[[], Any], answer: Callable[[Exception | None], bool]
    ) -> None:
        def connected() -> None:
            if here.closed or here.peer.protocol is None or not answer(None):
                self.close(here, RESET_DELAY_US)
                return
            here.protocol = make()
            here.protocol.connection_made(here)

        here.own.post(connected)

    def carry(self, sender: SimTransport, to: End, data: bytes) -> None:
        self._scheduler.note(zlib.crc32(data))
        chance, faults = self._random, self.faults
        between_nodes = PeerLink in (type(sender.protocol), type(sender.peer.protocol))
        if self._is_cut(sender.own.process_id, to.process_id):
            if faults.stall:
                self._stalled.append((sender, data))
            return
        if chance.random() < (faults.loss if between_nodes else faults.client_loss):
            return
        delay_us = self._delay_us()
        now_us = self._scheduler.now_us
        if faults.late and chance.random() < faults.late:
            delay_us += chance.randrange(faults.late_us)
        if between_nodes and faults.reorder and chance.random() < faults.reorder:
            self._scheduler.at(now_us + delay_us, sender.peer.arrive, data)
        else:
            sender.last_us = max(sender.last_us + 1, now_us + delay_us)
            self._scheduler.at(sender.last_us, sender.peer.arrive, data)
        if between_nodes and faults.duplicate and chance.random() < faults.duplicate:
            self._scheduler.at(now_us + delay_us + chance.randrange(faults.late_us), sender.peer.arrive, data)

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
            self._scheduler.at(sender.last_us, sender.peer.arrive, data)

    def _is_cut(self, a: int, b: int) -> bool:
        return (a, b) in self.faults.cut

    def _delay_us(self) -> int:
        return self._random.randint(*self.faults.delay_us)
