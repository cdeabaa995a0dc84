"""Replicas that are closed while their nodes go on, as an operator sees them: which queue, since when, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from deploy.commands.cluster_view import SHOWN_MAX, when
from deploy.installation import Installation
from deploy.postgres import ask_database
from deploy.state import State
from storage_nodes.ids import node_name
from storage_nodes.protocol.usage_records import queue_of_tag

KINDS = {
    "entry": "the entry at offset {offset} cannot be folded",
    "unknown-entry": "the entry at offset {offset} is of a kind that this version does not know",
    "checkpoint": "its checkpoint at offset {offset} cannot be loaded",
    "leading": "it cannot lead, at offset {offset}",
    "raft": "its group broke a promise of Raft, at offset {offset}",
    "damage": "stored data is damaged, at offset {offset}, and its group cannot repair it now",
}
# (account, queue) by the tag of a partition.
Names = dict[str, tuple[str, str]]


_NAMES = (
    "SELECT queue.uuid, account.name, queue.name FROM queue JOIN account ON account.id = queue.account_id"
    " WHERE queue.uuid = ANY(%s)"
)


def names_of(installation: Installation, state: State, rows: list[dict[str, Any]]) -> Names:
    """What the database calls the queues of these partitions; nothing where it does not answer."""
    tags = [row["tag"] for row in rows if row["tag"].startswith("queue:")]
    if not tags:
        return {}
    return ask_database(installation, state, lambda cursor: names_by(cursor, tags)) or {}


def names_by(cursor: Any, tags: Sequence[str]) -> Names:
    """By the tags of partitions; what is no queue's, or one's that is gone, is left out."""
    uuids = {tag: UUID(bytes=queue_of_tag(tag)) for tag in tags}
    cursor.execute(_NAMES, [list(uuids.values())])
    named = {queue_uuid: (account, name) for queue_uuid, account, name in cursor.fetchall()}
    return {tag: named[found] for tag, found in uuids.items() if found in named}


def named(rows: list[dict[str, Any]], names: Names) -> list[dict[str, Any]]:
    """Partitions with `queue` and `account`, None where no name is known."""
    known = [(row, *names.get(row["tag"], (None, None))) for row in rows]
    return [{**row, "account": account, "queue": queue} for row, account, queue in known]


def quarantine_lines(
    rows: list[dict[str, Any]], partitions: list[dict[str, Any]], names: Callable[[], Names]
) -> list[str]:
    """`names` is asked only where there is something to name."""
    if not rows:
        return []
    known = names()
    leaders = {row["partition"]: row["leader"] for row in partitions}
    lines = [_line(row, leaders.get(row["partition"], 0), known) for row in rows[:SHOWN_MAX]]
    if len(rows) > SHOWN_MAX:
        lines.append(f"and {len(rows) - SHOWN_MAX:,} partitions more with quarantined replicas")
    return lines


def _line(row: dict[str, Any], leader: int, names: Names) -> str:
    nodes = f"node{'s' if len(row['nodes']) > 1 else ''} {', '.join(map(node_name, row['nodes']))}"
    leads = f"node {node_name(leader)} leads it" if leader else "no node leads it, its requests are refused"
    what = KINDS.get(row["kind"], "{offset}").format(offset=row["offset"])
    return (
        f"partition {row['partition']} ({_name(row, names)}): QUARANTINED on {nodes} since {when(row['since'])}: "
        f"{what}: {row['reason']}; {leads}"
    )


def _name(row: dict[str, Any], names: Names) -> str:
    if row["tag"] in names:
        account, queue = names[row["tag"]]
        return f"queue {queue} of account {account}"
    return f"{row['tag']}, account {row['account_id']}" if row["account_id"] else str(row["tag"])
