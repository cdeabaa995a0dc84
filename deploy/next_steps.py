"""What an operator does about a storage node that does not come up, told beside how it ended."""

from __future__ import annotations

import re
from collections.abc import Sequence

from storage_nodes.ids import node_name

_STATUS = re.compile(r"ended with status (\d+)")
# Where it has no room for its log either, its status alone tells.
STATUS_DISK_FULL = 73
STATUS_DISK_FAILED = 74
# Written by a node that ends, before the status is one for several causes.
UNUSABLE_DIRECTORY = "stopping: this directory cannot be used"
UNREADABLE_OWNER = "stopping: whose this directory is cannot be read"
NO_CERTIFICATE = "stopping: no certificate that can be used"


def next_step(role: str, number: int, last_end: str, last_words: Sequence[str]) -> str:
    """Of a process that should be up and is not; empty where there is none to tell."""
    if role != "storage-node":
        return ""
    name = node_name(number)
    start = f"./penstock node start {name}"
    found = _STATUS.match(last_end)
    status = int(found[1]) if found else 0
    said = "\n".join(last_words)
    if status == STATUS_DISK_FULL:
        return f"disk full: free space; the node starts by itself then, at once with {start}"
    if status == STATUS_DISK_FAILED:
        return "a write to its disk failed: look for a disk that is full or broken; the node starts by itself then"
    if UNUSABLE_DIRECTORY in said or UNREADABLE_OWNER in said:
        return (
            f"mend its directory, then {start}. If it is lost: an empty directory in its place and {start}, and the "
            f"others feed it; or another node: ./penstock node add, then ./penstock node decommission {name} --dead"
        )
    if NO_CERTIFICATE in said:
        return f"{start} makes the certificate again, where it is not one of your own"
    return ""
