"""`status`: the supervisor's processes, and what the storage cluster says about its nodes, partitions and leaders."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from typing import Any

from deploy import control, output, tls
from deploy.commands import cluster_view
from deploy.commands.cluster_view import SHOWN_MAX, health_words, when
from deploy.commands.quarantine_view import Names, named, names_of, quarantine_lines
from deploy.commands.usage_view import last_round, usage_line
from deploy.errors import EXIT_NOT_RUNNING, EXIT_USAGE, CommandError
from deploy.installation import Installation
from deploy.next_steps import next_step
from deploy.state import State
from storage_nodes.ids import node_name

NamesOf = Callable[[list[dict[str, Any]]], Names]
COLUMNS = ["ROLE", "ID", "PID", "ADDRESS", "HEALTH", "RESTARTS", "UP SINCE"]
NODE_COLUMNS = ["NODE", "ZONE", "STATE", "SINCE", "REPLICAS", "LEADS", "DISK FREE", "CLOCK"]


def run(options: argparse.Namespace) -> int:
    installation = Installation(options.data_dir)
    state = installation.load_state()
    try:
        status = status_of(installation, state)
    except CommandError:
        if not options.json:
            raise
        nothing: dict[str, Any] = {
            "processes": [],
            "nodes": [],
            "partitions": [],
            "quarantined": [],
            "feature_level": None,
            "usage_round": None,
            "certificate_trouble": None,
        }
        output.data_json({"running": False, **nothing})
        return EXIT_NOT_RUNNING

    def names(rows: list[dict[str, Any]]) -> Names:
        return names_of(installation, state, rows)

    if options.partition is not None:
        return show_partition(status, options.partition, options.json, names)
    status["usage_round"] = last_round(installation, state)
    status["certificate_trouble"] = tls.trouble(state)
    if options.json:
        output.data_json(status)
    else:
        print_status(status, names)
    return 0


def status_of(installation: Installation, state: State) -> dict[str, Any]:
    """Raises CommandError where nothing runs."""
    processes = control.ask(installation.run, {"command": "status"})
    cluster = asyncio.run(cluster_view.describe_cluster(installation, state))
    cluster["nodes"] = cluster_view.with_processes(cluster["nodes"], processes["processes"])
    return {"running": True, **processes, **cluster}


def show_partition(status: dict[str, Any], partition: int, as_json: bool, names: NamesOf) -> int:
    rows = [row for row in status["partitions"] if row["partition"] == partition]
    if not rows:
        raise CommandError(status.get("cluster_error") or f"there is no partition {partition}", EXIT_USAGE)
    known = names(rows)
    row = named(rows, known)[0]
    if as_json:
        output.data_json(row)
        return 0
    stopped = [one for one in status["quarantined"] if one["partition"] == partition]
    for quarantined in quarantine_lines(stopped, [row], lambda: known):
        output.data(output.red(quarantined))
    line = cluster_view.leader_line(row)
    output.data(line if row["leader"] else output.red(line))
    output.data(
        f"epoch {row['epoch']}, replicas on nodes {', '.join(map(node_name, row['replicas']))} (home: the first), "
        f"tag {row['tag']}"
    )
    return 0


def print_status(status: dict[str, Any], names: NamesOf) -> None:
    output.data(f"endpoint {status['endpoint']}   console {status['console']}")
    quarantined = status["quarantined"]
    told = {row["partition"] for row in quarantined}
    others = [row for row in status["partitions"] if row["partition"] not in told]
    recent = cluster_view.recent_rows(status["partitions"])
    leaderless = [row for row in others if not row["leader"]]
    shown = [*quarantined[:SHOWN_MAX], *leaderless[:SHOWN_MAX], *(recent if len(recent) <= SHOWN_MAX else [])]
    known = names(shown) if shown else {}
    for line in (
        *quarantine_lines(quarantined, status["partitions"], lambda: known),
        *cluster_view.leaderless_lines(named(leaderless, known)),
        *filter(None, [status["certificate_trouble"]]),
        *cluster_view.clock_lines(status["nodes"]),
        *cluster_view.disk_lines(status["nodes"]),
    ):
        output.data(output.red(line))
    output.table(COLUMNS, [process_row(process) for process in status["processes"]])
    for line in not_up_lines(status["processes"]):
        output.data(line)
    usage = status["usage_round"]
    line = usage_line(usage)
    output.data(output.red(line) if usage and usage["trouble"] else line)
    if status["nodes"]:
        output.data("")
        output.table(NODE_COLUMNS, cluster_view.node_rows(status))
        for line in cluster_view.level_lines(status):
            output.data(line)
    if recent:
        output.data("\nleaders that changed in the last 10 minutes")
    for line in cluster_view.recent_lines(named(recent, known)):
        output.data(f"  {line}")
    if "cluster_error" in status:
        output.say(f"penstock: the storage cluster does not answer: {status['cluster_error']}")


def not_up_lines(processes: list[dict[str, Any]]) -> list[str]:
    """Each process that should be up and is not: since when, how it ended, and what it said last."""
    lines: list[str] = []
    for process in processes:
        not_up = process.get("not_up")
        if not_up is None:
            continue
        parts = [
            f"{process['role']} {number_of(process)} {health_words(process['health'])}",
            f"{process['restarts']} restarts",
            f"not up since {when(not_up['since'])}",
        ]
        if not_up["last_end"]:
            parts.append(not_up["last_end"])
        step = next_step(process["role"], process["id"], not_up["last_end"], not_up["last_words"])
        lines += ["", output.red(", ".join(parts)), *([f"  {step}"] if step else []), *last_words_lines(not_up)]
    return lines


def last_words_lines(not_up: dict[str, Any]) -> list[str]:
    """What it said since it was started. It may have said that long before it was not up any more."""
    if not not_up["last_words"]:
        return [f"  it has said nothing since it was started, in {not_up['log']}"]
    written = f"written {when(not_up['last_words_at'])}, in {not_up['log']}"
    return [f"  its last words, {written}:", *(f"    {line}" for line in not_up["last_words"])]


def number_of(process: dict[str, Any]) -> str:
    """Which one of its role."""
    return node_name(process["id"]) if process["role"] == "storage-node" else str(process["id"])


def process_row(process: dict[str, Any]) -> list[str]:
    shown = [process["role"], number_of(process)]
    shown += [process[name] for name in ("pid", "address", "health", "restarts")]
    return [*("-" if value is None else str(value) for value in shown), when(process["started_at"])]
