"""The table of roles: who may ask for what (docs/inner_trust.md)."""

from __future__ import annotations

import pytest

from storage_nodes.ids import make_node_id
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.messages import CreatePartitionRequest, Opcode, RegisterNodeRequest, encode_message
from storage_nodes.protocol.usage import USAGE_TAG
from storage_nodes.trust.names import InnerName, InnerRole
from storage_nodes.trust.permissions import KNOWN, MAY_CONNECT, NEVER_OF_CLIENTS, OPERATIONS, freely, may

# What costs an installation more than messages of one queue.
DANGEROUS = (
    Opcode.SET_NODE_STATE, Opcode.MOVE_REPLICA, Opcode.CANCEL_MOVE, Opcode.RETIRE, Opcode.DELETE_PARTITION,
    Opcode.CONFIGURE, Opcode.GROUP_DELETE, Opcode.SCRUB, Opcode.CLOSE_USAGE,
)  # fmt: skip
# Answered by the connection itself.
OF_CONNECTIONS = {Opcode.CANCEL, Opcode.PING}


def test_every_operation_has_its_place() -> None:
    assert set(Opcode) == {Opcode(number) for number in KNOWN} | NEVER_OF_CLIENTS | OF_CONNECTIONS
    assert not KNOWN & (NEVER_OF_CLIENTS | OF_CONNECTIONS)
    assert set(OPERATIONS) == set(InnerRole)


@pytest.mark.parametrize("opcode", DANGEROUS)
@pytest.mark.parametrize("role", [InnerRole.FRONT_END, InnerRole.NODE, InnerRole.METADATA])
def test_front_ends_and_nodes_touch_neither_nodes_nor_partitions(role: InnerRole, opcode: Opcode) -> None:
    assert not may(InnerName("c", role, "1"), opcode, b"")


@pytest.mark.parametrize("opcode", [Opcode.SEND, Opcode.ACQUIRE, Opcode.QUEUE_BROWSE, Opcode.STREAM_READ])
def test_control_plane_reads_and_writes_no_messages(opcode: Opcode) -> None:
    assert not may(InnerName("c", InnerRole.CONTROL_PLANE, "1"), opcode, b"")


def test_operator_may_ask_for_all_that_clients_may() -> None:
    assert freely(InnerRole.OPERATOR) == KNOWN


def test_metadata_service_asks_storage_nodes_for_nothing() -> None:
    assert not OPERATIONS[InnerRole.METADATA]


@pytest.mark.parametrize("role", [InnerRole.FRONT_END, InnerRole.NODE])
@pytest.mark.parametrize(
    ("kind", "tag", "is_allowed"),
    [
        (PartitionKind.STREAM, USAGE_TAG, True),
        (PartitionKind.QUEUE, USAGE_TAG, False),
        (PartitionKind.STREAM, "stream:1:0", False),
        (PartitionKind.QUEUE, "queue:1:0", False),
    ],
)
def test_of_partitions_front_ends_and_nodes_make_the_stream_of_usage_alone(
    role: InnerRole, kind: PartitionKind, tag: str, is_allowed: bool
) -> None:
    payload = encode_message(CreatePartitionRequest(kind, tag))
    assert may(InnerName("c", role, "1"), Opcode.CREATE_PARTITION, payload) is is_allowed
    assert Opcode.CREATE_PARTITION not in freely(role)


def test_node_registers_itself_alone() -> None:
    name = InnerName("c", InnerRole.NODE, "4")
    assert may(name, Opcode.REGISTER_NODE, encode_message(RegisterNodeRequest(4, "h", 1, "z")))
    assert not may(name, Opcode.REGISTER_NODE, encode_message(RegisterNodeRequest(1, "h", 1, "z")))
    other = encode_message(RegisterNodeRequest(make_node_id(2, 4), "h", 1, "z"))
    assert may(InnerName("c", InnerRole.NODE, "2.4"), Opcode.REGISTER_NODE, other)
    assert not may(name, Opcode.REGISTER_NODE, other)


def test_services_are_for_front_ends_and_operators() -> None:
    for service in (InnerRole.METADATA, InnerRole.CONTROL_PLANE):
        assert MAY_CONNECT[service] == {InnerRole.FRONT_END, InnerRole.OPERATOR}
