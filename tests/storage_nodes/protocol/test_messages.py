"""Golden bytes of every message: what is on the wire never changes by accident.

Payloads are msgpack arrays, fields by position. A line here is changed only by adding a defaulted field at its end.
"""

from __future__ import annotations

import msgspec
import pytest

from storage_nodes.model import Acks, PartitionKind
from storage_nodes.protocol import messages as m
from storage_nodes.protocol import peer_messages as p
from storage_nodes.protocol.errors import TRAITS, ErrorCode, StorageError

GOLDEN: list[tuple[msgspec.Struct, str]] = [
    (m.ErrorReply(4, "node 2 leads", 2, 300), "9404ac6e6f64652032206c6561647302cd012c"),
    (m.Hello("pk-1", "frontend-1", 0, (1, 2)), "94a4706b2d31aa66726f6e74656e642d3100920102"),
    (m.Cancel(4_000_000_000), "91ceee6b2800"),
    (
        m.SendRequest(7, [b"\x01\x02x\x00", b""], False, 3, 2**63 - 1, 1, 70_000),
        "970792c40401027800c400c203cf7fffffffffffffff01ce00011170",
    ),
    (
        m.SendReply(2**40, 1_700_000_000_000, [(1, 5), (3, 2**33)], [(2, 9)]),
        "94cf0000010000000000cf0000018bcfe56800929201059203cf000000020000000091920209",
    ),
    (m.AcquireRequest(7, 10, 30_000, 20_000, b"attempt", [b"tag"]), "96070acd7530cd4e20c407617474656d707491c403746167"),
    (
        m.AcquiredMessage(5, 2, 1_700_000_000_000, 1_700_000_000_100, b"body"),
        "950502cf0000018bcfe56800cf0000018bcfe56864c404626f6479",
    ),
    (m.AcquireReply(3, [m.AcquiredMessage(5, 1, 6, 7, b"b")], 9), "9303919505010607c4016209"),
    (m.DeleteRequest(7, [(5, 1), (2**33, 300)]), "92079292050192cf0000000200000000cd012c"),
    (m.CodesReply([0, 10, 19]), "9193000a13"),
    (m.ChangeVisibilityRequest(7, [(5, 1, 0), (6, 2, 43_200_000)], 2, 9, 8), "95079293050100930602ce02932e00020908"),
    (m.PurgeRequest(7, b"attempt"), "9207c407617474656d7074"),
    (m.PurgeReply(12_345), "91cd3039"),
    (m.QueueConfig(), "9fce14997000ce0001d4c0c2ce000493e00000c200000000c2c290a0"),
    (
        m.ConfigureRequest(
            7, m.QueueConfig(60_000, 20_000, True, 1_000, 5, 9, True, 3, 500, 9_000, 250, True, True, (9, 10), "1")
        ),
        "92079fcdea60cd4e20c3cd03e80509c303cd01f4cd2328ccfac3c392090aa131",
    ),
    (m.ConfigureReply(3), "9103"),
    (m.RetireRequest(7, "queue:a:0"), "9207a971756575653a613a30"),
    (m.RetireReply(True), "91c3"),
    (m.QueueStatsRequest(7), "9107"),
    (
        m.QueueStats(1, 2, 3, 1_700_000_000_000, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13),
        "9e010203cf0000018bcfe568000405060708090a0b0c0d",
    ),
    (m.ParkedGroupsRequest(7, b"g", 10), "9307c401670a"),
    (m.ParkedGroup(b"g", 1_000, 5, 3), "94c40167cd03e80503"),
    (m.ParkedGroupsReply([m.ParkedGroup(b"g", 1_000, 5, 3)], 4), "929194c40167cd03e8050304"),
    (m.UnparkRequest(7, [b"g", b"h"]), "920792c40167c40168"),
    (
        m.DeadSource(
            3, 2**33, 1_700_000_000_000, 1_700_000_000_100, 5, 1, 1_700_000_030_000, 5, "bad", 300, 20, 400, 30
        ),
        "9d03cf0000000200000000cf0000018bcfe56800cf0000018bcfe568640501cf0000018bcfe5dd3005a3626164cd012c14cd01901e",
    ),
    (m.QueueRemoveRequest(7, [5, 300], True), "93079205cd012cc3"),
    (m.QueueBrowseRequest(7, 100, 10, 5), "9407640a05"),
    (
        m.BrowsedMessage(5, 2, 1, 1_700_000_030_000, 1_700_000_000_000, b"body", 1_000),
        "97050201cf0000018bcfe5dd30cf0000018bcfe56800c404626f6479cd03e8",
    ),
    (m.QueueBrowseReply([m.BrowsedMessage(5, 1, 0, 0, 6, b"b")], 6, 9), "9391970501000006c40162000609"),
    (m.StreamReadRequest(9, 100, 65_536, 500), "940964ce00010000cd01f4"),
    (m.StreamReadReply(200, 50, [b"batch"], 201), "94ccc83291c4056261746368ccc9"),
    (m.GroupJoinRequest(7, b"g", b"m", 10_000, [7, 8], 2), "9607c40167c4016dcd271092070802"),
    (m.GroupMembership(5, 6, [(7, 3)], [(8, 4)], 1), "950506919207039192080401"),
    (m.GroupHeartbeatRequest(7, b"g", 5, 6, [(7, 3)]), "9507c40167050691920703"),
    (m.GroupLeaveRequest(7, b"g", 5), "9307c4016705"),
    (m.GroupFenceRequest(8, b"g", 6, 5), "9408c401670605"),
    (m.GroupReadRequest(8, 100, 65_536, 500, b"g", 6, 5), "970864ce00010000cd01f4c401670605"),
    (m.GroupCommitRequest(8, b"g", 6, 5, 120), "9508c40167060578"),
    (m.GroupCommitReply(120), "9178"),
    (m.GroupCommittedRequest(8, b"g", 6, 5), "9408c401670605"),
    (m.GroupCommittedReply(120, 6, 5, 50, 200), "9578060532ccc8"),
    (m.GroupDeleteRequest(8, b"g", 6), "9308c4016706"),
    (m.GroupDeleteReply(6), "9106"),
    (
        m.StoppedReplica(7, "queue:x:0", "entry", 5, "bad", 1_000, "a"),
        "9707a971756575653a783a30a5656e74727905a3626164cd03e8a161",
    ),
    (
        m.NodeInfo(
            1, "127.0.0.1", 7101, "zone-a", False, 1_000, "went", 9, 1, 12, -5, True, True, True, 2, [7], [], (1, 2, 1)
        ),
        "dc001201a93132372e302e302e31cd1bbda67a6f6e652d61c2cd03e8a477656e7409010cfbc3c3c30291079093010201",
    ),
    (m.MoveInfo(3, 1, 4, True, 90, 100), "96030104c35a64"),
    (
        m.PartitionInfo(7, 1, [1, 2, 3], "queue:x:0", 2, 9, 1_000, "won", m.MoveInfo(3, 1, 4), 6),
        "9a070193010203a971756575653a783a300209cd03e8a3776f6e96030104c2000006",
    ),
    (
        m.CreatePartitionRequest(1, "queue:x:0"),
        "9401a971756575653a783a309fce14997000ce0001d4c0c2ce000493e00000c200000000c2c290a003",
    ),
    (m.DeletePartitionRequest(7, "queue:x:0"), "9207a971756575653a783a30"),
    (m.DescribeClusterRequest([7], 300, True), "939107cd012cc3"),
    (
        m.ClusterInfo("pk-1", 1, [m.NodeInfo(1, "h", 1, "z", False)], [], 77, 2),
        "96a4706b2d310191dc001201a16801a17ac200a0000000c0c2c2c200909093010101904d02",
    ),
    (m.MoveReplicaRequest(7, 1, 4), "93070104"),
    (m.CancelMoveRequest(7, 3), "920703"),
    (m.RegisterNodeRequest(4, "127.0.0.1", 7104, "zone-d"), "9404a93132372e302e302e31cd1bc0a67a6f6e652d64"),
    (m.SetNodeStateRequest(2, 2, True), "930202c3"),
    (m.CloseUsageRequest(True), "91c3"),
    (m.CloseUsageReply(3), "9103"),
    (m.ScrubRequest(True), "91c3"),
    (m.ScrubReply(True, 5, 4, 1, 2, 99, 1, 1, ["x"]), "99c30504010263010191a178"),
    (m.ScheduledRequest(7, 100, 1_000, 5, 2_000), "950764cd03e805cd07d0"),
    (m.ScheduledMessage(64, 1_000, b"body"), "9340cd03e8c404626f6479"),
    (
        m.ScheduledReply([m.ScheduledMessage(64, 1_000, b"body")], 1_000, 64, True),
        "94919340cd03e8c404626f6479cd03e840c3",
    ),
    (m.RescheduleRequest(7, [(64, 2_000), (65, 0)]), "9207929240cd07d0924100"),
    (m.Empty(), "90"),
    (
        p.PeerHello("pk-1", 2, 5, 3, "127.0.0.1", 7102, "zone-b", 90, 1_000, 6, (1, 2, 1)),
        "9ba4706b2d31020503a93132372e302e302e31cd1bbea67a6f6e652d625acd03e80693010201",
    ),
    (p.PeerRefusal(4, "why", 1_000, 6, 2), "9504a3776879cd03e80602"),
    (p.Manage([b"command"]), "9191c407636f6d6d616e64"),
    (
        p.Heartbeat(2, 5, 1_000, 999, 4, True, True, True, 900, -7, True, True, [(3, 70, 1)], True, 6, 7, 8, 3, 9),
        "dc00130205cd03e8cd03e704c3c3c3cd0384f9c3c39193034601c30607080309",
    ),
    (p.AppendEntries(7, 3, 2, 100, 90, [b"entry"], 80, True, 6), "9a01070302645a91c405656e74727950c306"),
    (p.AppendReply(7, 3, False, 64, 1, 5, True, 6), "99020703c2400105c306"),
    (p.VoteRequest(7, 4, 3, 120, True), "970307040378c3c2"),
    (p.VoteReply(7, 4, True), "96040704c3c2c2"),
    (p.TimeoutNow(7, 4), "93050704"),
    (
        p.SnapshotChunk(7, 4, 100, 3, 0, b"state", [b"entry"], True, [1, 3], [0, 64], True, b"voters", 40, 9),
        "9f060704640300c405737461746591c405656e747279c3920103920040c3c406766f746572732809",
    ),
    (p.SnapshotReply(7, 4, 100, 2, 9), "96070704640209"),
    (p.RaftFrame(5, [p.VoteReply(7, 4, False, True)]), "92059196040704c2c3c2"),
]
NAMES = [type(message).__name__ for message, _ in GOLDEN]


@pytest.mark.parametrize(("message", "golden"), GOLDEN, ids=NAMES)
def test_message_is_encoded_as_its_golden_bytes_and_back(message: msgspec.Struct, golden: str) -> None:
    assert m.encode_message(message).hex() == golden
    assert msgspec.msgpack.decode(bytes.fromhex(golden), type=type(message)) == message


def test_every_message_has_golden_bytes() -> None:
    declared = {
        name
        for name, value in (vars(m) | vars(p)).items()
        if isinstance(value, type) and issubclass(value, msgspec.Struct) and value is not m.Message
    }
    assert declared == set(NAMES)


@pytest.mark.parametrize(("message", "golden"), GOLDEN, ids=NAMES)
def test_message_of_an_older_sender_is_understood(message: msgspec.Struct, golden: str) -> None:
    info = msgspec.structs.fields(message)
    required = [field.name for field in info if field.required]
    tag = type(message).__struct_config__.tag
    values = [getattr(message, name) for name in required]
    payload = m.encode_message(values if tag is None else [tag, *values])
    decoded = msgspec.msgpack.decode(payload, type=type(message))
    assert [getattr(decoded, name) for name in required] == values


@pytest.mark.parametrize(("message", "golden"), GOLDEN, ids=NAMES)
def test_message_of_a_newer_sender_with_more_fields_is_understood(message: msgspec.Struct, golden: str) -> None:
    payload = msgspec.msgpack.decode(bytes.fromhex(golden))
    decoded = msgspec.msgpack.decode(m.encode_message([*payload, "a later field"]), type=type(message))
    assert decoded == message


def test_raft_frame_keeps_the_kinds_of_its_messages_apart() -> None:
    frame = p.RaftFrame(7, [message for message, _ in GOLDEN if isinstance(message, p.RaftMessage)])
    assert len({type(message) for message in frame.messages}) == 7
    assert msgspec.msgpack.decode(m.encode_message(frame), type=p.RaftFrame) == frame


@pytest.mark.parametrize("payload", ["c1", "90", "a0", "9301", "92a1780a"])
def test_payload_that_is_not_the_message_is_refused(payload: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        msgspec.msgpack.decode(bytes.fromhex(payload), type=m.SendRequest)


def test_opcodes_are_frozen() -> None:
    assert {opcode.name: int(opcode) for opcode in m.Opcode} == {
        "HELLO": 1,
        "CANCEL": 2,
        "PING": 3,
        "SEND": 10,
        "ACQUIRE": 11,
        "DELETE": 12,
        "CHANGE_VISIBILITY": 13,
        "PURGE": 14,
        "QUEUE_STATS": 15,
        "CONFIGURE": 16,
        "QUEUE_BROWSE": 17,
        "QUEUE_REMOVE": 19,
        "STREAM_APPEND": 20,
        "STREAM_READ": 21,
        "GROUP_JOIN": 22,
        "GROUP_HEARTBEAT": 23,
        "GROUP_LEAVE": 24,
        "GROUP_FENCE": 25,
        "GROUP_READ": 26,
        "GROUP_COMMIT": 27,
        "GROUP_COMMITTED": 28,
        "GROUP_DELETE": 29,
        "CREATE_PARTITION": 30,
        "DELETE_PARTITION": 31,
        "DESCRIBE_CLUSTER": 32,
        "MOVE_REPLICA": 33,
        "CANCEL_MOVE": 34,
        "REGISTER_NODE": 35,
        "SET_NODE_STATE": 36,
        "PEER_HELLO": 40,
        "RAFT": 41,
        "HEARTBEAT": 42,
        "MANAGE": 43,
        "SCRUB": 50,
        "CLOSE_USAGE": 51,
        "PARKED_GROUPS": 80,
        "UNPARK": 81,
        "SCHEDULED": 82,
        "RESCHEDULE": 83,
        "RETIRE": 84,
    }


def test_error_numbers_are_frozen() -> None:
    names = [code.name for code in sorted(ErrorCode)]
    assert names == [
        "OK",
        "INVALID_REQUEST",
        "UNKNOWN_OPCODE",
        "UNKNOWN_PARTITION",
        "NOT_LEADER",
        "NO_QUORUM",
        "OUTCOME_UNKNOWN",
        "OVERLOADED",
        "SHUTTING_DOWN",
        "TOO_LARGE",
        "NOT_IN_FLIGHT",
        "OVER_LIMIT",
        "PURGE_IN_PROGRESS",
        "READ_ONLY",
        "OFFSET_OUT_OF_RANGE",
        "INTERNAL",
        "CANCELLED",
        "UNREACHABLE",
        "NOT_ENOUGH_NODES",
        "UNKNOWN_RECORD",
        "UNAVAILABLE",
        "RECEIPT_STALE",
        "FENCED",
        "GRANT_UNKNOWN",
        "GROUP_NOT_EMPTY",
        "NOT_SCHEDULED",
        "SCHEDULE_FULL",
        "SEQUENCE_TOO_OLD",
        "QUARANTINED",
        "FORBIDDEN",
    ]
    assert [int(code) for code in sorted(ErrorCode)] == list(range(len(names)))


def test_numbers_of_kinds_and_acks_are_frozen() -> None:
    assert {kind.name: int(kind) for kind in PartitionKind} == {"CLUSTER": 0, "QUEUE": 1, "STREAM": 2}
    assert {acks.name: int(acks) for acks in Acks} == {"NONE": 0, "LEADER": 1, "QUORUM": 2, "ALL": 3}
    assert {kind.name: int(kind) for kind in m.RetryKind} == {"FIXED": 1, "LINEAR": 2, "EXPONENTIAL": 3}
    numbers = {"SET": 0, "NACK": 1, "UNCOUNTED": 2, "HELD": 3, "UNSEEN": 4}
    assert {mode.name: int(mode) for mode in m.VisibilityMode} == numbers
    assert {reason.name: int(reason) for reason in m.DeathReason} == {"MAX_RECEIVES": 1, "MOVED": 2}


def test_error_whose_outcome_is_unknown_may_be_retried_and_looked_up_again() -> None:
    for code, traits in TRAITS.items():
        if traits.refresh_metadata:
            assert traits.retriable, code
    error = StorageError(ErrorCode.NOT_LEADER, "node 2 leads", leader=2)
    assert error.traits.refresh_metadata and error.leader == 2 and str(error) == "NOT_LEADER: node 2 leads"
