"""A stream of some partitions for the tests of consumer groups: each a log folded by a leader and by a follower."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from storage_nodes.log.record_batch import build_batch, iterate_bodies, read_header
from storage_nodes.machines.driver_contract import Propose, Refuse
from storage_nodes.machines.stream.effects import Effect, Evict, Fence, ReadNow, StreamAnswer
from storage_nodes.machines.stream.machine import StreamMachine
from storage_nodes.protocol import messages as m
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.records import encode_body

NOW_MS = 1_700_000_000_000
SESSION_MS = 10_000
GROUP = b"readers"


class Refused(Exception):
    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class Log:
    """One partition. What is proposed is committed at once, unless `is_slow`."""

    def __init__(self, topic: Topic, partition: int) -> None:
        self._topic = topic
        self.partition = partition
        self.end = 0
        self.is_slow = False
        self.leader, self.follower = StreamMachine(), StreamMachine()
        self.answers: dict[object, m.Message | ErrorCode] = {}
        self.evicted: list[bytes] = []
        self.do(self.leader.lead(NOW_MS))

    def append(self, bodies: list[bytes], control: bool = False) -> None:
        batch = build_batch(self.end, 1, self._topic.now_ms, bodies, control=control, plain=True)
        header = read_header(batch)
        self.end = header.end_offset
        assert self.follower.apply(header, lambda: list(iterate_bodies(batch)), 0) == []
        self.do(self.leader.apply(header, lambda: list(iterate_bodies(batch)), self._topic.now_ms))

    def do(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Fence):
                self._topic.fences.append((self, effect))
            elif isinstance(effect, Evict):
                self.evicted.append(effect.group)
            elif isinstance(effect, StreamAnswer):
                self.answers[effect.token] = effect.reply
            elif isinstance(effect, Refuse):
                self.answers[effect.token] = effect.code
            else:
                assert isinstance(effect, Propose | ReadNow)
                if isinstance(effect, Propose) and not self.is_slow:
                    self.commit_staged()

    def commit_staged(self) -> None:
        commands = self.leader.take_commands(self._topic.now_ms)
        if commands:
            self.append(commands, control=True)

    def fail_over(self) -> None:
        """The follower takes over; what is staged is lost, and a third replica begins with its checkpoint."""
        self.do(self.leader.follow())
        self.leader, self.follower = self.follower, StreamMachine()
        self.follower.restore(self.leader.checkpoint())
        self.do(self.leader.lead(self._topic.now_ms))


class Topic:
    def __init__(self, partitions: int = 2) -> None:
        self.now_ms = NOW_MS
        self.fences: list[tuple[Log, Fence]] = []  # asked for, and not answered yet
        self.logs = {number: Log(self, number) for number in range(1, partitions + 1)}
        self.version = 0
        self._tokens = 0

    @property
    def partitions(self) -> list[int]:
        return list(self.logs)

    def add_partition(self) -> int:
        partition = len(self.logs) + 1
        self.logs[partition] = Log(self, partition)
        self.version += 1
        return partition

    def ask(self, request: Any) -> Any:
        """The answer. Raises Refused."""
        self._tokens += 1
        log = self.logs[request.partition]
        log.do(log.leader.group_request(self._tokens, request, self.now_ms))
        answer = log.answers.pop(self._tokens, None)
        if isinstance(answer, ErrorCode):
            raise Refused(answer)
        return answer

    def settle(self) -> None:
        """Every fence that was asked for arrives and is answered."""
        while self.fences:
            self.answer_fence(*self.fences.pop(0))

    def answer_fence(self, coordinator: Log, asked: Fence) -> None:
        _, _, generation, epoch = asked
        code = refusal_of(lambda: self.ask(m.GroupFenceRequest(asked.partition, asked.group, generation, epoch)))
        coordinator.do(coordinator.leader.fenced(asked, code, self.now_ms))

    def pass_ms(self, ms: int) -> None:
        self.now_ms += ms
        for log in self.logs.values():
            due_ms = log.leader.next_tick_ms()
            if due_ms and due_ms <= self.now_ms:
                log.do(log.leader.tick(self.now_ms))

    def delete(self) -> None:
        generation = 0
        for partition in self.partitions:
            generation = self.ask(m.GroupDeleteRequest(partition, GROUP, generation)).generation

    def committed(self, partition: int) -> int:
        return self.ask(m.GroupCommittedRequest(partition, GROUP)).offset

    def append(self, partition: int, count: int = 10) -> None:
        self.logs[partition].append([encode_body(b"x")] * count)

    def check_folds(self) -> None:
        for log in self.logs.values():
            assert log.leader.checkpoint() == log.follower.checkpoint()


class Consumer:
    """A member that does as it is told."""

    def __init__(self, topic: Topic, name: bytes, session_ms: int = SESSION_MS) -> None:
        self._topic = topic
        self.name = name
        self.session_ms = session_ms
        self.epoch = self.generation = 0
        self.held: dict[int, int] = {}
        self.keeps: set[int] = set()  # partitions that it is busy with, and does not let go of

    def join(self) -> Consumer:
        topic = self._topic
        request = m.GroupJoinRequest(1, GROUP, self.name, self.session_ms, topic.partitions, topic.version)
        self.held = {}
        self._heard(topic.ask(request))
        return self

    def beat(self) -> Consumer:
        request = m.GroupHeartbeatRequest(1, GROUP, self.epoch, self.generation, list(self.held.items()))
        self._heard(self._topic.ask(request))
        return self

    def leave(self) -> None:
        self._topic.ask(m.GroupLeaveRequest(1, GROUP, self.epoch))

    def grant(self, partition: int) -> tuple[bytes, int, int]:
        return GROUP, self.held[partition], self.epoch

    def commit(self, partition: int, offset: int) -> int:
        return self._topic.ask(m.GroupCommitRequest(partition, *self.grant(partition), offset)).offset

    def _heard(self, told: m.GroupMembership) -> None:
        self.epoch, self.generation = told.epoch, told.generation
        self.held.update(told.owned)
        for partition, _ in told.revoke:
            if partition not in self.keeps:
                self.held.pop(partition, None)


def refusal_of(call: Callable[[], object]) -> ErrorCode:
    try:
        call()
    except Refused as refused:
        return refused.code
    return ErrorCode.OK


def owner_of_one() -> tuple[Topic, Consumer]:
    topic = Topic(1)
    consumer = Consumer(topic, b"a").join()
    topic.append(1)
    topic.settle()
    return topic, consumer.beat()
