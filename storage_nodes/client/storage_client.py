"""The storage client: every call the planes above make to storage nodes.

    call -> leader table -> connection of that node -> answer
                 ^                                       |
                 +---- not leader / unreachable ---------+   followed until the deadline, by the error's flags

A call is tried again until its deadline, with pauses that grow. While the node it was put to is there it is waited for,
however slow its answer is. What is tried again takes effect once: sends are numbered (`sends.py`), receives of FIFO
queues and purges are named, and leases that are handed out to a call that was given up go back.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from storage_nodes.client.call_attempt import CallAttempt, asked_again
from storage_nodes.client.deletes import Deletes
from storage_nodes.client.leaders import NodeLinks
from storage_nodes.client.pauses import Chance, Pauses
from storage_nodes.client.sends import Sends, outcome_of
from storage_nodes.client.suspensions import SUSPENDED_S_MAX
from storage_nodes.limits import CORRELATION_ID_MAX, PRODUCER_CALL_MS_MAX, PRODUCER_MEMORY_MS
from storage_nodes.model import Acks, NodeAddress
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import (
    CLIENT_ATTEMPT_PREFIX,
    AcquireReply,
    AcquireRequest,
    CancelMoveRequest,
    ChangeVisibilityRequest,
    CloseUsageReply,
    CloseUsageRequest,
    ClusterInfo,
    CodesReply,
    ConfigureReply,
    ConfigureRequest,
    CreatePartitionRequest,
    DeletePartitionRequest,
    DeleteRequest,
    Empty,
    GroupCommitReply,
    GroupCommitRequest,
    GroupCommittedReply,
    GroupCommittedRequest,
    GroupDeleteReply,
    GroupDeleteRequest,
    GroupFenceRequest,
    GroupHeartbeatRequest,
    GroupJoinRequest,
    GroupLeaveRequest,
    GroupMembership,
    GroupReadRequest,
    MessageState,
    MoveReplicaRequest,
    Opcode,
    ParkedGroupsReply,
    ParkedGroupsRequest,
    PartitionInfo,
    PurgeReply,
    PurgeRequest,
    QueueBrowseReply,
    QueueBrowseRequest,
    QueueConfig,
    QueueRemoveRequest,
    QueueStats,
    QueueStatsRequest,
    RegisterNodeRequest,
    RescheduleRequest,
    RetireReply,
    RetireRequest,
    ScheduledReply,
    ScheduledRequest,
    ScrubReply,
    ScrubRequest,
    SendReply,
    SetNodeStateRequest,
    StreamReadReply,
    StreamReadRequest,
    UnparkRequest,
    VisibilityMode,
    encode_message,
)
from storage_nodes.trust.credentials import Credentials

CALL_TIMEOUT_S = 15.0
# How long a client that is closed waits for leases that are on their way back.
HAND_BACK_S_MAX = 1.0
ALL_STATES = sum(MessageState)
ATTEMPT_PREFIX_BITS = 96
assert (CALL_TIMEOUT_S + SUSPENDED_S_MAX) * 1000 < PRODUCER_CALL_MS_MAX <= PRODUCER_MEMORY_MS // 2, (
    "a partition remembers a send for longer than it is tried"
)

_acquire_reply = msgspec.msgpack.Decoder(AcquireReply)
_browse_reply = msgspec.msgpack.Decoder(QueueBrowseReply)
_scheduled_reply = msgspec.msgpack.Decoder(ScheduledReply)
_close_usage_reply = msgspec.msgpack.Decoder(CloseUsageReply)
_scrub_reply = msgspec.msgpack.Decoder(ScrubReply)
_codes_reply = msgspec.msgpack.Decoder(CodesReply)
_parked_reply = msgspec.msgpack.Decoder(ParkedGroupsReply)
_empty = msgspec.msgpack.Decoder(Empty)
_group_commit_reply = msgspec.msgpack.Decoder(GroupCommitReply)
_group_committed_reply = msgspec.msgpack.Decoder(GroupCommittedReply)
_group_delete_reply = msgspec.msgpack.Decoder(GroupDeleteReply)
_group_membership = msgspec.msgpack.Decoder(GroupMembership)
_partition_info = msgspec.msgpack.Decoder(PartitionInfo)
_retire_reply = msgspec.msgpack.Decoder(RetireReply)
_purge_reply = msgspec.msgpack.Decoder(PurgeReply)
_configure_reply = msgspec.msgpack.Decoder(ConfigureReply)
_queue_stats = msgspec.msgpack.Decoder(QueueStats)
_stream_read_reply = msgspec.msgpack.Decoder(StreamReadReply)


_SETS = (VisibilityMode.SET, VisibilityMode.HELD)
# Of standard queues the former, of FIFO queues either.
_GONE = frozenset((ErrorCode.NOT_IN_FLIGHT, ErrorCode.RECEIPT_STALE))


class StorageClient:
    """Pool, leader table and calls. One per process and event loop; safe for any number of concurrent calls.

    All that is left to chance (its producer id, the lengths of pauses) comes from `chance`. A call makes up to
    `attempts_max` attempts; 0 = until it is answered or its deadline is over. It shows `credentials` to nodes; without
    any its connections are plain, which only nodes take that have none either.
    """

    def __init__(
        self,
        cluster_id: str,
        nodes: Sequence[NodeAddress],
        name: str = "client",
        timeout_s: float = CALL_TIMEOUT_S,
        chance: Chance | None = None,
        attempts_max: int = 0,
        credentials: Credentials | None = None,
    ) -> None:
        self._chance = chance or random.Random()
        self._links = NodeLinks(cluster_id, nodes, name, credentials)
        # The node that would be asked first about a partition.
        self.leader_of = self._links.guess
        self._timeout_s = timeout_s
        self._attempts_max = attempts_max
        self._sends = Sends(self._links, self._chance, timeout_s, attempts_max)
        # Names of calls: a prefix of this client, and a number.
        random_bytes = self._chance.getrandbits(ATTEMPT_PREFIX_BITS).to_bytes(ATTEMPT_PREFIX_BITS // 8)
        self._attempt_prefix = CLIENT_ATTEMPT_PREFIX + random_bytes
        self._attempts = 0
        self._deletes = Deletes(self._delete)
        self._handing_back: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Ready for calls. Connections open on first use, so a node that is down now does not matter."""
        self._links.start(asyncio.get_running_loop())

    async def close(self) -> None:
        """Leases that are on their way back get a moment to arrive."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HAND_BACK_S_MAX):
                while self._handing_back:  # one may begin while others are waited for
                    await asyncio.wait(self._handing_back)
        for task in list(self._handing_back):
            task.cancel()
        self._deletes.close()
        self._links.close()

    # --- messages -------------------------------------------------------------------------------------------

    async def send(
        self, partition: int, bodies: list[bytes], plain: bool = True, acks: Acks = Acks.QUORUM
    ) -> SendReply:
        """Append messages (bodies from `records.encode_body`) to a queue. All of them or an error.

        Bodies with headers are not plain. The reply says which of them repeat a deduplication id, and of which message.
        What is sent again is appended once. With acks NONE what may have arrived is not sent again: an error then.
        """
        return await self._sends.send(Opcode.SEND, partition, bodies, plain, acks)

    async def stream_append(self, partition: int, bodies: list[bytes], acks: Acks = Acks.QUORUM) -> SendReply:
        """Append records to a stream partition."""
        return await self._sends.send(Opcode.STREAM_APPEND, partition, bodies, True, acks)

    async def acquire(
        self,
        partition: int,
        max_messages: int,
        visibility_ms: int,
        wait_ms: int = 0,
        attempt: bytes = b"",
        tags: Sequence[bytes] = (),
    ) -> AcquireReply:
        """Lease up to `max_messages`, waiting up to `wait_ms` for the first. Cancelling gives up the poll; what is
        leased to a poll that was given up is handed back.

        FIFO: a receive whose answer was lost (by a change of the leader, too) is answered with the same messages when
        it is tried again; the caller may do so with an `attempt` id of its own, later calls included.
        Standard queues: with `tags` only messages that have one of them; OVER_LIMIT where those are out of sight.
        """
        if not attempt and max_messages > 0:  # 0 asks after an attempt of the caller's
            attempt = self._next_attempt()
        payload = encode_message(AcquireRequest(partition, max_messages, visibility_ms, wait_ms, attempt, list(tags)))
        late = partial(self._hand_back, partition)
        reply, _ = await self._ask(Opcode.ACQUIRE, partition, payload, wait_ms / 1000, late)
        return _acquire_reply.decode(reply)

    async def delete(self, partition: int, receipts: Sequence[tuple[int, int]]) -> list[ErrorCode]:
        """Delete leased messages by (offset, delivery). One code per receipt, in order. Cancelled it goes on."""
        return await self._deletes.ask(self._links.loop or asyncio.get_running_loop(), partition, receipts)

    async def change_visibility(
        self,
        partition: int,
        changes: Sequence[tuple[int, int, int]],
        mode: VisibilityMode = VisibilityMode.SET,
        epoch: int = 0,
        deadline_ms: int = 0,
    ) -> list[ErrorCode]:
        """Set the lease of (offset, delivery) to `visibility_ms` from now; 0 gives the message back. `mode`: as a
        receive that failed, one that does not count, or only while the lease holds. `epoch` and `deadline_ms`: of the
        answer that brought the leases, where they are handed back because nobody has them.

        The receipt of a lease that is over may change a message, too; an attempt that may be the second one may not:
        the message may be another consumer's by then."""
        payload = encode_message(ChangeVisibilityRequest(partition, list(changes), mode, epoch, deadline_ms))
        reply, unsure = await self._ask(Opcode.CHANGE_VISIBILITY, partition, payload)
        codes = _codes(reply)
        if unsure and not _GONE.isdisjoint(codes):
            # An earlier attempt ended the lease: that is what was asked for.
            ends = [mode not in _SETS or visibility_ms == 0 for _, _, visibility_ms in changes]
            return [ErrorCode.OK if end and code in _GONE else code for end, code in zip(ends, codes, strict=True)]
        return codes

    async def purge(self, partition: int) -> int:
        """Remove every message; answers how many. Raises PURGE_IN_PROGRESS within a minute of the last one."""
        reply = await self._call(Opcode.PURGE, partition, encode_message(PurgeRequest(partition, self._next_attempt())))
        return _purge_reply.decode(reply).purged

    async def configure(self, partition: int, config: QueueConfig) -> int:
        """Replace the partition's configuration; how many messages it held then, in whatever state."""
        reply = await self._call(Opcode.CONFIGURE, partition, encode_message(ConfigureRequest(partition, config)))
        return _configure_reply.decode(reply).messages

    async def stats(self, partition: int) -> QueueStats:
        """Counts of waiting, in-flight and delayed messages, from the leader."""
        reply = await self._call(Opcode.QUEUE_STATS, partition, encode_message(QueueStatsRequest(partition)))
        return _queue_stats.decode(reply)

    async def parked_groups(self, partition: int, after: bytes, groups_max: int) -> ParkedGroupsReply:
        """Groups that are held because a message of theirs became a dead letter, by name, behind `after`."""
        payload = encode_message(ParkedGroupsRequest(partition, after, groups_max))
        return _parked_reply.decode(await self._call(Opcode.PARKED_GROUPS, partition, payload))

    async def unpark(self, partition: int, groups: list[bytes]) -> list[ErrorCode]:
        """Hand groups out again, committed; one code each. None named = all of them."""
        payload = encode_message(UnparkRequest(partition, groups))
        return _codes(await self._call(Opcode.UNPARK, partition, payload))

    async def browse(
        self, partition: int, from_offset: int, messages_max: int, states: int = ALL_STATES
    ) -> QueueBrowseReply:
        """Look at messages from `from_offset` on without leasing them; `states` is a sum of MessageState. A page may be
        empty and not the last: go on at next_offset until it is log_end."""
        payload = encode_message(QueueBrowseRequest(partition, from_offset, messages_max, states))
        return _browse_reply.decode(await self._call(Opcode.QUEUE_BROWSE, partition, payload))

    async def scheduled(
        self, partition: int, messages_max: int, after: tuple[int, int] = (-1, -1), until_ms: int = 2**63 - 1
    ) -> ScheduledReply:
        """Scheduled messages beyond `after`, a (due_ms, offset), that are due by until_ms, in that order. Go on at
        (last_due_ms, last_offset) while there is more; a page may be empty."""
        payload = encode_message(ScheduledRequest(partition, messages_max, *after, until_ms))
        return _scheduled_reply.decode(await self._call(Opcode.SCHEDULED, partition, payload))

    async def reschedule(self, partition: int, changes: Sequence[tuple[int, int]]) -> list[ErrorCode]:
        """Give scheduled messages another due time, (offset, due_ms), or cancel them, (offset, 0). One code each, after
        commit: OK, or NOT_SCHEDULED. A cancel that is answered OK is never delivered."""
        payload = encode_message(RescheduleRequest(partition, list(changes)))
        return _codes(await self._call(Opcode.RESCHEDULE, partition, payload))

    async def remove(self, partition: int, offsets: Sequence[int], moved: bool = False) -> list[ErrorCode]:
        """Remove the messages that stand at these offsets, leased or not; `moved`: their copies are committed in the
        dead-letter queue. One code each: UNKNOWN_RECORD where none stands there (any more)."""
        payload = encode_message(QueueRemoveRequest(partition, list(offsets), moved))
        return _codes(await self._call(Opcode.QUEUE_REMOVE, partition, payload))

    async def stream_read(self, partition: int, offset: int, bytes_max: int, wait_ms: int = 0) -> StreamReadReply:
        """Whole record batches from `offset` on, below the high watermark."""
        payload = encode_message(StreamReadRequest(partition, offset, bytes_max, wait_ms))
        reply = await self._call(Opcode.STREAM_READ, partition, payload, extra_s=wait_ms / 1000)
        return _stream_read_reply.decode(reply)

    # --- consumer groups of streams -------------------------------------------------------------------------
    # The coordinator of a group is the stream's first partition. FENCED means: whatever this member held is not its own
    # any more; stop, and join again.

    async def group_join(
        self, partitions: Sequence[int], group: bytes, name: bytes, session_ms: int, version: int = 0
    ) -> GroupMembership:
        """Become a member of a group, which is made with its first member, or begin a new session under the same name.

        `partitions` are all of the stream, in its order; when there are more, join again with a higher version.
        """
        request = GroupJoinRequest(partitions[0], group, name, session_ms, list(partitions), version)
        reply = await self._call(Opcode.GROUP_JOIN, partitions[0], encode_message(request))
        return _group_membership.decode(reply)

    async def group_heartbeat(
        self, coordinator: int, group: bytes, epoch: int, generation: int, held: Sequence[tuple[int, int]]
    ) -> GroupMembership:
        """Stay a member, and hear what it owns. `held`: the grants (partition, generation) that are in use; one that is
        to be revoked passes on once it is not among them. Call it some times a session."""
        request = GroupHeartbeatRequest(coordinator, group, epoch, generation, list(held))
        return _group_membership.decode(await self._call(Opcode.GROUP_HEARTBEAT, coordinator, encode_message(request)))

    async def group_leave(self, coordinator: int, group: bytes, epoch: int) -> None:
        """End a session: what it owned passes to others at once."""
        await self._call(Opcode.GROUP_LEAVE, coordinator, encode_message(GroupLeaveRequest(coordinator, group, epoch)))

    async def group_read(
        self,
        partition: int,
        offset: int,
        bytes_max: int,
        grant: tuple[bytes, int, int],
        wait_ms: int = 0,
    ) -> StreamReadReply:
        """`stream_read` for the owner: `grant` is (group, generation of the grant, epoch of the session)."""
        payload = encode_message(GroupReadRequest(partition, offset, bytes_max, wait_ms, *grant))
        reply = await self._call(Opcode.GROUP_READ, partition, payload, extra_s=wait_ms / 1000)
        return _stream_read_reply.decode(reply)

    async def group_commit(self, partition: int, grant: tuple[bytes, int, int], offset: int) -> int:
        """Everything below `offset` is processed. Answers what is committed now, which never goes back."""
        payload = encode_message(GroupCommitRequest(partition, *grant, offset))
        return _group_commit_reply.decode(await self._call(Opcode.GROUP_COMMIT, partition, payload)).offset

    async def group_committed(
        self, partition: int, group: bytes, generation: int = 0, epoch: int = 0
    ) -> GroupCommittedReply:
        """What a group has committed; with generation and epoch only while that grant holds."""
        payload = encode_message(GroupCommittedRequest(partition, group, generation, epoch))
        return _group_committed_reply.decode(await self._call(Opcode.GROUP_COMMITTED, partition, payload))

    async def group_delete(self, partitions: Sequence[int], group: bytes) -> None:
        """Forget a group and its offsets. Raises GROUP_NOT_EMPTY while it has members. May be called again."""
        generation = 0
        for partition in partitions:
            payload = encode_message(GroupDeleteRequest(partition, group, generation))
            reply = _group_delete_reply.decode(await self._call(Opcode.GROUP_DELETE, partition, payload))
            generation = generation or reply.generation

    async def group_fence(self, partition: int, group: bytes, generation: int, epoch: int) -> None:
        """What a coordinator says to a partition before it gives it to a member. Of no use to anybody else."""
        payload = encode_message(GroupFenceRequest(partition, group, generation, epoch))
        await self._call(Opcode.GROUP_FENCE, partition, payload)

    # --- cluster --------------------------------------------------------------------------------------------

    async def create_partition(
        self, kind: int, tag: str, config: QueueConfig | None = None, replication_factor: int = 3
    ) -> PartitionInfo:
        """Create a partition, or answer with the one that has this (kind, tag) already."""
        request = CreatePartitionRequest(kind, tag, config or QueueConfig(), replication_factor)
        reply = await self._call(Opcode.CREATE_PARTITION, 0, encode_message(request))
        info = _partition_info.decode(reply)
        self._links.learn(info)
        return info

    async def retire_partition(self, partition: int, tag: str) -> bool:
        """The queue partition is to be deleted: it takes no requests any more. True: all of its usage stands in the
        usage stream, or it is gone; else ask again. id and tag must both match."""
        reply = await self._call(Opcode.RETIRE, partition, encode_message(RetireRequest(partition, tag)))
        return _retire_reply.decode(reply).is_confirmed

    async def delete_partition(self, partition: int, tag: str) -> None:
        """Delete a partition; id and tag must both match. Deleting one that is gone is fine."""
        await self._call(Opcode.DELETE_PARTITION, 0, encode_message(DeletePartitionRequest(partition, tag)))

    async def describe(self, partitions: list[int] | None = None, moving: bool = False) -> ClusterInfo:
        """Nodes and partitions as any reachable node knows them; with `moving` also those with a move under way."""
        return await self._links.describe(partitions, moving)

    async def is_quarantined(self, partition: int) -> bool:
        """Have so many of its replicas stopped that it cannot have a leader, as the nodes that hold them say?"""
        info = await self.describe([partition])
        holders = next((row.replicas for row in info.partitions if row.partition == partition), [])
        asked = [self.describe_node(node_id, [partition]) for node_id in holders]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        stopped = 0
        for node_id, answer in zip(holders, answers, strict=True):
            if isinstance(answer, BaseException):
                if not isinstance(answer, StorageError):
                    raise answer
                continue
            own = next((node for node in answer.nodes if node.node_id == node_id), None)
            stopped += own is not None and any(one.partition == partition for one in own.stopped)
        return 2 * stopped >= len(holders) > 0

    async def describe_node(self, node_id: int, partitions: list[int] | None = None) -> ClusterInfo:
        """The same as one given node sees it. Raises StorageError when it does not answer."""
        return await self._links.describe_node(node_id, partitions)

    async def move_replica(self, partition: int, source: int, target: int) -> PartitionInfo:
        """Begin to move a replica; the answer names the move, which goes on by itself. `source` 0 adds a replica."""
        payload = encode_message(MoveReplicaRequest(partition, source, target))
        return _partition_info.decode(await self._call(Opcode.MOVE_REPLICA, 0, payload))

    async def cancel_move(self, partition: int, number: int) -> None:
        """Undo a move, if that is still possible; `describe` shows what became of it."""
        await self._call(Opcode.CANCEL_MOVE, 0, encode_message(CancelMoveRequest(partition, number)))

    async def register_node(self, node: NodeAddress) -> None:
        """Make a new node, or a node's new address, known to the cluster."""
        await self._call(Opcode.REGISTER_NODE, 0, encode_message(RegisterNodeRequest(*node)))

    async def set_node_state(self, node_id: int, state: int, dead: bool = False) -> None:
        """Drain a node, let it leave (drained first, then gone), or take it back; `state` is a `NodeState`."""
        await self._call(Opcode.SET_NODE_STATE, 0, encode_message(SetNodeStateRequest(node_id, state, dead)))

    async def scrub(self, node_id: int, start: bool = False) -> ScrubReply:
        """How the scrub of one node goes; with `start`, begin a pass. Raises StorageError when it does not answer."""
        reply = await self._links.ask(node_id, Opcode.SCRUB, encode_message(ScrubRequest(start)))
        return _scrub_reply.decode(reply)

    async def close_usage(self, node_id: int, begin: bool = False) -> int:
        """How many queue partitions led by one node did not export their usage yet; with `begin`, of all that was
        metered up to now. Raises StorageError when the node does not answer."""
        reply = await self._links.ask(node_id, Opcode.CLOSE_USAGE, encode_message(CloseUsageRequest(begin)))
        return _close_usage_reply.decode(reply).partitions

    # --- how calls find their leader ------------------------------------------------------------------------

    async def _call(self, opcode: int, partition: int, payload: bytes, extra_s: float = 0.0) -> bytes:
        return (await self._ask(opcode, partition, payload, extra_s))[0]

    async def _ask(
        self,
        opcode: int,
        partition: int,
        payload: bytes,
        extra_s: float = 0.0,
        late: Callable[[bytes], None] | None = None,
    ) -> tuple[bytes, bool]:
        """The answer, and whether an earlier attempt may have taken effect. `late` takes an answer that comes when the
        call was given up."""
        loop = self._links.loop or asyncio.get_running_loop()
        deadline_s = loop.time() + self._timeout_s + extra_s
        pauses: Pauses | None = None  # from the first attempt on that failed
        unsure = False
        while True:
            attempt = CallAttempt(loop.create_future(), self._links.guess(partition), late)
            attempt.ask(self._links, opcode, payload, deadline_s)
            try:
                return await attempt.future, unsure
            except asyncio.CancelledError:
                attempt.give_up()
                raise
            except StorageError as error:
                if error.traits.outcome_unknown and not unsure:
                    unsure = True
                    payload = asked_again(opcode, payload)
                if pauses is None:
                    pauses = Pauses(self._chance, self._attempts_max)
                pause_s = pauses.after(error)
                if error.traits.retriable:
                    self._links.forget_leader(partition, error)
                if not error.traits.retriable or loop.time() + pause_s > deadline_s:
                    raise outcome_of(error, unsure) from None
            await asyncio.sleep(pause_s)

    async def _delete(self, partition: int, receipts: list[tuple[int, int]]) -> list[ErrorCode]:
        return _codes(await self._call(Opcode.DELETE, partition, encode_message(DeleteRequest(partition, receipts))))

    def _next_attempt(self) -> bytes:
        self._attempts = self._attempts % CORRELATION_ID_MAX + 1
        return self._attempt_prefix + self._attempts.to_bytes(4)

    def _hand_back(self, partition: int, payload: bytes) -> None:
        reply = _acquire_reply.decode(payload)
        if not reply.messages:
            return
        task = asyncio.get_running_loop().create_task(self._release(partition, reply))
        self._handing_back.add(task)
        task.add_done_callback(self._handing_back.discard)

    async def _release(self, partition: int, reply: AcquireReply) -> None:
        changes = [(message.offset, message.delivery, 0) for message in reply.messages]
        mode = VisibilityMode.UNSEEN
        with contextlib.suppress(StorageError):  # then the leases run out
            await self.change_visibility(partition, changes, mode, reply.epoch, reply.deadline_ms)


def _codes(reply: bytes) -> list[ErrorCode]:
    codes = _codes_reply.decode(reply).codes
    return list(map(ErrorCode, codes)) if any(codes) else [ErrorCode.OK] * len(codes)
