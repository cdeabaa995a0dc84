"""What still looks at everything that a queue holds in `live`, with as much there as there may be: it takes no longer
than that many steps. The bounds are some times what was measured; a step that grows with the state would pass them by
hundreds."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from storage_nodes.limits import DELAYED_LIVE_MAX, RETENTION_MS_DEFAULT
from storage_nodes.machines.queue.leader.leader import RETENTION_CHECK_MS_MIN
from storage_nodes.machines.queue.machine import QueueMachine, state_of
from storage_nodes.protocol.records import HEADER_DELAY_MS, encode_body
from tests.storage_nodes.machines.queue.partition import Partition

BATCH = 2_500
HOUR_MS = 3_600_000
# Of the processor, in seconds.
TICK_S_MAX = 0.2
EXPIRE_ALL_S_MAX = 4.0
READ_S_MAX = 0.8
ADOPT_S_MAX = 0.2
LEAD_S_MAX = 0.4


def cpu_s(work: Callable[[], object]) -> float:
    """Of this thread: other processes do not count."""
    began_s = time.thread_time()
    work()
    return time.thread_time() - began_s


@pytest.fixture(scope="module")
def full() -> Partition:
    """No two neighbours are alike, so nothing is packed as a run."""
    partition = Partition()
    for first in range(0, DELAYED_LIVE_MAX, BATCH):
        delays_ms = [600_000 + number * 7_919 % 299_993 for number in range(first, first + BATCH)]
        bodies = [encode_body(b"", headers=[(HEADER_DELAY_MS, b"%d" % delay_ms)]) for delay_ms in delays_ms]
        partition.append(bodies, plain=False)
    assert len(partition.leader.state.live) == DELAYED_LIVE_MAX and not partition.leader.state.delayed
    return partition


def test_state_with_as_much_in_it_as_there_may_be_is_read_and_led_in_time_that_grows_with_it(full: Partition) -> None:
    blob = full.leader.checkpoint()
    read = []
    read_s = cpu_s(lambda: read.append(state_of(blob)))
    machine = QueueMachine()
    adopt_s = cpu_s(lambda: machine.adopt(read[0]))
    lead_s = cpu_s(lambda: machine.lead(full.now_ms + HOUR_MS))  # all of it is due at once
    assert machine.state.live == full.leader.state.live
    measured = f"read {read_s:.3f} s, adopted {adopt_s:.3f} s, led {lead_s:.3f} s"
    assert read_s < READ_S_MAX and adopt_s < ADOPT_S_MAX and lead_s < LEAD_S_MAX, measured


def test_messages_that_outlived_their_retention_are_expired_in_time_that_grows_with_their_number(
    full: Partition,
) -> None:
    full.now_ms += RETENTION_MS_DEFAULT + HOUR_MS
    ticks_s: list[float] = []
    all_s = 0.0
    while full.leader.state.live:
        ticks_s.append(cpu_s(full.tick))
        all_s += ticks_s[-1] + cpu_s(full.commit)
        full.now_ms += RETENTION_CHECK_MS_MIN
        assert len(ticks_s) < 100, "it goes on and on"
    assert full.leader.state.expired == DELAYED_LIVE_MAX
    measured = f"the longest of {len(ticks_s)} looks took {max(ticks_s):.3f} s, all {all_s:.3f} s"
    assert max(ticks_s) < TICK_S_MAX and all_s < EXPIRE_ALL_S_MAX, measured
    full.check()
