"""What a process and its children cost: seconds, CPU seconds, the greatest resident size of all of them together."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import psutil

ROOT = Path(__file__).resolve().parent.parent
RUN_S_MAX = 1_800.0
SAMPLE_S = 0.2
MIB = 1024 * 1024


class Cost(NamedTuple):
    """Of a process with its children, or until it was stopped. CPU seconds say more than seconds where others use the
    machine."""

    seconds: float
    cpu_s: float
    resident_mib: float
    ended: bool = True
    # The last line of its standard output: jobs answer with JSON.
    answer: str = ""


def measured(command: list[str], settings: Mapping[str, str], given: str = "", seconds_max: float = RUN_S_MAX) -> Cost:
    """Runs it in the repository's folder. Raises RuntimeError where it fails; what takes too long is stopped."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **settings}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    cpu_s: dict[int, float] = {}
    peak_mib = [0.0]
    sampler = threading.Thread(target=_sample, args=(process, cpu_s, peak_mib), daemon=True)
    sampler.start()
    answer, ended = "", True
    try:
        answer, _ = process.communicate(given, timeout=seconds_max)
    except subprocess.TimeoutExpired:
        ended = False
    finally:
        seconds = time.perf_counter() - began
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        sampler.join()
    if not ended:
        return Cost(seconds, sum(cpu_s.values()), peak_mib[0], False)
    if process.returncode != 0:
        raise RuntimeError(f"{command[:4]} ended with {process.returncode}")
    last = answer.splitlines()[-1] if answer.strip() else ""
    if last:
        sys.stderr.write(f"  {last}\n")
    return Cost(seconds, sum(cpu_s.values()), peak_mib[0], answer=last)


def cpu_s(pid: int) -> float:
    """CPU seconds of the threads of a process, to the microsecond: the clock ticks of /proc/PID/stat are too coarse for
    short turns."""
    return sum(int(stat.read_text().split()[0]) for stat in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def _sample(process: subprocess.Popen[str], cpu_s: dict[int, float], peak_mib: list[float]) -> None:
    watched = psutil.Process(process.pid)
    while process.poll() is None:
        sizes = 0
        with contextlib.suppress(psutil.NoSuchProcess):
            for one in (watched, *watched.children(recursive=True)):
                sizes += one.memory_info().rss
                cpu_s[one.pid] = sum(one.cpu_times()[:2])
        peak_mib[0] = max(peak_mib[0], sizes / MIB)
        time.sleep(SAMPLE_S)
