"""What an earlier supervisor left behind: found by the installation's mark, stopped, and nothing else touched.

Children ask the kernel for a signal when their supervisor dies, so usually nothing is left. A child that was itself
stopped, or whose servers forked, may still be there: it would hold ports and files that the next `up` needs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from deploy import limits
from deploy.installation import MARK


def is_alive_in(pid: int, directory: Path) -> bool:
    """Whether `pid` is a live process with `directory` in its command line."""
    try:
        return os.fsencode(directory) in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def find_leftovers(data: Path) -> list[int]:
    """Live processes that carry this data directory's mark, or are its PostgreSQL server (which rewrites its own)."""
    mark = os.fsencode(f"{MARK}={data}")
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            marked = mark in (entry / "environ").read_bytes().split(b"\0")
            zombie = (entry / "stat").read_text().rpartition(") ")[2].startswith("Z")
        except OSError:
            continue
        if marked and not zombie:
            found.append(int(entry.name))
    try:
        postmaster = int((data / "postgres" / "postmaster.pid").read_text().split("\n", 1)[0])
        if postmaster not in found and is_alive_in(postmaster, data / "postgres"):
            found.append(postmaster)
    except (OSError, ValueError):
        pass
    return found


def stop_leftovers(data: Path) -> int:
    """Stop them: politely, then not. The caller holds the supervisor's lock, so none of them is in use."""
    found = find_leftovers(data)
    send_all(found, signal.SIGTERM)
    deadline = time.monotonic() + limits.LEFTOVER_TERM_S
    while find_leftovers(data) and time.monotonic() < deadline:
        time.sleep(limits.READY_PROBE_INTERVAL_S)
    send_all(find_leftovers(data), signal.SIGKILL)
    while find_leftovers(data) and time.monotonic() < deadline + limits.LEFTOVER_TERM_S:
        time.sleep(limits.READY_PROBE_INTERVAL_S)
    return len(found)


def send_all(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
