"""`scrub [ID]`: how the check of a storage node's stored files goes, or begin one now."""

from __future__ import annotations

import argparse
import asyncio
import json
from contextlib import suppress
from pathlib import Path

from deploy import limits, output
from deploy.commands.cluster_view import when
from deploy.errors import EXIT_USAGE, CommandError
from deploy.installation import Installation
from deploy.state import State
from storage_nodes.ids import node_name

COLUMNS = ["NODE", "STATE", "FILES", "BYTES", "DAMAGED", "NOT REPAIRED"]


def run(options: argparse.Namespace) -> int:
    installation = Installation(options.data_dir)
    rows, waiting = asyncio.run(ask_nodes(installation, installation.load_state(), options.id, options.start))
    output.table(COLUMNS, rows)
    for line in waiting:
        output.data(line)
    for line in damage_lines(installation.data / "nodes", options.id):
        output.data(line)
    return 0


def damage_lines(directory: Path, node_id: int | None) -> list[str]:
    """What nodes noted of damage, at starts too: a scrub counts its own finds alone."""
    from storage_nodes.log.salvage import NOTES_NAME

    lines = []
    for path in sorted(directory.glob(f"*/{NOTES_NAME}")):
        if node_id is not None and path.parent.name != node_name(node_id):
            continue
        notes = []
        for line in path.read_text(errors="replace").splitlines():
            with suppress(ValueError):  # torn, or damaged itself
                notes.append(json.loads(line))
        if notes:
            last = notes[-1]
            found = when(last["found_ms"] / 1000)
            what = f"{last['problem']}; {last['outcome']}"
            lines.append(
                f"node {path.parent.name}: damage found {len(notes):,} times, the last {found}: {what} ({path})"
            )
    return lines


async def ask_nodes(
    installation: Installation, state: State, node_id: int | None, start: bool
) -> tuple[list[list[str]], list[str]]:
    """(a row for each node, what waits for its group). Raises CommandError for a node that is not there."""
    from storage_nodes.client import StorageClient

    nodes = installation.nodes(state)
    asked = [node.node_id for node in nodes if node_id in (None, node.node_id)]
    if not asked:
        raise CommandError(f"there is no storage node {node_name(node_id or 0)}; see ./penstock node list", EXIT_USAGE)
    client = StorageClient(state.cluster_id, nodes, name="penstock-scrub", credentials=installation.credentials(state))
    await client.start()
    rows, waiting = [], []
    try:
        for number in asked:
            try:
                reply = await asyncio.wait_for(client.scrub(number, start), limits.CONTROL_TIMEOUT_S)
            except Exception as error:  # the other nodes are still worth asking
                rows.append([node_name(number), str(error) or type(error).__name__, "-", "-", "-", "-"])
                continue
            phase = "running" if reply.running else "idle"
            files = f"{reply.files_done} of {reply.files_total}"
            rows.append(
                [node_name(number), phase, files, str(reply.bytes_done), str(reply.found), str(reply.unrepaired)]
            )
            waiting += [f"node {node_name(number)}: {line}" for line in reply.waiting]
    finally:
        await client.close()
    return rows, waiting
