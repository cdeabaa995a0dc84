"""When Python's cycle collector runs in a process of the suite: rarely, and never over what stays until the end.

A worker holds eleven thousand tests, Django and the planes. By default the collector walks over all of it again and
again, which cost two fifths of the suite's processor time.
"""

from __future__ import annotations

import gc

# By default 700, 10, 10. Objects of a test without cycles end without the collector.
THRESHOLDS = (20_000, 20, 20)


def leave_off() -> None:
    """While modules are imported and tests are collected: all that is made then stays."""
    gc.disable()


def keep_what_is_there() -> None:
    """What was made until now is not looked at again. What tests leave behind is."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.enable()
