"""Clients of the manager: one creates the queue that everything needs, others make and drop partitions all the time."""

from __future__ import annotations

from storage_nodes.model import PartitionKind
from storage_nodes.protocol.messages import (
    CreatePartitionRequest,
    DeletePartitionRequest,
    Opcode,
    QueueConfig,
    RetireRequest,
)
from tests.simulation.clients import RETRY_US, Client, Operation
from tests.simulation.keeper_clients import queue_config

TOPIC_PARTITIONS = 3
# Of each manager. One partition more is there from the beginning.
PARTITIONS_AT_ONCE_MAX = 3
PARTITIONS_MAX = 8
# Longest pauses until a partition that is retired is looked at again; between the steps of its leader, and beyond.
RETIRE_US = (200, 2_000, 100_000)
# How long clients may still use what was confirmed.
CONFIRMED_US = 1_000_000
# Who is billed for the queues.
ACCOUNT = "1" * 12
# Short, so that streams are trimmed within a run.
RETENTIONS_MS = (3_000, 20_000, 345_600_000)


class Creator(Client):
    """Creates the queue, trying until it is there; before it, where it has one, its dead-letter queue. Then, where
    there are consumer groups, the partitions of their stream, the last one later."""

    def start(self) -> None:
        faults, dead = self.world.faults, self.world.dead_partition
        kind = "fifo" if faults.fifo else "sim"
        config, tag = queue_config(faults, dead), f"queue:{kind}:0"
        if faults.receives_max and dead < 0:
            tag = f"queue:{kind}:dead"
        request = CreatePartitionRequest(PartitionKind.QUEUE, tag, config)
        self.ask(Opcode.CREATE_PARTITION, request, 1_500_000, self._done)

    def _done(self, operation: Operation) -> None:
        faults = self.world.faults
        if operation.outcome == "ok":
            if operation.reply.tag.endswith(":dead"):
                self.world.dead_letter_queue_created(operation.reply)
                self.start()
            else:
                self.world.queue_created(operation.reply)
                if faults.consumers:
                    self._create_topic()
        else:
            self.elsewhere(operation.reply)
            self.later(RETRY_US, self.start)

    def _create_topic(self) -> None:
        def created(operation: Operation) -> None:
            count = len(self.world.topic)
            if operation.outcome != "ok":
                self.elsewhere(operation.reply)
                self.later(RETRY_US, self._create_topic)
                return
            self.world.topic_created(operation.reply)
            if count + 1 < TOPIC_PARTITIONS:
                self.later(self.random.randrange(3_000_000) if count else 0, self._create_topic)

        request = CreatePartitionRequest(PartitionKind.STREAM, f"stream:topic:{len(self.world.topic)}")
        self.ask(Opcode.CREATE_PARTITION, request, 1_500_000, created)


class Manager(Client):
    """Creates queues and streams under names that others create too, and deletes what it finds, until the end comes.
    Queues it retires before."""

    is_idle = False

    def start(self) -> None:
        self._made = 0
        self._next()

    def _next(self) -> None:
        if self.world.draining:
            self.is_idle = True
            return
        kept = (self.world.partition, self.world.dead_partition, *self.world.topic)
        present = [info for info in self.world.partitions.values() if info.partition not in kept]
        full = len(present) >= PARTITIONS_AT_ONCE_MAX
        if present and (full or self.random.random() < 0.4):
            info = self.random.choice(present)
            self.world.leaving(info.partition)
            if info.kind == PartitionKind.QUEUE:
                self._retire(info.partition, info.tag)
            else:
                self._drop(DeletePartitionRequest(info.partition, info.tag))
        elif self._made < PARTITIONS_MAX and not full:
            self._made += 1
            kind = self.random.choice([PartitionKind.QUEUE, PartitionKind.STREAM])
            retention_ms = self.random.choice(RETENTIONS_MS) if kind == PartitionKind.STREAM else RETENTIONS_MS[-1]
            fifo = kind == PartitionKind.QUEUE and self.random.random() < 0.6
            tag = f"{kind.name.lower()}:{'fifo' if fifo else 'sim'}:{self.random.randrange(1, 6)}"
            self._create(CreatePartitionRequest(kind, tag, QueueConfig(retention_ms, fifo=fifo, account_id=ACCOUNT)))
        else:
            self._later()

    def _later(self) -> None:
        self.at_leisure(self.random.randrange(50_000, 1_500_000), self._next)

    def _create(self, request: CreatePartitionRequest) -> None:
        def created(operation: Operation) -> None:
            if operation.outcome == "ok":
                self.world.partition_created(operation.reply)
                self._later()
            else:
                self.elsewhere(operation.reply)
                self.later(RETRY_US, lambda: self._create(request))

        self.ask(Opcode.CREATE_PARTITION, request, 1_500_000, created)

    def _retire(self, partition: int, tag: str) -> None:
        def answered(operation: Operation) -> None:
            if operation.outcome == "ok" and operation.reply.is_confirmed:
                request = DeletePartitionRequest(partition, tag)
                self.later(self.random.randrange(CONFIRMED_US), lambda: self._drop(request))
                return
            if operation.outcome != "ok":
                self.elsewhere(operation.reply)
            self.later(self.random.randrange(self.random.choice(RETIRE_US)), lambda: self._retire(partition, tag))

        self.ask(Opcode.RETIRE, RetireRequest(partition, tag), 1_500_000, answered)

    def _drop(self, request: DeletePartitionRequest) -> None:
        self.world.dropping(request.partition)

        def dropped(operation: Operation) -> None:
            if operation.outcome == "ok":
                self._later()
            else:
                self.elsewhere(operation.reply)
                self.later(RETRY_US, lambda: self._drop(request))

        self.ask(Opcode.DELETE_PARTITION, request, 1_500_000, dropped)
