"""Runs at the start of every Python process that has this directory on its PYTHONPATH, before any of its modules.

Where PENSTOCK_BLACKBOX_HARM names a file, it is mapped into memory, and the process sees what `faults/harm.py` writes
there at any moment: another wall clock, another count of the seconds the machine slept, a disk that syncs late. The
monotonic clock is never touched. What C code reads by itself (log lines' times, file times, event loop timers) is not.
"""

from __future__ import annotations

import mmap
import os
import struct
import time

# As in faults/harm.py: offset of the wall clock (s), its drift (s per s), since when (monotonic s), seconds slept that
# CLOCK_BOOTTIME counts, and how long a sync takes at least (s).
LAYOUT = struct.Struct("<5d")
SYNC_LOOK_S = 0.02


def _install(path: str) -> None:
    with open(path, "rb") as file:
        told = mmap.mmap(file.fileno(), LAYOUT.size, access=mmap.ACCESS_READ)
    real = time.clock_gettime_ns
    realtime, boottime, monotonic = time.CLOCK_REALTIME, time.CLOCK_BOOTTIME, time.CLOCK_MONOTONIC
    real_sleep, real_monotonic = time.sleep, time.monotonic
    syncs = {"fsync": os.fsync, "fdatasync": os.fdatasync}

    def wall_ns() -> int:
        offset_s, drift, since_s, _, _ = LAYOUT.unpack_from(told)
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


if _path := os.environ.get("PENSTOCK_BLACKBOX_HARM"):
    # One file a storage node where a whole installation inherits this environment; nothing for its other processes.
    _path = _path.replace("{node}", os.environ.get("PENSTOCK_NODE_ID", ""))
    if os.path.exists(_path):
        _install(_path)

if (_level := os.environ.get("PENSTOCK_BLACKBOX_LEVEL")) and (_node := os.environ.get("PENSTOCK_NODE_ID")):
    # The feature level that a storage node speaks (faults/releases.py), before anything reads it.
    _level = _level.replace("{node}", _node)
    if os.path.exists(_level):
        from storage_nodes.protocol import levels

        with open(_level) as _told:
            levels.FEATURE_LEVEL = int(_told.read())
