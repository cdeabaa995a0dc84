"""What an installation costs that nobody uses: seconds to start, CPU over half a minute, memory per process.

Aims (DESIGN.md, LIBRARIES.md): installed, up in under 20 s; idle, under 5 % of one core and 1.2 GB. Memory is given as
RSS (what `top` shows; shared pages counted for every process) and PSS (shared pages divided among their users).
"""

from __future__ import annotations

import time

import psutil

from benchmarks.report import Report
from benchmarks.temporary_installation import TemporaryInstallation

SETTLE_S = 5.0
MEASURED_S = 30.0
START_S_MAX = 20.0
CPU_PERCENT_MAX = 5.0
RSS_MIB_MAX = 1.2 * 1024


def main() -> int:
    report = Report("idle")
    began = time.monotonic()
    with TemporaryInstallation() as installation:
        start_s = time.monotonic() - began
        report.add("first start, with a demo key and one more", start_s, "s")
        time.sleep(SETTLE_S)
        with installation.cpu() as use:
            time.sleep(MEASURED_S)
        cpu_percent = add_cpu(report, use.spent)
        rss_mib = add_memory(report, installation.processes())
    report.print()
    return 0 if start_s < START_S_MAX and cpu_percent < CPU_PERCENT_MAX and rss_mib < RSS_MIB_MAX else 1


def add_cpu(report: Report, spent: dict[str, float]) -> float:
    percents = {name: seconds / MEASURED_S * 100 for name, seconds in spent.items() if name != "load generator"}
    total = sum(percents.values())
    report.add("idle CPU, all processes", total, "% of one core")
    for name, percent in percents.items():
        report.add(f"  {name}", percent, "% of one core")
    return total


def add_memory(report: Report, processes: dict[str, list[psutil.Process]]) -> float:
    infos = {name: [process.memory_full_info() for process in group] for name, group in processes.items()}
    rss = {name: sum(info.rss for info in group) / 2**20 for name, group in infos.items()}
    pss = {name: sum(info.pss for info in group) / 2**20 for name, group in infos.items()}
    report.add("memory, all processes, RSS", sum(rss.values()), "MiB")
    report.add("memory, all processes, PSS", sum(pss.values()), "MiB")
    for name in rss:
        report.add(f"  {name}, RSS", rss[name], "MiB")
        report.add(f"  {name}, PSS", pss[name], "MiB")
    return sum(rss.values())


if __name__ == "__main__":
    raise SystemExit(main())
