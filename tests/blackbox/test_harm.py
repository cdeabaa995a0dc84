"""Harm from inside a process reaches it while it runs, and leaves its monotonic clock alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.blackbox.faults.harm import Harm

LOOK = """
import json, os, sys, time
file = open(sys.argv[1], "w")
for line in sys.stdin:
    began = time.monotonic()
    os.fdatasync(file.fileno())
    sync_s = time.monotonic() - began
    boot_s = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
    print(json.dumps([time.time(), time.time_ns() / 1e9, boot_s, time.monotonic(), sync_s]), flush=True)
"""


def test_running_process_sees_the_harm_at_once(tmp_path: Path) -> None:
    harm = Harm(tmp_path, [1, 2])
    node = harm.nodes[1]
    command = [sys.executable, "-c", LOOK, str(tmp_path / "synced")]
    environment = {**os.environ, **harm.settings(), "PENSTOCK_NODE_ID": "1"}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None and child.stdout is not None

        def look() -> tuple[float, float, float, float]:
            child.stdin.write("\n")  # type: ignore[union-attr]
            child.stdin.flush()  # type: ignore[union-attr]
            wall_s, wall_ns_s, boot_s, monotonic_s, sync_s = json.loads(child.stdout.readline())  # type: ignore[union-attr]
            assert abs(monotonic_s - time.monotonic()) < 5.0
            assert abs(wall_s - wall_ns_s) < 0.1
            return wall_s - time.time(), boot_s, monotonic_s, sync_s

        _, boot_before_s, _, _ = look()
        node.wall(86_400.0)
        assert abs(look()[0] - 86_400.0) < 5.0
        node.wall(0.0, drift=1000.0)
        time.sleep(0.05)
        assert look()[0] > 30.0
        harm.none()
        node.slept(28_800.0)
        off_s, boot_s, _, sync_s = look()
        assert abs(off_s) < 5.0
        assert abs(boot_s - boot_before_s - 28_800.0) < 5.0
        assert sync_s < 0.15
        node.syncs_take(0.2)
        assert look()[3] >= 0.2
        child.stdin.close()
