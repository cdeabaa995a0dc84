"""The clocks of a machine (docs/clocks.md): one that only runs on, and one that says what time it is.

The monotonic clock is for leases, elections and waits: no step of the system clock moves it. It goes on while the
machine is suspended, so that a node that is woken notices that it stood still.

The wall clock is read anew each time, so that one that was set right is right from then on. Nothing is decided by it
alone: it goes into what the nodes agree on (`clock_agreement.py`).
"""

from __future__ import annotations

import time
from time import clock_gettime_ns

# Linux has one that counts suspended time; elsewhere the common one has to do.
_MONOTONIC: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class NodeClock:
    """Milliseconds, both ways."""

    def mono_ms(self) -> int:
        """Monotonic milliseconds; meaningful only as differences within this process."""
        return clock_gettime_ns(_MONOTONIC) // 1_000_000

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch, as the machine has it at this moment: it may be wrong, jump and fall."""
        return time.time_ns() // 1_000_000
