"""A control plane with queues on a storage in memory, for the tests of dead letters and move tasks.

Lifecycle hints are taken at once; what the lifecycle configures is what the storage enforces. A front end over
the same storage and the control plane's own records sends and receives.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import httpx2
import pytest
from django.utils import timezone

from api.queues import actions, moving, redrive
from api.queues.models import MessageMoveTask, Queue
from api.secrets import keyring, receipt_key
from frontend.authn.principal import Principal
from frontend.control import ControlPlane
from frontend.messages.receive import Received, receive_messages
from frontend.messages.receive_options import ReceiveOptions
from frontend.messages.send import Sent, send_message
from frontend.messages.settle import delete_messages
from frontend.queues.names import Address
from frontend.services import FrontendServices
from frontend.sqs.message_form import read_message
from frontend.sqs.requests import MessageFields
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.messages import PartitionInfo, QueueConfig
from tests.support.control_plane import Caller, new_caller
from tests.support.fake_metadata import FakeMetadata
from tests.support.frontend_plane import Clock
from tests.support.observed_storage import ObservedStorage
from tests.support.scripted_storage import PartitionsByTag
from workers.lifecycle.reconciling import reconcile_queue
from workers.moves.slices import move_slice

# The control plane is never asked. Without this each client would read the certificates of all authorities.
_NOBODY = httpx2.MockTransport(lambda request: httpx2.Response(503))


class StorageCluster(PartitionsByTag, ObservedStorage):
    """Storage in memory with the calls of the lifecycle."""

    def __init__(self, clock: Clock) -> None:
        PartitionsByTag.__init__(self)
        ObservedStorage.__init__(self, clock)

    async def create_partition(
        self, kind: int, tag: str, config: QueueConfig | None = None, replication_factor: int = 3
    ) -> PartitionInfo:
        assert kind == PartitionKind.QUEUE
        info = self.made(kind, tag, config)
        if info.partition not in self.node.replicas:
            self.create(info.partition, config)
        return info

    async def retire_partition(self, partition: int, tag: str) -> bool:
        return True  # nothing is metered here

    async def delete_partition(self, partition: int, tag: str) -> None:
        if self.partitions.pop(tag, None) is not None:
            self.drop(partition)


class Scene(NamedTuple):
    caller: Caller
    storage: StorageCluster
    clock: Clock

    def create(self, name: str, **attributes: str) -> Queue:
        if name.endswith(".fifo"):
            attributes["FifoQueue"] = "true"
        answer = self.caller.sqs("CreateQueue", QueueName=name, Attributes=attributes)
        assert answer.status_code == 200, answer.json()
        return Queue.objects.get(name=name, state="active", account_id=self.caller.account_id)

    def arn(self, name: str) -> str:
        return f"arn:aws:sqs:us-east-1:{self.caller.account_id}:{name}"

    def redrive(self, target: str, receives: int = 1) -> str:
        return json.dumps({"deadLetterTargetArn": self.arn(target), "maxReceiveCount": receives})

    def config(self, name: str) -> QueueConfig:
        queue = Queue.objects.get(name=name, state="active", account_id=self.caller.account_id)
        return self.storage.config(queue.partitions[0])

    def send(self, name: str, body: str, **fields: Any) -> Sent:
        return self._in_front(
            lambda services, caller, address: send_message(
                services, caller, address, MessageFields(message_body=body, **fields), read_message, len(body)
            ),
            name,
        )

    def receive(self, name: str, count: int = 10, visibility_s: int = 30) -> list[Received]:
        ask = ReceiveOptions(count, visibility_s, 0)
        return self._in_front(
            lambda services, caller, address: receive_messages(services, caller, address, ask, _stays), name
        )

    def delete(self, name: str, handles: list[str]) -> list[Any]:
        return self._in_front(
            lambda services, caller, address: delete_messages(services, caller, address, handles), name
        )

    def fail(self, name: str, times: int = 1) -> None:
        """Everything in the queue is received that often and never deleted; the storage then moves what is due."""
        for _ in range(times):
            self.receive(name, visibility_s=1)
            self.clock.now_s += 2
        assert self.receive(name) == []

    def _in_front(self, call: Callable[[FrontendServices, Principal, Address], Awaitable[Any]], name: str) -> Any:
        queue = Queue.objects.get(name=name, state="active", account_id=self.caller.account_id)
        record = moving.record_of(queue)
        assert record is not None

        async def run() -> Any:
            metadata = FakeMetadata()
            metadata.queues[(queue.account_id, name)] = record
            services = FrontendServices(
                region="us-east-1",
                storage=self.storage,
                metadata=metadata,
                control=ControlPlane("control.test:80", b"i" * 32, transport=_NOBODY),
                keyring=keyring(),
                pepper=b"p" * 32,
                receipt_key=receipt_key(),
                now_s=self.clock,
            )
            try:
                return await call(services, Principal(*self.caller), Address(queue.account_id, name))
            finally:
                await services.control.close()

        return asyncio.run(run())


async def _stays() -> None:
    """The client does not leave."""
    await asyncio.Event().wait()


class Killed(BaseException):
    """The worker dies here: nothing after it runs."""


@pytest.fixture
def caller(transactional_db: None) -> Caller:
    return new_caller()


@pytest.fixture
def scene(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> Scene:
    clock = Clock()
    storage = StorageCluster(clock)
    for module in (actions, redrive):
        monkeypatch.setattr(module, "send_hint", lambda hint, queue_id: reconcile_queue(queue_id, storage))
    return Scene(caller, storage, clock)


def start(scene: Scene, source: str = "dead", **params: Any) -> MessageMoveTask:
    answer = scene.caller.sqs("StartMessageMoveTask", SourceArn=scene.arn(source), **params)
    assert answer.status_code == 200, answer.json()
    return MessageMoveTask.objects.latest("pk")


def run(scene: Scene, task: MessageMoveTask) -> MessageMoveTask:
    """Slices until the task has ended."""
    for _ in range(100):
        MessageMoveTask.objects.filter(pk=task.pk).update(next_attempt_at=timezone.now())
        if move_slice(task.pk, scene.storage, sleep=lambda _: None) is None:
            break
    task.refresh_from_db()
    return task


def listed(scene: Scene, source: str = "dead", **params: Any) -> Any:
    answer = scene.caller.sqs("ListMessageMoveTasks", SourceArn=scene.arn(source), **params)
    assert answer.status_code == 200, answer.json()
    return answer.json()["Results"]


def dead_letters(scene: Scene, suffix: str = "", count: int = 3) -> None:
    """`orders` with `count` messages that have failed into `dead`."""
    scene.create("dead" + suffix)
    scene.create("orders" + suffix, RedrivePolicy=scene.redrive("dead" + suffix))
    for number in range(count):
        fields = {"message_group_id": "g", "message_deduplication_id": f"d{number}"} if suffix else {}
        scene.send("orders" + suffix, f"m{number}", **fields)
    for _ in range(count if suffix else 1):
        scene.receive("orders" + suffix, visibility_s=1)
        scene.clock.now_s += 2
    assert scene.receive("orders" + suffix) == []
