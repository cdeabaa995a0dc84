"""What a question of the compatibility suite is made of. `cases.py` and `bounds.py` are the questions.

A case is a call in a `Scene`; `code` is the query code of the refusal, "" for a success. Parameters are functions of
the scene, because receipts and URLs exist only there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from frontend.metadata.records import EncryptionKeyRecord
from storage_nodes.protocol.errors import ErrorCode
from tests.frontend.compat.control import ControlPlaneInMemory
from tests.support.frontend_plane import ACCOUNT, HOST, OTHER_ACCOUNT, REGION, Installation
from tests.support.settling import at_once

SIMPLE = "AWS.SimpleQueueService."
NOT_FOUND = SIMPLE + "NonExistentQueue"
UNSUPPORTED = SIMPLE + "UnsupportedOperation"
INVALID = "InvalidParameterValue"
MISSING = "MissingParameter"
BAD_NAME = "InvalidAttributeName"
BAD_VALUE = "InvalidAttributeValue"

Params = dict[str, Any]


class Scene(NamedTuple):
    """The queues `orders` and `line.fifo`, each with a message in flight (`handle`, `fifo_handle`) and some waiting; a
    control plane."""

    front: Installation
    control: ControlPlaneInMemory
    handle: str
    fifo_handle: str

    @property
    def url(self) -> str:
        return url_of("orders")

    @property
    def fifo_url(self) -> str:
        return url_of("line.fifo")

    def fail_storage(self, code: ErrorCode) -> None:
        self.front.storage.fail_with = code

    def answer_codes(self, *codes: ErrorCode) -> None:
        self.front.storage.codes = list(codes)


def with_encryption_key(state: str, account_id: str = ACCOUNT, name: str = "orders") -> Callable[[Scene], None]:
    """The queue names a key in this state, "" for one that is gone, and its policy lets everybody in."""

    def prepare(scene: Scene) -> None:
        metadata, key_id = scene.front.metadata, "5f0c3e9e-0000-4000-8000-000000000001"
        record = metadata.queues[(account_id, name)]
        statement = {"Effect": "Allow", "Principal": "*", "Action": "sqs:*", "Resource": "*"}
        attributes = {"KmsMasterKeyId": key_id, "Policy": json.dumps({"Statement": [statement]})}
        metadata.queues[(account_id, name)] = msgspec.structs.replace(
            record, attributes={**record.attributes, **attributes}, encryption_key=key_id, encryption_keys=[key_id]
        )
        if state:
            metadata.encryption_keys[key_id] = EncryptionKeyRecord(key_id, account_id, state, [], 1)

    return prepare


class Case(NamedTuple):
    """`entry_code`: the call succeeds, and one entry of its batch fails so."""

    action: str
    what: str
    params: Callable[[Scene], Params]
    code: str = ""
    check: Callable[[Params], bool] = lambda result: True
    before: Callable[[Scene], None] = lambda scene: None
    status: int = 400
    entry_code: str = ""


class Limit(NamedTuple):
    """How the `Bound` of the same name is asked: inside of it a call succeeds, outside it ends in `code`.

    below      where too little is another error
    has_below  False where there is no less
    in_entry   the call succeeds, and the entry of its batch fails so
    """

    action: str
    what: str
    params: Callable[[Scene, int], Params]
    code: str = INVALID
    below: str = ""
    has_below: bool = True
    status: int = 400
    before: Callable[[Scene], None] = lambda scene: None
    in_entry: bool = False


def url_of(name: str, account_id: str = ACCOUNT) -> str:
    return f"http://{HOST}/{account_id}/{name}"


def arn_of(name: str) -> str:
    return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}"


def has(**members: Any) -> Callable[[Params], bool]:
    return lambda result: all(result.get(name) == value for name, value in members.items())


def queue(**more: Any) -> Callable[[Scene], Params]:
    return lambda scene: {"QueueUrl": scene.url, **more}


def handle(**more: Any) -> Callable[[Scene], Params]:
    return lambda scene: {"QueueUrl": scene.url, "ReceiptHandle": scene.handle, **more}


def of_fifo(**more: Any) -> Callable[[Scene], Params]:
    """A call to `line.fifo`; where HANDLE stands, with its handle."""
    return lambda scene: {"QueueUrl": scene.fifo_url, **_filled(more, scene.fifo_handle)}


def fifo_entries(*entries: Params) -> Callable[[Scene], Params]:
    return lambda scene: {
        "QueueUrl": scene.fifo_url, "Entries": [_filled(entry, scene.fifo_handle) for entry in entries]
    }  # fmt: skip


def expire(scene: Scene) -> None:
    """The visibility of what is in flight runs out."""
    scene.front.clock.now_s += 31


def receive_again(scene: Scene) -> None:
    """The visibility of what is in flight runs out, and it is received again."""
    expire(scene)
    for partition in scene.front.storage.contents():
        at_once(scene.front.storage.acquire(partition, 100, 30_000))


def remove_all(scene: Scene) -> None:
    """Every message was deleted."""
    for partition, messages in scene.front.storage.contents().items():
        if messages:
            at_once(scene.front.storage.remove(partition, [one.offset for one in messages]))


def entries(*entries: Params) -> Callable[[Scene], Params]:
    """`HANDLE` in an entry stands for the handle of the scene."""
    return lambda scene: {"QueueUrl": scene.url, "Entries": [_filled(entry, scene.handle) for entry in entries]}


def _filled(members: Params, receipt: str) -> Params:
    return {name: receipt if value is HANDLE else value for name, value in members.items()}


HANDLE = object()
FIFO = {"FifoQueue": "true"}
MESSAGE = {"MessageBody": "x", "MessageGroupId": "g9", "MessageDeduplicationId": "d9"}
TEXT = {"DataType": "String", "StringValue": "x"}
TRACE = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}}
_STATEMENT = {"Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage", "Resource": arn_of("orders")}
POLICY = json.dumps({"Version": "2012-10-17", "Statement": [{"Sid": "mine", **_STATEMENT}]})
ALLOW = json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": [arn_of("orders")]})
FIFO_REDRIVE = json.dumps({"deadLetterTargetArn": arn_of("dead.fifo"), "maxReceiveCount": 3})
REDRIVE = json.dumps({"deadLetterTargetArn": arn_of("dead"), "maxReceiveCount": 3})
PERMISSION = {"Label": "label", "AWSAccountIds": [OTHER_ACCOUNT], "Actions": ["SendMessage"]}
GRANTABLE = (
    "*", "SendMessage", "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility", "GetQueueAttributes",
    "GetQueueUrl", "ListDeadLetterSourceQueues",
)  # fmt: skip


def with_sources(scene: Scene) -> None:
    for name in ("a", "b", "c"):
        scene.front.add_queue(name, attributes={"RedrivePolicy": REDRIVE})


def moving(scene: Scene) -> None:
    """A task moves the letters of `dead`."""
    with_sources(scene)
    scene.control.tasks["task-0"] = {
        "TaskHandle": "task-0", "Status": "RUNNING", "SourceArn": arn_of("dead"), "DestinationArn": arn_of("a"),
        "MaxNumberOfMessagesPerSecond": 7, "ApproximateNumberOfMessagesMoved": 5,
        "ApproximateNumberOfMessagesToMove": 9, "StartedTimestamp": 1_700_000_000_123,
    }  # fmt: skip


def moved(scene: Scene) -> None:
    moving(scene)
    scene.control.tasks["task-0"]["Status"] = "COMPLETED"


def unwilling(scene: Scene) -> None:
    scene.front.add_queue("dead", attributes={"RedriveAllowPolicy": json.dumps({"redrivePermission": "denyAll"})})


def tagged(count: int) -> Callable[[Scene], None]:
    def before(scene: Scene) -> None:
        scene.control.tags[(ACCOUNT, "orders")] = {f"k{n}": "v" for n in range(count)}

    return before


def policed(count: int) -> Callable[[Scene], None]:
    def before(scene: Scene) -> None:
        principal, arn = {"AWS": OTHER_ACCOUNT}, arn_of("orders")
        statements = [
            {"Sid": f"s{n}", "Effect": "Allow", "Principal": principal, "Action": "SQS:SendMessage", "Resource": arn}
            for n in range(count)
        ]
        policy = {"Version": "2008-10-17", "Statement": statements}
        scene.front.add_queue("orders", attributes={"Policy": json.dumps(policy)} if count else {})

    return before


def sending(**more: Any) -> Callable[[Scene], Params]:
    return queue(**{"MessageBody": "x", **more})


def batches(action: str, good: Params) -> tuple[Case, ...]:
    """What all batch actions refuse in the same way."""
    return (
        Case(action, "one entry", entries(good), check=lambda r: [one["Id"] for one in r["Successful"]] == ["a"]),
        Case(action, "no entries", entries(), SIMPLE + "EmptyBatchRequest"),
        Case(action, "id twice", entries(good, good), SIMPLE + "BatchEntryIdsNotDistinct"),
        Case(action, "id with a space", entries({**good, "Id": "a b"}), SIMPLE + "InvalidBatchEntryId"),
        Case(
            action,
            "eleven entries",
            entries(*({**good, "Id": str(n)} for n in range(11))),
            SIMPLE + "TooManyEntriesInBatchRequest",
        ),
    )
