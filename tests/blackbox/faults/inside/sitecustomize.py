"""Runs at the start of every Python process that has this directory on its PYTHONPATH, before any of its modules.

Where PENSTOCK_BLACKBOX_POISON says something, no storage node can fold an entry that holds it.

Where PENSTOCK_BLACKBOX_HARM names a file, it is mapped into memory, and the process sees what `faults/harm.py` writes
there at any moment: another wall clock, another count of the seconds the machine slept, a disk that syncs late, a part
of its memory budget that others hold. The monotonic clock is never touched. What C code reads by itself (log lines'
times, file times, event loop timers) is not.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import threading
import time
from typing import Any

# As in faults/harm.py: offset of the wall clock (s), its drift (s per s), since when (monotonic s), seconds slept that
# CLOCK_BOOTTIME counts, how long a sync takes at least (s), and the part of the memory budget that others hold.
LAYOUT = struct.Struct("<6d")
SYNC_LOOK_S = 0.02
BUDGET_MODULE = "storage_nodes.node.memory.memory_budget"
REPLICA_MODULE = "storage_nodes.node.replicas.queue_replica"
MODULE_LOOK_S = 0.05
# Of what peers fill others hold less: from half of those shares on they are asked to stop. The rest is never full, so
# that what the node does refuse is messages.
OF_PEERS, OF_SOCKETS = 0.6, 0.95


def _install(path: str) -> None:
    with open(path, "rb") as file:
        told = mmap.mmap(file.fileno(), LAYOUT.size, access=mmap.ACCESS_READ)
    real = time.clock_gettime_ns
    realtime, boottime, monotonic = time.CLOCK_REALTIME, time.CLOCK_BOOTTIME, time.CLOCK_MONOTONIC
    real_sleep, real_monotonic = time.sleep, time.monotonic
    syncs = {"fsync": os.fsync, "fdatasync": os.fdatasync}

    def wall_ns() -> int:
        offset_s, drift, since_s, *_ = LAYOUT.unpack_from(told)
        if drift:
            offset_s += drift * (real(monotonic) / 1e9 - since_s)
        return real(realtime) + int(offset_s * 1e9)

    def clock_gettime_ns(clock: int) -> int:
        if clock == realtime:
            return wall_ns()
        if clock == boottime:
            return real(clock) + int(LAYOUT.unpack_from(told)[3] * 1e9)
        return real(clock)

    def late(sync: object) -> object:
        def synced(file: int) -> None:
            began_s = real_monotonic()
            sync(file)  # type: ignore[operator]
            while (left_s := began_s + LAYOUT.unpack_from(told)[4] - real_monotonic()) > 0:
                real_sleep(min(left_s, SYNC_LOOK_S))

        return synced

    time.time_ns = wall_ns
    time.time = lambda: wall_ns() / 1e9
    time.clock_gettime_ns = clock_gettime_ns
    time.clock_gettime = lambda clock: clock_gettime_ns(clock) / 1e9
    for name, sync in syncs.items():
        setattr(os, name, late(sync))
    threading.Thread(target=_hold_memory, args=(told, real_sleep), daemon=True).start()


def _loaded(name: str, content: str, sleep: Any) -> Any:
    while not hasattr(module := sys.modules.get(name), content):
        sleep(MODULE_LOOK_S)
    return module


def _poison(poison: bytes) -> None:
    replica = _loaded(REPLICA_MODULE, "QueueReplica", time.sleep).QueueReplica
    real = replica.fold

    def fold(self: Any, header: Any, batch: bytes) -> None:
        if poison in batch:
            raise ValueError("no such color")
        real(self, header, batch)

    replica.fold = fold


def _hold_memory(told: mmap.mmap, sleep: Any) -> None:
    """Once the module is there: its budget counts what is held by others with what is used."""
    module = _loaded(BUDGET_MODULE, "MemoryBudget", sleep)
    budget, kinds = module.MemoryBudget, module.Kind
    real_used = budget.used
    parts = {kinds.STAGED: OF_PEERS, kinds.INBOX: OF_PEERS, kinds.LINKS: OF_SOCKETS, kinds.FRAMES: OF_SOCKETS}

    def used(self: Any, kind: Any) -> int:
        return int(real_used(self, kind) + LAYOUT.unpack_from(told)[5] * parts.get(kind, 1.0) * self.shares_bytes[kind])

    def may_hold(self: Any, kind: Any, held_bytes: int) -> bool:
        return held_bytes < self.shares_bytes[kind] - used(self, kind)

    budget.used, budget.may_hold = used, may_hold


if _path := os.environ.get("PENSTOCK_BLACKBOX_HARM"):
    # One file a storage node where a whole installation inherits this environment; nothing for its other processes.
    _path = _path.replace("{node}", os.environ.get("PENSTOCK_NODE_ID", ""))
    if os.path.exists(_path):
        _install(_path)
if (_said := os.environ.get("PENSTOCK_BLACKBOX_POISON")) and os.environ.get("PENSTOCK_NODE_ID"):
    threading.Thread(target=_poison, args=(_said.encode(),), daemon=True).start()

if (_level := os.environ.get("PENSTOCK_BLACKBOX_LEVEL")) and (_node := os.environ.get("PENSTOCK_NODE_ID")):
    # The feature level that a storage node speaks (faults/releases.py), before anything reads it.
    _level = _level.replace("{node}", _node)
    if os.path.exists(_level):
        from storage_nodes.protocol import levels

        with open(_level) as _told:
            levels.FEATURE_LEVEL = int(_told.read())
