"""Mixes of faults, drawn anew every cycle."""

from __future__ import annotations

import asyncio

from tests.blackbox import membership
from tests.blackbox.bench import Bench
from tests.blackbox.nemeses import (
    bridge,
    flip_bits,
    isolate_leader,
    kill_all,
    kill_follower,
    kill_leader,
    leader_deaf,
    leader_not_heard,
    pause_leader,
    pause_train,
    power_all,
    power_one,
    quiet,
    restart_storm,
    truncate_files,
)

MOVING_SHARE = 0.4
SOAK_QUIET_SHARE = 0.25
SOAK_QUIET_S = 5.0

MIX_FAULTS = (kill_leader, kill_leader, kill_follower, kill_all, pause_train, quiet)
SOAK_FAULTS = (
    kill_leader, kill_leader, kill_follower, kill_all, pause_leader, pause_train, restart_storm, quiet,
    isolate_leader, leader_not_heard, leader_deaf, bridge, power_one, power_one, power_all, flip_bits, truncate_files,
)  # fmt: skip


async def moves(bench: Bench) -> None:
    """Changes of who holds what, and nothing else."""
    await membership.beside(bench, quiet)


async def mix(bench: Bench) -> None:
    """Processes are killed and stand still; some of it while replicas move."""
    await _perhaps_beside(bench, bench.rng.choice(MIX_FAULTS))


async def soak(bench: Bench) -> None:
    """One fault of all there are, some of them while replicas move; after one in four a while without any. For long
    runs on an `EverythingCluster`."""
    fault = bench.rng.choice(SOAK_FAULTS)
    bench.notes[f"soak: {fault.__name__}"] += 1
    await _perhaps_beside(bench, fault)
    if bench.rng.random() < SOAK_QUIET_SHARE:
        await asyncio.sleep(SOAK_QUIET_S)


async def _perhaps_beside(bench: Bench, fault: membership.Cycle) -> None:
    if bench.rng.random() < MOVING_SHARE:
        await membership.beside(bench, fault)
    else:
        await fault(bench)
