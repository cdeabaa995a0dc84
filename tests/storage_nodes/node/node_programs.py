"""Storage nodes with other bounds than in earnest, so that tests that wait for one, or fill one, take seconds."""

from __future__ import annotations

from storage_nodes.limits import MIB


def node_with(**bounds: int) -> str:
    """A program for `python -c`: a node whose limits of these names are set before anything reads them."""
    settings = "\n".join(f"limits.{name} = {value}" for name, value in bounds.items())
    run = 'runpy.run_module("storage_nodes", run_name="__main__")'
    return f"import runpy\nfrom storage_nodes import limits\n{settings}\n{run}\n"


# Leadership goes home that soon.
HOMING_MS = 1_500
HOMING_NODE = node_with(BALANCE_INTERVAL_MS=250, BALANCE_LEVEL_MS_MIN=HOMING_MS)
# A follower that was away is soon too far behind for the log.
SMALL_WAL_FILE_BYTES = 16 * MIB
SMALL_LAGGARD_BYTES_MAX = 2 * SMALL_WAL_FILE_BYTES
SMALL_FILES_NODE = node_with(
    WAL_FILE_BYTES=SMALL_WAL_FILE_BYTES,
    SEGMENT_BYTES_MAX=SMALL_WAL_FILE_BYTES,
    LAGGARD_BYTES_MAX=SMALL_LAGGARD_BYTES_MAX,
)

# A leader that hears no majority leads on for so long, without a lease.
STUBBORN_MS = 3_000
STUBBORN_NODE = node_with(QUORUM_LOST_MS=STUBBORN_MS)


def unreadable_marker(node_id: int) -> str:
    """The name of the file beside the directories of a cluster that says what this node of `UNREADABLE_NODE` cannot
    read any more: a path, and from where to where."""
    return f"node-{node_id}-unreadable"


# A node with small files on a device that fails reads (EIO): where that file says so.
UNREADABLE_NODE = (
    """
import errno, os
marker = os.environ["PENSTOCK_NODE_DIR"] + "-unreadable"
real = os.pread
def pread(fd, length, position):
    try:
        with open(marker) as file:
            path, first, end = file.read().split()
    except FileNotFoundError:
        return real(fd, length, position)
    if position < int(end) and position + length > int(first) and os.readlink(f"/proc/self/fd/{fd}") == path:
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    return real(fd, length, position)
os.pread = pread
"""
    + SMALL_FILES_NODE
)

# A message that holds this cannot be folded, until there is a file `healed` beside the node's directory.
POISON = b"poison"


def poisoned_node(retry_ms: int = 3_000) -> str:
    """A program for `python -c`: a node whose queues cannot fold POISON, and which tries again soon."""
    return f"""
import os, runpy
from storage_nodes import limits
limits.STOPPED_RETRY_MS = {retry_ms}
from storage_nodes.node.replicas.queue_replica import QueueReplica
real = QueueReplica.fold
healed = os.path.join(os.path.dirname(os.environ["PENSTOCK_NODE_DIR"]), "healed")
def fold(self, header, batch):
    if {POISON!r} in batch and not os.path.exists(healed):
        raise ValueError("no such color")
    real(self, header, batch)
QueueReplica.fold = fold
runpy.run_module("storage_nodes", run_name="__main__")
"""


def faltering_marker(node_id: int) -> str:
    """The name of the file beside the directories of a cluster that lets this node of `FALTERING_NODE` falter."""
    return f"node-{node_id}-falters"


# A node whose queues cannot fold POISON while there is a file of that name. No other node minds.
FALTERING_NODE = f"""
import os, runpy
from storage_nodes.node.replicas.queue_replica import QueueReplica
real = QueueReplica.fold
marker = os.environ["PENSTOCK_NODE_DIR"] + "-falters"
def fold(self, header, batch):
    if {POISON!r} in batch and os.path.exists(marker):
        raise ValueError("no such color")
    real(self, header, batch)
QueueReplica.fold = fold
runpy.run_module("storage_nodes", run_name="__main__")
"""

# A node of the release before: it neither speaks the newest feature level nor folds an entry of it.
OLDER_NODE = """
import runpy
from storage_nodes.protocol import levels
levels.FEATURE_LEVEL -= 1
runpy.run_module("storage_nodes", run_name="__main__")
"""

# A node of a later release, which knows one field more of the configuration of a queue, and of the command that makes a
# partition, and of the configuration in that. It breaks the rule: it writes them before the level of the cluster rose.
HASTY_NODE = """
import runpy
import msgspec
from storage_nodes.protocol import levels
levels.FEATURE_LEVEL += 1
from storage_nodes.machines.cluster import commands as of_cluster
from storage_nodes.machines.queue import commands as of_queues
from storage_nodes.protocol.records import decode_body, encode_body
pack, unpack = msgspec.msgpack.encode, msgspec.msgpack.decode
encode_of_cluster, encode, decode = of_cluster.encode_command, of_queues.encode_command, of_queues.decode_command
def encode_later_of_cluster(command):
    fields = unpack(encode_of_cluster(command))
    if isinstance(command, of_cluster.CreatePartition):
        fields[3].append("later")
        fields.append("later")
    return pack(fields)
def encode_later(command):
    if not isinstance(command, of_queues.ConfiguredCommand):
        return encode(command)
    fields = [command.__struct_config__.tag, *msgspec.structs.astuple(command), "later"]
    return encode_body(pack(fields), of_queues.CONTROL_QUEUE_KEY)
def decode_later(body):
    try:
        return decode(body)
    except msgspec.ValidationError:
        record = decode_body(body)
        return decode(encode_body(pack(unpack(record.value)[:-1]), record.key))
of_cluster.encode_command = encode_later_of_cluster
of_queues.encode_command, of_queues.decode_command = encode_later, decode_later
runpy.run_module("storage_nodes", run_name="__main__")
"""
