"""The garbage collector of this process. Nearly everything that a request makes is freed by its count of references;
what the collector looks at is mostly what the process loaded at its start, again and again: 6 % of the time under load.
"""

from __future__ import annotations

import gc

from frontend.limits import COLLECTOR_GENERATIONS


def pace_collector() -> None:
    """Called once, when all is loaded: that is never looked at again, and what comes later less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR_GENERATIONS)
