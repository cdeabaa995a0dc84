"""Keeps an eye on this node's clock, with each round of heartbeats, and tells where operators look when it is wrong.

A node whose clock is off goes on as a follower. It stands for election only where nobody else can win (`elections.py`),
hands over what it leads (`maintenance.py`), and its heartbeats ask the others to give it nothing to lead. It comes back
by itself once the clock is right.
"""

from __future__ import annotations

from collections.abc import Iterable

import structlog
from prometheus_client import Gauge

from storage_nodes.limits import CLOCK_WAIT_MS_MAX
from storage_nodes.node.clocks.clock import NodeClock
from storage_nodes.node.clocks.clock_agreement import ClockAgreement

CLOCK_OFFSET = Gauge(
    "penstock_node_clock_offset_seconds", "How far this node's clock is ahead of what most nodes' clocks say"
)
CLOCK_OFF = Gauge(
    "penstock_node_clock_off", "1 = the node's clock differs from those of a majority: it leads nothing that others can"
)

_log = structlog.get_logger()


class ClockWatch:
    """Of one node. On the event loop."""

    def __init__(self, clock: NodeClock, node_id: int) -> None:
        self._clock = clock
        self._node_id = node_id
        self.agreement = ClockAgreement(node_id)
        # When it looked first.
        self._since_ms = clock.mono_ms()
        self._has_looked = False

    @property
    def is_off(self) -> bool:
        return self.agreement.is_off

    @property
    def is_unknown(self) -> bool:
        """Is it too early to tell whether the clock is off?"""
        return not self.agreement.is_off and not self.is_fit

    @property
    def is_fit(self) -> bool:
        """May the node stand for election where the log says what time it was? Not with a clock that is off, nor before
        so many clocks were heard that it is known whether it is; but for that it does not wait for long."""
        agreement = self.agreement
        if not agreement.heard_majority:
            return self._clock.mono_ms() - self._since_ms >= CLOCK_WAIT_MS_MAX
        return not agreement.is_off

    def heard(self, peer: int, peer_wall_ms: int, registered: Iterable[int]) -> None:
        """This came with a heartbeat. Looked at now: with the beat that makes a majority of peers be up, an election
        may begin at once."""
        self.agreement.heard(peer, peer_wall_ms, self._clock.mono_ms())
        self.look(registered)

    def told(self, clocks: Iterable[tuple[int, int, int]]) -> None:
        """A peer's heartbeat says this of other clocks."""
        self.agreement.told(clocks, self._clock.mono_ms())

    def look(self, registered: Iterable[int]) -> None:
        agreement = self.agreement
        was_off = agreement.is_off
        if not self._has_looked:
            self._has_looked, self._since_ms = True, self._clock.mono_ms()
        agreement.look(self._clock.wall_ms(), self._clock.mono_ms(), registered)
        offset_ms = agreement.offset_ms(self._node_id) or 0
        CLOCK_OFFSET.set(offset_ms / 1_000)
        CLOCK_OFF.set(agreement.is_off)
        if agreement.is_off and not was_off:
            _log.critical(
                "the clock of this machine is wrong: the node leads nothing that others can lead until it is set right",
                offset_s=offset_ms / 1_000, action="set the clock and keep it set, by NTP; no restart is needed",
            )  # fmt: skip
        elif was_off and not agreement.is_off:
            _log.warning("the clock of this machine is right again", offset_s=offset_ms / 1_000)

    def agreed_ms(self) -> int:
        """Agreed time; where it is not known, what the own clock says."""
        agreed_ms = self.agreement.agreed_ms(self._clock.mono_ms())
        return self._clock.wall_ms() if agreed_ms is None else agreed_ms
