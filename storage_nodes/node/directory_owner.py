"""Whose a node's directory is: the file `owner` in it, one line CLUSTER_ID/NODE_NAME.

Votes and logs in a directory are promises of one node. Under another name they would be given twice, or dropped as
those of a node that the cluster gave nothing to: volumes that were swapped, a cluster that was numbered anew. So a
directory is taken by the node that made it and by no other.
"""

from __future__ import annotations

import os
import tempfile

from storage_nodes.ids import node_name
from storage_nodes.log.manifest import manifest_version

OWNER_NAME = "owner"


class NotOurDirectory(Exception):
    """The text says whose it is, and what to do."""


def claim_directory(directory: str, cluster_id: str, node_id: int) -> None:
    """BLOCKING. Note whose it is where it is new, before anything else is made there; durable on return. Raises
    NotOurDirectory."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    path, own = os.path.join(directory, OWNER_NAME), f"{cluster_id}/{node_name(node_id)}"
    if not os.path.exists(path):
        if any(manifest_version(name) is not None for name in os.listdir(directory)):
            text = f"{directory} holds a node's data and no file {OWNER_NAME} that says whose they are"
            raise NotOurDirectory(f"{text}. If they are this node's, write the line {own} into {path}")
        _write_once(directory, path, own)
    with open(path) as file:
        owner = file.read().strip()
    if owner != own:
        text = f"{directory} holds the data of node {owner}, and this is node {own}. Give each node its own directory"
        raise NotOurDirectory(f"{text}; a node keeps its name, and a cluster its number, for ever")


def _write_once(directory: str, path: str, own: str) -> None:
    """Of two processes that do so at once one is first, and the other one reads its line."""
    descriptor, made = tempfile.mkstemp(prefix=OWNER_NAME, dir=directory)
    with open(descriptor, "w") as file:
        file.write(f"{own}\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(made, path)
    except FileExistsError:
        pass
    finally:
        os.unlink(made)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
