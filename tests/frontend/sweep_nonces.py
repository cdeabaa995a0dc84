"""`python -m tests.frontend.sweep_nonces [--encryptions N]`: S29 at full size, 10,000,000 encryptions without a repeat.

One key seals in four kinds of processes: one that began anew, children that were forked before and after it sealed,
and two that were forked from one state, as two machines that were restored from one snapshot are. All their nonces are
compared with one another. The short version is in the suite (test_keys.py).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from frontend.crypto.envelope import Content, DataKey, data_key, seal_all
from tests.support.frontend_plane import ACCOUNT

BATCH = 500
NONCE = slice(22, 34)
NONCE_BYTES = 12
# Compared a part at a time, by the first byte, so that memory stays small.
PARTS = 256


def draw(key: DataKey, count: int, path: Path) -> None:
    """Appends the nonces of so many messages to a file."""
    messages = [(Content("x"), b"")] * BATCH
    with path.open("ab") as file:
        for _ in range(count // BATCH):
            file.write(b"".join(envelope[NONCE] for envelope in seal_all(key, b"", messages)[1]))


def forked(key: DataKey, count: int, path: Path) -> int:
    child = os.fork()
    if child == 0:
        draw(key, count, path)
        os._exit(0)
    return child


def repeats(paths: list[Path]) -> tuple[int, int]:
    """How many nonces there are, and how many of them were seen before."""
    total = seen_before = 0
    parts: list[list[bytes]] = [[] for _ in range(PARTS)]
    for path in paths:
        for nonce in _nonces(path):
            parts[nonce[0]].append(nonce)
    for part in parts:
        total += len(part)
        seen_before += len(part) - len(set(part))
    return total, seen_before


def _nonces(path: Path) -> Iterator[bytes]:
    data = path.read_bytes()
    return (data[at : at + NONCE_BYTES] for at in range(0, len(data), NONCE_BYTES))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encryptions", type=int, default=10_000_000)
    parser.add_argument("--draw", nargs=2, metavar=("COUNT", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    key = data_key(1, bytes(32), ACCOUNT, bytes(16))
    if options.draw:
        draw(key, int(options.draw[0]), Path(options.draw[1]))
        return 0
    began_s = time.monotonic()
    share = -(-options.encryptions // 5 // BATCH) * BATCH
    with tempfile.TemporaryDirectory(prefix="penstock-nonces-") as directory:
        paths = [Path(directory, name) for name in ("restarted", "early", "own", "snapshot-1", "snapshot-2")]
        command = [sys.executable, "-m", "tests.frontend.sweep_nonces", "--draw", str(share), str(paths[0])]
        restarted = subprocess.Popen(command)
        children = [forked(key, share, paths[1])]
        draw(key, share, paths[2])
        children += [forked(key, share, path) for path in paths[3:]]
        failed = [status for child in children if (status := os.waitpid(child, 0)[1])]
        if restarted.wait() or failed:
            sys.stderr.write("a process failed\n")
            return 1
        total, seen_before = repeats(paths)
    sys.stdout.write(f"{total:,} encryptions, {seen_before} nonces repeated, {time.monotonic() - began_s:.0f} s\n")
    return 1 if seen_before or total < options.encryptions else 0


if __name__ == "__main__":
    sys.exit(main())
