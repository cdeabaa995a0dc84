"""The time of a partition while this node leads it: what its machine decides by, and what its entries are stamped with.

    begins at   the last stamp of its log, or agreed time (clock_agreement.py) if that is later
    runs        with the monotonic clock: it never falls, jumps or stands still, whatever is done to any wall clock
    is slewed   where it is more than CLOCK_OFFSET_MS_MAX from agreed time it runs CLOCK_SLEW_PERMILLE faster or slower
                until it is not: the clocks it began by were set right since

It goes on from one leader to the next, by the stamps in the log. So a lease, a delay or a deduplication window is as
long as it was promised to be, but for the slew.

`ahead_ms` is how far it is ahead of agreed time. What a wrong clock must not bring about, the end of a retention and
the release of a scheduled message, waits until agreed time is there too.
"""

from __future__ import annotations

from storage_nodes.limits import CLOCK_OFFSET_MS_MAX, CLOCK_SLEW_AT_ONCE_MS_MAX, CLOCK_SLEW_PERMILLE
from storage_nodes.model import AHEAD_UNKNOWN
from storage_nodes.node.clocks.clock import NodeClock
from storage_nodes.node.clocks.clock_agreement import ClockAgreement


class LeaderTime:
    """Of one leadership."""

    __slots__ = ("_agreement", "_clock", "_mono_ms", "_now_ms", "_slew_rest", "ahead_ms")

    def __init__(self, clock: NodeClock, agreement: ClockAgreement, last_stamp_ms: int) -> None:
        self._clock = clock
        self._agreement = agreement
        self._mono_ms = mono_ms = clock.mono_ms()
        agreed_ms = agreement.agreed_ms(mono_ms)
        # Without a majority to ask: a stamp too far ahead makes messages stay longer, one too far behind makes them
        # expire early once agreed time is known. Until then nothing expires.
        self._now_ms = max(last_stamp_ms, clock.wall_ms() if agreed_ms is None else agreed_ms)
        self._slew_rest = 0
        self.ahead_ms = AHEAD_UNKNOWN if agreed_ms is None else self._now_ms - agreed_ms

    def now_ms(self) -> int:
        """`ahead_ms` is of the same moment."""
        mono_ms = self._clock.mono_ms()
        elapsed_ms = mono_ms - self._mono_ms
        if elapsed_ms > 0:
            self._mono_ms = mono_ms
            now_ms = self._now_ms + elapsed_ms
            base_ms = self._agreement.base_ms
            if base_ms is None:
                self.ahead_ms = AHEAD_UNKNOWN
            else:
                ahead_ms = now_ms - base_ms - mono_ms
                if not -CLOCK_OFFSET_MS_MAX <= ahead_ms <= CLOCK_OFFSET_MS_MAX:
                    slew_ms = self._slew(elapsed_ms) if ahead_ms < 0 else -self._slew(elapsed_ms)
                    now_ms += slew_ms
                    ahead_ms += slew_ms
                self.ahead_ms = ahead_ms if ahead_ms > 0 else 0
            self._now_ms = now_ms
        return self._now_ms

    def not_before(self, stamp_ms: int) -> None:
        """The log has an entry with this stamp, which was not known when this began."""
        late_ms = stamp_ms - self.now_ms()
        if late_ms > 0:
            self._now_ms = stamp_ms
            if self.ahead_ms != AHEAD_UNKNOWN:
                self.ahead_ms += late_ms

    def mono_of(self, time_ms: int) -> int:
        """When this time will be, on the monotonic clock; a little off while it is slewed."""
        return time_ms - self._now_ms + self._mono_ms

    def _slew(self, elapsed_ms: int) -> int:
        """By how much to run faster or slower now. Of a long time in which nobody asked only a part counts: made up for
        at once it would be a jump."""
        counted_ms = min(elapsed_ms, CLOCK_SLEW_AT_ONCE_MS_MAX)
        slew_ms, self._slew_rest = divmod(self._slew_rest + counted_ms * CLOCK_SLEW_PERMILLE, 1_000)
        return slew_ms
