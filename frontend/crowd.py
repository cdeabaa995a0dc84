"""Where a port has as many connections as it may, those that wait for their clients give way to the next one.

    whose      of the address that has most (IPv6: of its /64), and of those with half as many, never of one that has
               fewer than the newcomer's: a crowd of one address displaces its own, and nobody is refused for a number
               while others have room. All clients of a proxy are one address
    which      idle ones, the longest idle first: their clients must expect it at any time (RFC 9112, 9.5). For a
               newcomer of another address also those whose request is not whole, and websockets that have shown no key
    never      where the client waits: for an answer, or on an open websocket

Connections are not counted by address as they come and go, which would cost each of them: all are looked at once there
are too many, and a look makes room for many.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from operator import itemgetter
from typing import Any, Protocol

import structlog

from frontend.flood_log import FloodLog
from frontend.http import network_of
from frontend.limits import CROWD_LOOK_EVERY_S, CROWD_PARTS

_log = structlog.get_logger("frontend.crowd")
_gave_way = FloodLog(_log, "connections_gave_way")
_refused = FloodLog(_log, "connections_refused")


# A connection waits for its client: in the midst of a request, and since when.
Waiting = tuple[bool, float]


class CrowdMember(Protocol):
    """A connection of the port."""

    client: tuple[str, int] | None

    def waiting(self) -> Waiting | None:
        """None: its client waits."""

    def give_way(self) -> None:
        """Closes it, and takes it out of the connections at once."""


class Crowd:
    """Of one process: its looks, and how many connections gave way or were refused since it started."""

    def __init__(self) -> None:
        self._looked_s = -CROWD_LOOK_EVERY_S  # the last look that found little
        self.gave_way = self.refused = 0

    def makes_room(self, newcomer: CrowdMember, connections: Collection[Any]) -> bool:
        """Whether there is a place for the newcomer, which is among the connections."""
        now_s = time.monotonic()
        wanted = 1 + len(connections) // CROWD_PARTS
        found: list[CrowdMember] = []
        if now_s - self._looked_s >= CROWD_LOOK_EVERY_S:
            found = choose(newcomer, connections, wanted)
            if len(found) < wanted:
                self._looked_s = now_s
        if not found:
            self.refused += 1
            _refused.warn(now_s, connections=len(connections) - 1)
            return False
        _gave_way.warn(now_s, connections=len(connections) - 1, gave_way=len(found), client=str(found[0].client))
        self.gave_way += len(found)
        for one in found:
            one.give_way()
        return True


def choose(newcomer: CrowdMember, connections: Iterable[Any], wanted: int) -> list[CrowdMember]:
    """Up to so many, or a few more, that give way."""
    by_network = _by_network(connections)
    own = network_of(_address_of(newcomer))
    largest = max(map(len, by_network.values()))
    enough = max(len(by_network[own]), (largest + 1) // 2)
    found: list[CrowdMember] = []
    for network, members in sorted(by_network.items(), key=lambda item: -len(item[1])):
        if len(members) < enough or len(found) >= wanted:
            break
        found += _longest_waiting(members, newcomer, 1 + len(members) // CROWD_PARTS, also_begun=network != own)
    return found


def _longest_waiting(members: list[Any], newcomer: CrowdMember, wanted: int, also_begun: bool) -> list[CrowdMember]:
    idle: list[tuple[float, CrowdMember]] = []
    begun: list[tuple[float, CrowdMember]] = []
    for one in members:
        how = one.waiting()
        if how is not None and one is not newcomer:
            (begun if how[0] else idle).append((how[1], one))
    idle.sort(key=itemgetter(0))
    chosen = idle[:wanted]
    if also_begun and len(chosen) < wanted:
        begun.sort(key=itemgetter(0))
        chosen += begun[: wanted - len(chosen)]
    return [one for _, one in chosen]


def _by_network(connections: Iterable[Any]) -> dict[str, list[Any]]:
    by_address: dict[str, list[Any]] = {}
    for one in connections:
        client = one.client
        address = client[0] if client else ""
        if address in by_address:
            by_address[address].append(one)
        else:
            by_address[address] = [one]
    by_network: dict[str, list[Any]] = {}
    for address, members in by_address.items():
        network = network_of(address)
        if network in by_network:
            by_network[network] += members
        else:
            by_network[network] = members
    return by_network


def _address_of(connection: CrowdMember) -> str:
    return connection.client[0] if connection.client else ""
