"""A node comes back with an older copy of its directory, and nothing in it says so: its peers must.

A copy is what a start found, taken then. It is put back while the node is down, and only while every other node holds
all that it acknowledged, runs, and knows that this one had come further: what nobody remembers, nobody can tell. Until
the node was told, nothing ends the others, nor itself: what it synced since would hide what it lost (decision 0054).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from storage_nodes.protocol.peer_messages import RaftMessage, VoteReply
from tests.simulation.ledger import Mirror

if TYPE_CHECKING:
    from tests.simulation.faults import Faults
    from tests.simulation.process import SimProcess
    from tests.simulation.sim_disk import SimDisk
    from tests.simulation.world import World

BACK_RATE = 0.3  # of the looks at a node that is down


class Copy(NamedTuple):
    disk: SimDisk
    mirrors: dict[int, Mirror]
    incarnation: int
    sequence: int


def draw_older(faults: Faults, chance: random.Random) -> None:
    faults.back_rate = BACK_RATE if chance.random() < 0.5 else 0.0


class OlderDirectories:
    """Draws from a source of its own."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = random.Random(f"{world.seed}-older")
        self._copies: dict[int, Copy] = {}
        self.went_back = 0
        if world.faults.eio_rate or world.faults.full_rate:
            world.faults.back_rate = 0.0  # such a disk may end the others at any time

    def opened(self, process: SimProcess, mirrors: Mapping[int, Mirror]) -> None:
        """A start found these: what a copy of the directory holds, if one is taken now."""
        if self._world.faults.back_rate and not process.rotted and self._chance.random() < 0.5:
            log = process.log
            copied = {partition: mirror.copy() for partition, mirror in mirrors.items()}
            disk = process.disk.restarted(power_lost=True)
            self._copies[process.process_id] = Copy(disk, copied, log.incarnation, log.synced_sequence)

    def put_back(self, process: SimProcess) -> bool:
        """The node is down, and all others hold what they must. True: its directory is an older one now."""
        copy = self._copies.get(process.process_id)
        if copy is None or self.untold() or self._chance.random() >= self._world.faults.back_rate:
            return False
        if not all(self._knows(other, process, copy) for other in self._world.processes.values()):
            return False
        del self._copies[process.process_id]
        process.disk = copy.disk
        process.confirmed_groups = []
        process.gone_back = set(copy.mirrors)
        process.is_untold = True
        self._world.oracle.went_back(process.process_id, copy.mirrors, copy.incarnation)
        self.went_back += 1
        return True

    def untold(self) -> SimProcess | None:
        """Who went back and does not know it yet."""
        for process in self._world.processes.values():
            if process.is_untold:
                node = process.node
                if node is None or not process.is_up or not node.going_back._told:
                    return process
                process.is_untold = False
        return None

    @staticmethod
    def _knows(other: SimProcess, process: SimProcess, copy: Copy) -> bool:
        if other is process:
            return True
        node = other.node
        if node is None or not other.is_up or other.is_stopping:
            return False
        link = node.links._links.get(process.process_id)
        return link is not None and link.age.incarnation >= copy.incarnation and link.age.sequence > copy.sequence

    def check_vote(self, process: SimProcess, message: RaftMessage) -> None:
        """R12: a replica whose directory went back does not vote like one that remembers what it promised."""
        if not process.gone_back or not isinstance(message, VoteReply) or message.pre_vote:
            return
        if message.granted and not message.suspect and message.partition in process.gone_back:
            self._world.oracle.fail("R12 an older directory votes", f"node {process.process_id}: {message}")
