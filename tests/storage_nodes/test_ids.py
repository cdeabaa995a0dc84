"""Ids of nodes and partitions, and how people write those of nodes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_nodes.config import ConfigError, NodeConfig
from storage_nodes.ids import (
    CLUSTER_NUMBER_MAX,
    NODE_ID_MAX,
    NODE_NUMBER_MAX,
    PARTITION_ID_MAX,
    PARTITION_SEQUENCE_MAX,
    cluster_of_node,
    is_node_id,
    make_node_id,
    make_partition_id,
    node_name,
    parse_node_name,
    place_of_partition,
)
from storage_nodes.model import NodeAddress, format_node_list, parse_node_list

clusters = st.integers(1, CLUSTER_NUMBER_MAX)


@given(clusters, st.integers(1, NODE_NUMBER_MAX))
def test_node_id_tells_its_cluster_and_its_name_names_it(cluster: int, number: int) -> None:
    node_id = make_node_id(cluster, number)
    assert node_id < 2**32 and is_node_id(node_id) and cluster_of_node(node_id) == cluster
    assert parse_node_name(node_name(node_id)) == parse_node_name(f"{cluster}.{number}") == node_id
    assert node_name(node_id) == (str(number) if cluster == 1 else f"{cluster}.{number}")
    assert parse_node_name(str(node_id)) == node_id, "JSON gives ids, and commands take them"


@given(clusters, st.integers(1, PARTITION_SEQUENCE_MAX))
def test_partition_id_tells_who_made_it(cluster: int, sequence: int) -> None:
    partition = make_partition_id(cluster, sequence)
    assert partition < 2**53 and place_of_partition(partition) == (cluster, sequence)


def test_ids_of_the_first_cluster_are_small_numbers_and_the_last_uses_all_bits() -> None:
    assert make_node_id(1, 3) == make_partition_id(1, 3) == 3
    assert make_node_id(2, 1) == 65_537 and make_partition_id(2, 1) == 2**40 + 1
    assert make_node_id(CLUSTER_NUMBER_MAX, NODE_NUMBER_MAX) == NODE_ID_MAX
    assert make_partition_id(CLUSTER_NUMBER_MAX, PARTITION_SEQUENCE_MAX) == PARTITION_ID_MAX == 2**53 - 1


@pytest.mark.parametrize("cluster, number", [(0, 1), (CLUSTER_NUMBER_MAX + 1, 1), (1, 0), (1, 2**40), (-1, 1), (1, -1)])
def test_numbers_beyond_the_bits_are_refused(cluster: int, number: int) -> None:
    for make in (make_node_id, make_partition_id):
        with pytest.raises(ValueError, match="are numbered 1 to"):
            make(cluster, number)


@pytest.mark.parametrize(
    "text",
    [
        "", "0", "x", "-1", "1.", ".1", "1.2.3", "0.1", "8193.1", "1.65536", "65536", "536870912", "١", "1 ",
        "9" * 5000,
    ],
)  # fmt: skip
def test_what_names_no_node_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_node_name(text)


@pytest.mark.parametrize("value", [-1, 0, 1 << 16, NODE_ID_MAX + 1, NODE_ID_MAX + 2])
def test_what_is_no_node_id_is_told(value: int) -> None:
    assert not is_node_id(value)


def test_node_list_is_of_one_cluster_and_reads_back() -> None:
    nodes = parse_node_list("2.1=a:1@z, 2.3=b:2")
    assert nodes == [NodeAddress(65_537, "a", 1, "z"), NodeAddress(65_539, "b", 2, "zone-2.3")]
    assert parse_node_list(format_node_list(nodes)) == nodes
    assert parse_node_list("1=a:1") == parse_node_list("1.1=a:1") == [NodeAddress(1, "a", 1, "zone-1")]
    with pytest.raises(ValueError, match="two clusters"):
        parse_node_list("1=a:1,2.2=b:2")
    with pytest.raises(ValueError, match="twice"):
        parse_node_list("1=a:1,1.1=b:2")
    with pytest.raises(ValueError, match="clusters are numbered"):
        parse_node_list("0.1=a:1")


def test_node_is_told_its_name() -> None:
    settings = {
        "PENSTOCK_CLUSTER_ID": "c", "PENSTOCK_NODE_DIR": "/d", "PENSTOCK_NODE_LISTEN": "127.0.0.1:1",
        "PENSTOCK_STORAGE_NODES": "2.1=a:1,2.2=b:2",
    }  # fmt: skip
    assert NodeConfig.from_environment({**settings, "PENSTOCK_NODE_ID": "2.2"}).node_id == make_node_id(2, 2)
    with pytest.raises(ConfigError, match=r"does not name node 2\.3"):
        NodeConfig.from_environment({**settings, "PENSTOCK_NODE_ID": "2.3"})
    for wrong in ("0", "x", "70000", ""):
        with pytest.raises(ConfigError):
            NodeConfig.from_environment({**settings, "PENSTOCK_NODE_ID": wrong})
