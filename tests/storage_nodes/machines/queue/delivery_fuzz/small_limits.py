"""Limits of the machine that a run draws, small enough that its few messages reach them; restored when the run ends."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from unittest import mock

from storage_nodes.machines import producers
from storage_nodes.machines.queue.delivery import by_group, fair, groups, leases, pending_commands, strategy
from storage_nodes.machines.queue.leader import leader, letters
from storage_nodes.machines.queue.state import (
    checkpoint,
    configs,
    fifo_state,
    held_messages,
    offset_ranges,
    queue_state,
)
from tests.storage_nodes.machines.queue import naive_fifo

# Values to draw from, the name, and the modules that hold it.
DRAWN: tuple[tuple[tuple[int, ...], str, tuple[ModuleType, ...]], ...] = (
    ((1, 2, 2, 50_000), "LEASE_STEPS_PER_INPUT_MAX", (leases,)),
    ((2, 1_024), "_GARBAGE_MAX", (leases,)),
    ((1, 1, 2, 20_000), "_GROUPS_PER_LOOK_MAX", (groups,)),
    ((1, 256), "_HEAD_MAX", (groups,)),
    ((1, 3, 10), "_FREE_PART", (groups,)),
    ((2, 1_024), "_TIMES_GARBAGE_MAX", (groups,)),
    ((12, 100_000), "FIFO_READ_AHEAD_MESSAGES_MAX", (by_group, groups)),
    ((4, 2_000), "READ_AHEAD_MESSAGES_MAX", (by_group, fair)),
    ((1, 2, 2_000), "_EXPIRED_PER_LOOK_MAX", (by_group,)),
    ((3, 10, 10_000), "EXPIRED_PER_COMMAND_MAX", (strategy, pending_commands)),
    ((3_000, 300_000), "ATTEMPT_MS_MAX", (by_group, fifo_state)),
    ((2, 10_000), "ATTEMPTS_MAX", (fifo_state,)),
    ((2, 5, 100_000), "REMEMBERED_UNASKED_MESSAGES_MAX", (by_group,)),
    ((4, 10, 200_000), "REMEMBERED_MESSAGES_MAX", (by_group,)),
    ((1, 2, 3, 2_048), "BLOCK_RANGES_MAX", (offset_ranges,)),
    ((1, 3, 16_384), "LAZY_RANGES_MIN", (checkpoint, held_messages)),
    ((1, 5, 10_000), "CHECKPOINT_PIECES_MESSAGES", (held_messages,)),
    ((1,), "LAZY_ROWS_MIN", (producers,)),
    ((1, 2, 3, 100), "DEAD_LETTERS_PER_MOVE_MAX", (letters,)),
    ((20, 1_000), "RETENTION_CHECK_MS_MIN", (leader,)),
    ((1,), "RETENTION_MS_MIN", (configs,)),
    ((500,), "PURGE_INTERVAL_MS", (queue_state, naive_fifo)),
)


@contextmanager
def small_limits(rnd: random.Random) -> Iterator[dict[str, int]]:
    """What was drawn, by name."""
    drawn = {}
    with ExitStack() as stack:
        for values, name, modules in DRAWN:
            drawn[name] = rnd.choice(values)
            for module in modules:
                stack.enter_context(mock.patch.object(module, name, drawn[name]))
        yield drawn
