"""Consumer groups at the leader of a partition: requests are checked, logged, and answered when they are folded.

What is kept here is lost with leadership, and nothing that was promised hangs on it:

    sessions   when each member was last heard. A new leader gives everybody a whole session; that one ended is logged.
    fences     shares that wait for their next owner, on the way from "wanted" over "asked" (the partition's leader is
               told) to "granted" (logged). One request per share is under way, and only the answer to the last one
               counts: so what is granted is never older than what the partition knows.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from storage_nodes.limits import (
    CONSUMER_COMMANDS_PER_BATCH_BYTES_MAX,
    CONSUMER_COMMANDS_PER_BATCH_MAX,
    CONSUMER_FENCE_PAUSE_MS,
    CONSUMER_FENCES_AT_ONCE_MAX,
    CONSUMER_NAME_BYTES_MAX,
    CONSUMER_PARTITIONS_MAX,
    CONSUMER_SESSION_MS_MAX,
    CONSUMER_SESSION_MS_MIN,
    PROPOSALS_PENDING_MAX,
)
from storage_nodes.machines.driver_contract import Refuse, Token
from storage_nodes.machines.stream.consumers import (
    COMMITTED,
    DELETED,
    EXPIRED,
    FENCED,
    GRANTED,
    JOINED,
    LEFT,
    NOTHING_COMMITTED,
    RENEWED,
    REVOKED,
    ConsumerGroup,
    Consumers,
    Folded,
)
from storage_nodes.machines.stream.effects import Effect, Evict, Fence, StreamAnswer
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import (
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
    Message,
)

_encode = msgspec.msgpack.Encoder().encode
_STALE = "the grant is not the one that holds: join again"
# Sessions of members that are gone which the heap may hold beside as many others again.
_GARBAGE_MAX = 256

ShareKey = tuple[bytes, int]  # group, partition
GroupRequest = (
    GroupJoinRequest
    | GroupHeartbeatRequest
    | GroupLeaveRequest
    | GroupFenceRequest
    | GroupCommitRequest
    | GroupCommittedRequest
    | GroupDeleteRequest
)


class View(NamedTuple):
    """The partition as a request meets it."""

    now_ms: int
    log_start: int
    log_end: int


class GroupCoordinator:
    __slots__ = (
        "_asked",
        "_consumers",
        "_heard_ms",
        "_paused",
        "_renewing",
        "_sessions",
        "_sessions_max",
        "_staged",
        "_wanted",
    )

    def __init__(self, consumers: Consumers, now_ms: int) -> None:
        self._consumers = consumers
        self._staged: deque[tuple[Token | None, list[Any]]] = deque()  # command without its time
        self._heard_ms: dict[tuple[bytes, int], int] = {}  # (group, epoch), everybody
        self._sessions: list[tuple[int, bytes, int]] = []  # heap of (ends at the earliest, group, epoch)
        self._sessions_max = _GARBAGE_MAX
        self._wanted: dict[ShareKey, None] = {}  # first come first
        self._asked: dict[ShareKey, tuple[int, int]] = {}  # -> (generation, epoch), until it is folded
        self._paused: list[tuple[int, bytes, int, int]] = []  # heap of (until, group, partition, outdated generation)
        self._renewing: set[bytes] = set()  # groups that get another generation
        for name, group in consumers.groups.items():
            self._group_changed(name, group, now_ms)

    # --- requests: effects now, or a command that is answered when it is folded -------------------------------

    def request(self, token: Token, request: GroupRequest, view: View) -> list[Effect]:
        return _REQUESTS[type(request)](self, token, request, view)

    def _join(self, token: Token, request: GroupJoinRequest, view: View) -> list[Effect]:
        partitions = request.partitions
        problem = _problem_of(request.group) or _problem_of(request.name)
        if not CONSUMER_SESSION_MS_MIN <= request.session_ms <= CONSUMER_SESSION_MS_MAX:
            problem = f"session_ms must be {CONSUMER_SESSION_MS_MIN} to {CONSUMER_SESSION_MS_MAX}"
        elif not 1 <= len(partitions) <= CONSUMER_PARTITIONS_MAX or len(set(partitions)) != len(partitions):
            problem = f"a stream has 1 to {CONSUMER_PARTITIONS_MAX} partitions, each named once"
        elif partitions[0] != request.partition or min(partitions) < 1 or request.version < 0:
            problem = "the coordinator is the first partition of the stream; its version is not negative"
        if problem:
            return [Refuse(token, ErrorCode.INVALID_REQUEST, problem)]
        fields = [request.group, request.name, request.session_ms, request.version, partitions]
        return self._stage(token, [JOINED, *fields])

    def _heartbeat(self, token: Token, request: GroupHeartbeatRequest, view: View) -> list[Effect]:
        name, epoch = request.group, request.epoch
        group = self._consumers.groups.get(name)
        if group is None or epoch not in group.members or request.generation > group.generation:
            return [Refuse(token, ErrorCode.FENCED, "there is no such session (any more): join again")]
        held = dict(request.held)
        shares = group.shares
        for partition, generation in request.held:
            share = shares.get(partition)
            if share is None or (share.owner, share.generation) != (epoch, generation):
                return [Refuse(token, ErrorCode.FENCED, f"partition {partition}: {_STALE}")]
        self._heard_ms[name, epoch] = view.now_ms
        if request.generation == group.generation:
            # It has heard what it is to let go of.
            flat: list[int] = []
            for partition, share in shares.items():
                if share.owner == epoch and share.target != epoch and partition not in held:
                    flat += (partition, share.generation)
            if flat:
                self._stage(None, [REVOKED, name, epoch, flat])
        return [StreamAnswer(token, _membership(group, epoch))]

    def _leave(self, token: Token, request: GroupLeaveRequest, view: View) -> list[Effect]:
        group = self._consumers.groups.get(request.group)
        if group is None or request.epoch not in group.members:
            return [StreamAnswer(token, Empty())]
        return self._stage(token, [LEFT, request.group, request.epoch])

    def _fence(self, token: Token, request: GroupFenceRequest, view: View) -> list[Effect]:
        name, grant = request.group, (request.generation, request.epoch)
        problem = _problem_of(name)
        if problem or min(grant) < 1:
            return [Refuse(token, ErrorCode.INVALID_REQUEST, problem or "generation and epoch are 1 or more")]
        position = self._consumers.positions.get(name)
        if position is not None and position[:2] == grant:
            return [StreamAnswer(token, Empty())]
        return self._stage(token, [FENCED, name, *grant])

    def _commit(self, token: Token, request: GroupCommitRequest, view: View) -> list[Effect]:
        name, grant = request.group, (request.generation, request.epoch)
        code = self._consumers.right(name, *grant)
        if code is not ErrorCode.OK:
            return [Refuse(token, code, _STALE)]
        if not 0 <= request.offset <= view.log_end:
            return [Refuse(token, ErrorCode.OFFSET_OUT_OF_RANGE, f"the log ends at {view.log_end}")]
        standing = self._consumers.positions[name].offset
        if request.offset <= standing:
            return [StreamAnswer(token, GroupCommitReply(standing))]
        return self._stage(token, [COMMITTED, name, *grant, request.offset])

    def _committed(self, token: Token, request: GroupCommittedRequest, view: View) -> list[Effect]:
        if request.generation:
            code = self._consumers.right(request.group, request.generation, request.epoch)
            if code is not ErrorCode.OK:
                return [Refuse(token, code, _STALE)]
        position = self._consumers.positions.get(request.group)
        generation, epoch, offset = position or (0, 0, NOTHING_COMMITTED)
        return [StreamAnswer(token, GroupCommittedReply(offset, generation, epoch, view.log_start, view.log_end))]

    def _delete(self, token: Token, request: GroupDeleteRequest, view: View) -> list[Effect]:
        name, generation, consumers = request.group, request.generation, self._consumers
        if generation < 0:
            return [Refuse(token, ErrorCode.INVALID_REQUEST, "a generation is not negative")]
        if name not in consumers.groups and name not in consumers.positions:
            return [StreamAnswer(token, GroupDeleteReply(generation or consumers.last_number))]
        return self._stage(token, [DELETED, name, generation])

    # --- fences -----------------------------------------------------------------------------------------------

    def fenced(self, asked: Fence, code: ErrorCode, now_ms: int) -> None:
        """OK: the partition's log has what was asked for."""
        group, partition, generation, epoch = asked
        key = (group, partition)
        if self._asked.get(key) != (generation, epoch):
            return
        if code is ErrorCode.OK:
            self._stage(None, [GRANTED, group, partition, generation, epoch])
        else:
            del self._asked[key]
            outdated = generation if code is ErrorCode.FENCED else 0
            heapq.heappush(self._paused, (now_ms + CONSUMER_FENCE_PAUSE_MS, group, partition, outdated))

    def ask_for_fences(self) -> list[Effect]:
        """The next ones that there is room for."""
        effects: list[Effect] = []
        while self._wanted and len(self._asked) < CONSUMER_FENCES_AT_ONCE_MAX:
            key = next(iter(self._wanted))
            del self._wanted[key]
            name, partition = key
            group = self._consumers.groups.get(name)
            share = group.shares.get(partition) if group is not None else None
            if group is not None and share is not None and share.target and not share.owner:
                self._asked[key] = (group.generation, share.target)
                effects.append(Fence(name, partition, group.generation, share.target))
        return effects

    # --- time -------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        while self._sessions and self._sessions[0][0] <= now_ms:
            _, name, epoch = heapq.heappop(self._sessions)
            group = self._consumers.groups.get(name)
            member = group.members.get(epoch) if group is not None else None
            if member is None:
                self._heard_ms.pop((name, epoch), None)
                continue
            end_ms = self._heard_ms[name, epoch] + member.session_ms
            if end_ms <= now_ms:
                self._stage(None, [EXPIRED, name, epoch])
                end_ms = now_ms + member.session_ms  # it is still a member until that is folded
            heapq.heappush(self._sessions, (end_ms, name, epoch))
        while self._paused and self._paused[0][0] <= now_ms:
            _, name, partition, outdated = heapq.heappop(self._paused)
            group = self._consumers.groups.get(name)
            if group is None or group.generation != outdated:
                self._want(name, partition)
            elif name not in self._renewing:
                self._renewing.add(name)
                self._stage(None, [RENEWED, name])

    def next_tick_ms(self) -> int:
        """0 = never."""
        ends_ms = self._sessions[0][0] if self._sessions else 0
        until_ms = self._paused[0][0] if self._paused else 0
        return min(ends_ms, until_ms) if ends_ms and until_ms else ends_ms or until_ms

    # --- the log ----------------------------------------------------------------------------------------------

    @property
    def has_staged(self) -> bool:
        return bool(self._staged)

    def take(self, time_ms: int) -> list[tuple[Token | None, bytes]]:
        """Commands for one batch, and who waits for them."""
        taken: list[tuple[Token | None, bytes]] = []
        size = 0
        staged = self._staged
        while staged and len(taken) < CONSUMER_COMMANDS_PER_BATCH_MAX and size < CONSUMER_COMMANDS_PER_BATCH_BYTES_MAX:
            token, (kind, *fields) = staged.popleft()
            if kind == EXPIRED and self._is_alive(fields[0], fields[1], time_ms):
                continue  # heard since
            command = _encode([kind, time_ms, *fields])
            taken.append((token, command))
            size += len(command)
        return taken

    def tokens(self) -> list[Token]:
        """Of everybody whose command is still staged."""
        return [token for token, _ in self._staged if token is not None]

    def folded(
        self, token: Token | None, kind: int, name: bytes, fields: Sequence[Any], result: Folded, now_ms: int
    ) -> list[Effect]:
        """One command of ours went through the log."""
        effects: list[Effect] = []
        if token is not None:
            effects.append(self._answer(token, kind, name, result))
        if kind == FENCED:
            if result.code is ErrorCode.OK:
                effects.append(Evict(name))
        elif kind == GRANTED:
            self._asked.pop((name, fields[0]), None)
            self._want(name, fields[0])
        elif kind != COMMITTED:
            group = self._consumers.groups.get(name)
            if kind == RENEWED:
                self._renewing.discard(name)
            if group is not None:
                self._group_changed(name, group, now_ms)
        return effects

    # --- inside -----------------------------------------------------------------------------------------------

    def _stage(self, token: Token | None, command: list[Any]) -> list[Effect]:
        if token is not None and len(self._staged) >= PROPOSALS_PENDING_MAX:
            return [Refuse(token, ErrorCode.OVERLOADED, "too many commands wait for their commit")]
        self._staged.append((token, command))
        return []

    def _answer(self, token: Token, kind: int, name: bytes, result: Folded) -> Effect:
        code, number, text = result
        if code is not ErrorCode.OK:
            return Refuse(token, code, text)
        reply: Message = Empty()
        if kind == JOINED:
            reply = _membership(self._consumers.groups[name], number)
        elif kind == COMMITTED:
            reply = GroupCommitReply(number)
        elif kind == DELETED:
            reply = GroupDeleteReply(number)
        return StreamAnswer(token, reply)

    def _group_changed(self, name: bytes, group: ConsumerGroup, now_ms: int) -> None:
        for epoch, member in group.members.items():
            if (name, epoch) not in self._heard_ms:
                self._heard_ms[name, epoch] = now_ms
                heapq.heappush(self._sessions, (now_ms + member.session_ms, name, epoch))
        if len(self._sessions) > self._sessions_max:
            self._forget_former_members()
        for partition, share in group.shares.items():
            if share.target and not share.owner:
                self._want(name, partition)

    def _is_alive(self, name: bytes, epoch: int, now_ms: int) -> bool:
        group = self._consumers.groups.get(name)
        member = group.members.get(epoch) if group is not None else None
        return member is not None and self._heard_ms[name, epoch] + member.session_ms > now_ms

    def _forget_former_members(self) -> None:
        members = {(name, epoch) for name, group in self._consumers.groups.items() for epoch in group.members}
        self._sessions = [entry for entry in self._sessions if entry[1:] in members]
        heapq.heapify(self._sessions)
        self._heard_ms = {key: heard_ms for key, heard_ms in self._heard_ms.items() if key in members}
        self._sessions_max = 2 * len(self._sessions) + _GARBAGE_MAX

    def _want(self, name: bytes, partition: int) -> None:
        if (name, partition) not in self._asked:
            self._wanted[name, partition] = None


def _membership(group: ConsumerGroup, epoch: int) -> GroupMembership:
    owned: list[tuple[int, int]] = []
    revoke: list[tuple[int, int]] = []
    awaited = 0
    for partition, share in group.shares.items():
        if share.owner == epoch:
            (owned if share.target == epoch else revoke).append((partition, share.generation))
        elif share.target == epoch:
            awaited += 1
    return GroupMembership(epoch, group.generation, owned, revoke, awaited)


def _problem_of(name: bytes) -> str:
    is_fine = 1 <= len(name) <= CONSUMER_NAME_BYTES_MAX
    return "" if is_fine else f"a name of a group or member has 1 to {CONSUMER_NAME_BYTES_MAX} bytes"


_REQUESTS: dict[type[Message], Callable[[GroupCoordinator, Token, Any, View], list[Effect]]] = {
    GroupJoinRequest: GroupCoordinator._join,
    GroupHeartbeatRequest: GroupCoordinator._heartbeat,
    GroupLeaveRequest: GroupCoordinator._leave,
    GroupFenceRequest: GroupCoordinator._fence,
    GroupCommitRequest: GroupCoordinator._commit,
    GroupCommittedRequest: GroupCoordinator._committed,
    GroupDeleteRequest: GroupCoordinator._delete,
}
