"""Whose a node's directory is: the file `owner` in it, one line CLUSTER_ID/NODE_NAME.

Votes and logs in a directory are promises of one node. Under another name they would be given twice, or dropped as
those of a node that the cluster gave nothing to: volumes that were swapped, a cluster that got another number. So a
directory is used by the node that made it and by no other.
"""

from __future__ import annotations

import os
from contextlib import closing

from storage_nodes.ids import node_name
from storage_nodes.log.disk import Disk
from storage_nodes.log.manifest import manifest_version

OWNER_NAME = "owner"


class NotOurDirectory(Exception):
    """The text says whose it is, and what to do."""


def claim_directory(disk: Disk, directory: str, cluster_id: str, node_id: int) -> None:
    """BLOCKING. Note whose it is where it is new, before anything else is made there; durable on return. Raises
    NotOurDirectory, DirectoryInUseError, OSError."""
    own = f"{cluster_id}/{node_name(node_id)}"
    path = os.path.join(directory, OWNER_NAME)
    disk.make_directory(directory)
    with closing(disk.lock_directory(directory)):
        names = disk.list_directory(directory)
        if OWNER_NAME not in names:
            if any(manifest_version(name) is not None for name in names):
                text = f"{directory} holds a node's data and no file {OWNER_NAME} that says whose they are"
                raise NotOurDirectory(f"{text}. If they are this node's, write the line {own} into {path}")
            file = disk.open(f"{path}.new", create=True)
            file.write(0, [f"{own}\n".encode()])
            file.sync()
            disk.rename(f"{path}.new", path)
            disk.sync_directory(directory)
        file = disk.open(path)
        owner = file.read(0, file.size()).decode(errors="replace").strip()
    if owner != own:
        text = f"{directory} holds the data of node {owner}, and this is node {own}. Give each node its own directory"
        raise NotOurDirectory(f"{text}; a node keeps its name, and a cluster its number, for ever")
