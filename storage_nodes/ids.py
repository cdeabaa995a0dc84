"""Ids of nodes and partitions, unique over an installation of many clusters, so that what carries one (receipts,
records, usage, certificates) stays right when clusters are added and partitions move between them.

    node       32 bits   16 of its cluster, 16 of its number there, from 1
    partition  53 bits   13 of the cluster that made it, 40 of its sequence there, from 1

Clusters are numbered from 1 and held less one: ids of cluster 1, the only one of most installations, are the small
numbers that people read in a status. As text a node of another cluster is CLUSTER.NUMBER ("2.3"), one of cluster 1 its
number. 53 bits are what JSON numbers hold exactly everywhere.

Surface: other planes may import this module.
"""

from __future__ import annotations

# Of the text that tells a cluster from all others (PENSTOCK_CLUSTER_ID); ids carry its number.
CLUSTER_ID_CHARS_MAX = 128
CLUSTER_FIRST = 1
CLUSTER_NUMBER_MAX = 1 << 13
NODE_NUMBER_MAX = (1 << 16) - 1
NODE_ID_MAX = CLUSTER_NUMBER_MAX * (NODE_NUMBER_MAX + 1) - 1
PARTITION_SEQUENCE_MAX = (1 << 40) - 1
PARTITION_ID_MAX = CLUSTER_NUMBER_MAX * (PARTITION_SEQUENCE_MAX + 1) - 1
assert PARTITION_ID_MAX < 1 << 53


def make_node_id(cluster: int, number: int) -> int:
    """Raises ValueError."""
    _check_cluster(cluster)
    if not 1 <= number <= NODE_NUMBER_MAX:
        raise ValueError(f"nodes of a cluster are numbered 1 to {NODE_NUMBER_MAX}, not {number}")
    return (cluster - CLUSTER_FIRST) * (NODE_NUMBER_MAX + 1) + number


def is_node_id(value: int) -> bool:
    return 0 < value <= NODE_ID_MAX and value & NODE_NUMBER_MAX != 0


def cluster_of_node(node_id: int) -> int:
    return node_id // (NODE_NUMBER_MAX + 1) + CLUSTER_FIRST


def node_name(node_id: int) -> str:
    """As people read and write it."""
    cluster, number = divmod(node_id, NODE_NUMBER_MAX + 1)
    return f"{cluster + CLUSTER_FIRST}.{number}" if cluster else str(number)


def parse_node_name(text: str) -> int:
    """The inverse of `node_name`; "1.3" is node 3 too, and a number beyond those of nodes is an id. Raises
    ValueError."""
    cluster, dot, number = text.rpartition(".")
    if not all(part.isascii() and part.isdigit() for part in ((cluster, number) if dot else (number,))):
        raise ValueError(f"{text!r} names no node: a node is NUMBER or CLUSTER.NUMBER")
    if not dot and is_node_id(int(number)):
        return int(number)
    return make_node_id(int(cluster) if dot else CLUSTER_FIRST, int(number))


def make_partition_id(cluster: int, sequence: int) -> int:
    """Raises ValueError."""
    _check_cluster(cluster)
    if not 1 <= sequence <= PARTITION_SEQUENCE_MAX:
        raise ValueError(f"partitions of a cluster are numbered 1 to {PARTITION_SEQUENCE_MAX}, not {sequence}")
    return (cluster - CLUSTER_FIRST) * (PARTITION_SEQUENCE_MAX + 1) + sequence


def place_of_partition(partition: int) -> tuple[int, int]:
    """The cluster that made it, and its sequence there."""
    cluster, sequence = divmod(partition, PARTITION_SEQUENCE_MAX + 1)
    return cluster + CLUSTER_FIRST, sequence


def _check_cluster(cluster: int) -> None:
    if not CLUSTER_FIRST <= cluster <= CLUSTER_NUMBER_MAX:
        raise ValueError(f"clusters are numbered {CLUSTER_FIRST} to {CLUSTER_NUMBER_MAX}, not {cluster}")
