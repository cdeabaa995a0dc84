"""What the compatibility suite asks: per action successes, errors, and limits. The generated document lists them.

A case is a call in a `Scene`; `code` is the query code of the refusal, "" for a success. Parameters are functions of
the scene, because receipts and URLs exist only there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from storage_nodes.protocol.errors import ErrorCode
from tests.frontend.compat.control import ControlPlaneInMemory
from tests.support.frontend_plane import ACCOUNT, HOST, OTHER_ACCOUNT, REGION, Installation

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


class Case(NamedTuple):
    action: str
    what: str
    params: Callable[[Scene], Params]
    code: str = ""
    check: Callable[[Params], bool] = lambda result: True
    before: Callable[[Scene], None] = lambda scene: None
    status: int = 400


class Limit(NamedTuple):
    """Inside of low..high a call succeeds, outside it ends in `code`. `below` where too little is another error."""

    action: str
    what: str
    low: int
    high: int
    params: Callable[[Scene, int], Params]
    code: str = INVALID
    below: str = ""
    has_below: bool = True
    status: int = 400
    before: Callable[[Scene], None] = lambda scene: None


def url_of(name: str, account_id: str = ACCOUNT) -> str:
    return f"http://{HOST}/{account_id}/{name}"


def arn_of(name: str) -> str:
    return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}"


def has(**members: Any) -> Callable[[Params], bool]:
    return lambda result: all(result.get(name) == value for name, value in members.items())


def _queue(**more: Any) -> Callable[[Scene], Params]:
    return lambda scene: {"QueueUrl": scene.url, **more}


def _handle(**more: Any) -> Callable[[Scene], Params]:
    return lambda scene: {"QueueUrl": scene.url, "ReceiptHandle": scene.handle, **more}


def _fifo(**more: Any) -> Callable[[Scene], Params]:
    """A call to `line.fifo`; where HANDLE stands, with its handle."""
    return lambda scene: {
        "QueueUrl": scene.fifo_url, **{k: scene.fifo_handle if v is HANDLE else v for k, v in more.items()}
    }  # fmt: skip


def _fifo_entries(*entries: Params) -> Callable[[Scene], Params]:
    def params(scene: Scene) -> Params:
        filled = [{k: scene.fifo_handle if v is HANDLE else v for k, v in entry.items()} for entry in entries]
        return {"QueueUrl": scene.fifo_url, "Entries": filled}

    return params


def _expire(scene: Scene) -> None:
    """The visibility of what is in flight runs out."""
    scene.front.clock.now_s += 31


def _entries(*entries: Params) -> Callable[[Scene], Params]:
    """`HANDLE` in an entry stands for the handle of the scene."""

    def params(scene: Scene) -> Params:
        filled = [{k: scene.handle if v is HANDLE else v for k, v in entry.items()} for entry in entries]
        return {"QueueUrl": scene.url, "Entries": filled}

    return params


HANDLE = object()
FIFO = {"FifoQueue": "true"}
MESSAGE = {"MessageBody": "x", "MessageGroupId": "g9", "MessageDeduplicationId": "d9"}
TEXT = {"DataType": "String", "StringValue": "x"}
TRACE = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}}
POLICY = json.dumps({"Statement": [{"Sid": "mine"}]})
ALLOW = json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": [arn_of("orders")]})
FIFO_REDRIVE = json.dumps({"deadLetterTargetArn": arn_of("dead.fifo"), "maxReceiveCount": 3})
REDRIVE = json.dumps({"deadLetterTargetArn": arn_of("dead"), "maxReceiveCount": 3})
PERMISSION = {"Label": "label", "AWSAccountIds": [OTHER_ACCOUNT], "Actions": ["SendMessage"]}
GRANTABLE = (
    "*", "SendMessage", "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility", "GetQueueAttributes",
    "GetQueueUrl", "ListDeadLetterSourceQueues",
)  # fmt: skip


def _redrive(scene: Scene) -> None:
    for name in ("a", "b", "c"):
        scene.front.add_queue(name, attributes={"RedrivePolicy": REDRIVE})


def _moving(scene: Scene) -> None:
    """A task moves the letters of `dead`."""
    _redrive(scene)
    scene.control.tasks["task-0"] = {
        "TaskHandle": "task-0", "Status": "RUNNING", "SourceArn": arn_of("dead"), "DestinationArn": arn_of("a"),
        "MaxNumberOfMessagesPerSecond": 7, "ApproximateNumberOfMessagesMoved": 5,
        "ApproximateNumberOfMessagesToMove": 9, "StartedTimestamp": 1_700_000_000_123,
    }  # fmt: skip


def _moved(scene: Scene) -> None:
    _moving(scene)
    scene.control.tasks["task-0"]["Status"] = "COMPLETED"


def _unwilling(scene: Scene) -> None:
    scene.front.add_queue("dead", attributes={"RedriveAllowPolicy": json.dumps({"redrivePermission": "denyAll"})})


def _tagged(count: int) -> Callable[[Scene], None]:
    def before(scene: Scene) -> None:
        scene.control.tags[(ACCOUNT, "orders")] = {f"k{n}": "v" for n in range(count)}

    return before


def _policed(count: int) -> Callable[[Scene], None]:
    def before(scene: Scene) -> None:
        statements = [{"Sid": f"s{n}"} for n in range(count)]
        scene.front.add_queue("orders", attributes={"Policy": json.dumps({"Statement": statements})})

    return before


def _send(**more: Any) -> Callable[[Scene], Params]:
    return _queue(**{"MessageBody": "x", **more})


def _batches(action: str, good: Params) -> tuple[Case, ...]:
    """What all batch actions refuse in the same way."""
    return (
        Case(action, "one entry", _entries(good), check=lambda r: [one["Id"] for one in r["Successful"]] == ["a"]),
        Case(action, "no entries", _entries(), SIMPLE + "EmptyBatchRequest"),
        Case(action, "id twice", _entries(good, good), SIMPLE + "BatchEntryIdsNotDistinct"),
        Case(action, "id with a space", _entries({**good, "Id": "a b"}), SIMPLE + "InvalidBatchEntryId"),
        Case(
            action,
            "eleven entries",
            _entries(*({**good, "Id": str(n)} for n in range(11))),
            SIMPLE + "TooManyEntriesInBatchRequest",
        ),
    )


CASES: tuple[Case, ...] = (
    # --- messages ---
    Case("SendMessage", "text", _send(), check=has(MD5OfMessageBody="9dd4e461268c8034f5c8564e155c67a6")),
    Case(
        "SendMessage",
        "everything",
        _send(
            MessageAttributes={"a": TEXT, "b": {"DataType": "Binary.x", "BinaryValue": b"\0\xff"}},
            MessageSystemAttributes=TRACE,
            DelaySeconds=1,
            MessageGroupId="group",
        ),
        check=lambda result: len(result["MD5OfMessageAttributes"]) == len(result["MD5OfMessageSystemAttributes"]) == 32,
    ),
    Case("SendMessage", "character that is not allowed", _send(MessageBody="\x01"), "InvalidMessageContents"),
    Case("SendMessage", "deduplication id on a standard queue", _send(MessageDeduplicationId="x"), INVALID),
    Case("SendMessage", "attribute name with a reserved prefix", _send(MessageAttributes={"AWS.x": TEXT}), INVALID),
    Case("SendMessage", "empty attribute value", _send(MessageAttributes={"a": {**TEXT, "StringValue": ""}}), INVALID),
    Case("SendMessage", "attribute list", _send(MessageAttributes={"a": {**TEXT, "StringListValues": ["x"]}}),
         UNSUPPORTED),
    Case("SendMessage", "to a FIFO queue", _fifo(**MESSAGE), check=lambda r: len(r["SequenceNumber"]) == 20),
    Case("SendMessage", "no delay to a FIFO queue", _fifo(**MESSAGE, DelaySeconds=0)),
    Case("SendMessage", "FIFO, a delay of its own", _fifo(**MESSAGE, DelaySeconds=1), INVALID),
    Case("SendMessage", "FIFO without a group", _fifo(MessageBody="x", MessageDeduplicationId="d"), MISSING),
    Case("SendMessage", "FIFO without a deduplication id", _fifo(MessageBody="x", MessageGroupId="g"), INVALID),
    Case("SendMessage", "group with a space", _send(MessageGroupId="a b"), INVALID),
    Case("SendMessage", "FIFO, group with a space", _fifo(**{**MESSAGE, "MessageGroupId": "a b"}), INVALID),
    Case("SendMessage", "FIFO, deduplication id with a letter outside ASCII",
         _fifo(**{**MESSAGE, "MessageDeduplicationId": "ü"}), INVALID),
    *_batches("SendMessageBatch", {"Id": "a", "MessageBody": "x"}),
    Case(
        "SendMessageBatch",
        "to a FIFO queue",
        _fifo_entries({**MESSAGE, "Id": "a"}, {**MESSAGE, "Id": "b", "MessageDeduplicationId": "e"}),
        check=lambda r: r["Successful"][0]["SequenceNumber"] < r["Successful"][1]["SequenceNumber"],
    ),
    Case(
        "SendMessageBatch",
        "FIFO, one entry without a group",
        _fifo_entries({**MESSAGE, "Id": "a"}, {"Id": "b", "MessageBody": "x"}),
        check=lambda r: [one["Code"] for one in r["Failed"]] == [MISSING] and len(r["Successful"]) == 1,
    ),
    Case(
        "SendMessageBatch",
        "one entry fails",
        _entries({"Id": "a", "MessageBody": "x"}, {"Id": "b", "MessageBody": "x", "DelaySeconds": 901}),
        check=lambda r: [(one["Id"], one["Code"], one["SenderFault"]) for one in r["Failed"]] == [("b", INVALID, True)],
    ),
    Case(
        "SendMessageBatch",
        "too long together",
        _entries({"Id": "a", "MessageBody": "x" * 2**19}, {"Id": "b", "MessageBody": "x" * (2**19 + 1)}),
        SIMPLE + "BatchRequestTooLong",
    ),
    Case("ReceiveMessage", "defaults", _queue(), check=lambda result: len(result["Messages"]) == 1),
    Case(
        "ReceiveMessage",
        "everything",
        _queue(MaxNumberOfMessages=10, MessageAttributeNames=["All"], MessageSystemAttributeNames=["All"]),
        check=lambda result: result["Messages"][0]["Attributes"]["ApproximateReceiveCount"] == "1"
        and result["Messages"][0]["MessageAttributes"] == {"a": TEXT},
    ),
    Case("ReceiveMessage", "unknown system attribute", _queue(AttributeNames=["Nope"]), BAD_NAME),
    Case("ReceiveMessage", "attempt id on a standard queue", _queue(ReceiveRequestAttemptId="x"), INVALID),
    Case("ReceiveMessage", "too many in flight", _queue(), "OverLimit", status=403,
         before=lambda scene: scene.fail_storage(ErrorCode.OVER_LIMIT)),
    Case(
        "ReceiveMessage",
        "of a FIFO queue, everything",
        _fifo(MaxNumberOfMessages=10, MessageSystemAttributeNames=["All"], ReceiveRequestAttemptId="try-1"),
        check=lambda r: [one["Attributes"]["MessageGroupId"] for one in r["Messages"]] == ["h", "h"]
        and r["Messages"][0]["Attributes"]["MessageDeduplicationId"] == "d2"
        and len(r["Messages"][0]["Attributes"]["SequenceNumber"]) == 20,
    ),
    Case("ReceiveMessage", "FIFO, an attempt id with a space", _fifo(ReceiveRequestAttemptId="a b"), INVALID),
    Case("ReceiveMessage", "FIFO, too many in flight on a long poll", _fifo(WaitTimeSeconds=1),
         check=lambda result: not result.get("Messages"),
         before=lambda scene: scene.fail_storage(ErrorCode.OVER_LIMIT)),
    Case("DeleteMessage", "a message in flight", _handle()),
    Case("DeleteMessage", "of a FIFO queue", _fifo(ReceiptHandle=HANDLE)),
    Case("DeleteMessage", "FIFO, visibility ran out", _fifo(ReceiptHandle=HANDLE), INVALID, before=_expire),
    Case("DeleteMessage", "receipt of another queue", _fifo(ReceiptHandle="x"), "ReceiptHandleIsInvalid"),
    Case("DeleteMessage", "deleted already", _handle(), before=lambda s: s.answer_codes(ErrorCode.NOT_IN_FLIGHT)),
    Case("DeleteMessage", "no receipt of ours", _queue(ReceiptHandle="x"), "ReceiptHandleIsInvalid"),
    *_batches("DeleteMessageBatch", {"Id": "a", "ReceiptHandle": HANDLE}),
    Case(
        "DeleteMessageBatch",
        "one entry fails",
        _entries({"Id": "a", "ReceiptHandle": HANDLE}, {"Id": "b", "ReceiptHandle": "x"}),
        check=lambda result: [one["Code"] for one in result["Failed"]] == ["ReceiptHandleIsInvalid"],
    ),
    Case(
        "DeleteMessageBatch",
        "FIFO, visibility ran out",
        _fifo_entries({"Id": "a", "ReceiptHandle": HANDLE}),
        check=lambda result: [one["Code"] for one in result["Failed"]] == [INVALID],
        before=_expire,
    ),
    Case("ChangeMessageVisibility", "a message in flight", _handle(VisibilityTimeout=5)),
    Case("ChangeMessageVisibility", "of a FIFO queue", _fifo(ReceiptHandle=HANDLE, VisibilityTimeout=5)),
    Case("ChangeMessageVisibility", "FIFO, visibility ran out", _fifo(ReceiptHandle=HANDLE, VisibilityTimeout=5),
         SIMPLE + "MessageNotInflight", before=_expire),
    Case("ChangeMessageVisibility", "no receipt of ours", _queue(ReceiptHandle="x", VisibilityTimeout=5),
         "ReceiptHandleIsInvalid"),
    Case("ChangeMessageVisibility", "not in flight any more", _handle(VisibilityTimeout=5),
         SIMPLE + "MessageNotInflight", before=lambda scene: scene.answer_codes(ErrorCode.NOT_IN_FLIGHT)),
    *_batches("ChangeMessageVisibilityBatch", {"Id": "a", "ReceiptHandle": HANDLE, "VisibilityTimeout": 5}),
    Case(
        "ChangeMessageVisibilityBatch",
        "one entry fails",
        _entries(
            {"Id": "a", "ReceiptHandle": HANDLE, "VisibilityTimeout": 0},
            {"Id": "b", "ReceiptHandle": HANDLE, "VisibilityTimeout": 43_201},
        ),
        check=lambda result: [one["Code"] for one in result["Failed"]] == [INVALID],
    ),
    # --- queues ---
    Case("CreateQueue", "a new one", lambda _: {"QueueName": "new", "Attributes": {"DelaySeconds": "1"},
         "tags": {"a": "b"}}, check=has(QueueUrl=url_of("new"))),
    Case("CreateQueue", "the same again", lambda _: {"QueueName": "orders"}, check=has(QueueUrl=url_of("orders"))),
    Case("CreateQueue", "other attributes", lambda _: {"QueueName": "orders", "Attributes": {"DelaySeconds": "1"}},
         "QueueAlreadyExists"),
    Case("CreateQueue", "deleted just now", lambda _: {"QueueName": "old"}, SIMPLE + "QueueDeletedRecently",
         before=lambda scene: scene.control.deleted.add((ACCOUNT, "old"))),
    Case("CreateQueue", "unknown attribute", lambda _: {"QueueName": "q", "Attributes": {"Nope": "1"}}, BAD_NAME),
    Case("CreateQueue", "bad attribute", lambda _: {"QueueName": "q", "Attributes": {"DelaySeconds": "x"}}, BAD_VALUE),
    Case("CreateQueue", "FIFO", lambda _: {"QueueName": "q.fifo", "Attributes": {**FIFO,
         "DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId",
         "ContentBasedDeduplication": "true"}}, check=has(QueueUrl=url_of("q.fifo"))),
    Case("CreateQueue", "FIFO without the suffix", lambda _: {"QueueName": "q", "Attributes": FIFO}, INVALID),
    Case("CreateQueue", "the suffix without FIFO", lambda _: {"QueueName": "q.fifo"}, INVALID),
    Case("CreateQueue", "FIFO attribute of a standard queue",
         lambda _: {"QueueName": "q", "Attributes": {"ContentBasedDeduplication": "true"}}, BAD_NAME),
    Case("CreateQueue", "FifoQueue that is false", lambda _: {"QueueName": "q",
         "Attributes": {"FifoQueue": "false"}}, BAD_NAME),
    Case("CreateQueue", "throughput per group, deduplication per queue", lambda _: {"QueueName": "q.fifo",
         "Attributes": {**FIFO, "FifoThroughputLimit": "perMessageGroupId"}}, BAD_VALUE),
    Case("CreateQueue", "a dead-letter queue that is not there", lambda _: {"QueueName": "q", "Attributes":
         {"RedrivePolicy": REDRIVE.replace("dead", "nowhere")}}, BAD_VALUE),
    Case("CreateQueue", "FIFO with a FIFO dead-letter queue", lambda _: {"QueueName": "q.fifo", "Attributes": {**FIFO,
         "RedrivePolicy": FIFO_REDRIVE}}, before=lambda scene: scene.front.add_queue("dead.fifo", (3,)),
         check=has(QueueUrl=url_of("q.fifo"))),
    Case("CreateQueue", "FIFO with a standard dead-letter queue", lambda _: {"QueueName": "q.fifo", "Attributes":
         {**FIFO, "RedrivePolicy": REDRIVE}}, BAD_VALUE),
    Case("CreateQueue", "bad name", lambda _: {"QueueName": "a b"}, INVALID),
    Case("CreateQueue", "reserved tag", lambda _: {"QueueName": "q", "tags": {"aws:x": "y"}}, INVALID),
    Case("DeleteQueue", "one of mine", _queue()),
    Case("GetQueueUrl", "one of mine", lambda _: {"QueueName": "orders"}, check=has(QueueUrl=url_of("orders"))),
    Case("GetQueueUrl", "unknown", lambda _: {"QueueName": "nope"}, NOT_FOUND),
    Case("GetQueueUrl", "of another account",
         lambda _: {"QueueName": "secret", "QueueOwnerAWSAccountId": OTHER_ACCOUNT}, NOT_FOUND),
    Case("ListQueues", "all", lambda _: {},
         check=has(QueueUrls=[url_of("dead"), url_of("line.fifo"), url_of("orders")])),
    Case("ListQueues", "a page", lambda _: {"MaxResults": 2}, before=_redrive,
         check=lambda r: r["QueueUrls"] == [url_of("a"), url_of("b")] and bool(r["NextToken"])),
    Case("ListQueues", "none", lambda _: {"QueueNamePrefix": "x"}, check=lambda result: "QueueUrls" not in result),
    Case("ListQueues", "a token without MaxResults", lambda _: {"NextToken": "YQ=="}, INVALID),
    Case("GetQueueAttributes", "all", _queue(AttributeNames=["All"]),
         check=lambda r: r["Attributes"]["ApproximateNumberOfMessagesNotVisible"] == "1"
         and r["Attributes"]["QueueArn"] == arn_of("orders")),
    Case("GetQueueAttributes", "of a FIFO queue", _fifo(AttributeNames=["All"]),
         check=lambda r: (r["Attributes"]["FifoQueue"], r["Attributes"]["ContentBasedDeduplication"],
                          r["Attributes"]["DeduplicationScope"], r["Attributes"]["FifoThroughputLimit"])
         == ("true", "false", "queue", "perQueue")),
    Case("GetQueueAttributes", "one", _queue(AttributeNames=["DelaySeconds"]),
         check=has(Attributes={"DelaySeconds": "0"})),
    Case("GetQueueAttributes", "none", _queue(), check=lambda result: not result.get("Attributes")),
    Case("GetQueueAttributes", "unknown", _queue(AttributeNames=["Nope"]), BAD_NAME),
    Case("SetQueueAttributes", "one", _queue(Attributes={"VisibilityTimeout": "7"})),
    Case("SetQueueAttributes", "unknown", _queue(Attributes={"Nope": "1"}), BAD_NAME),
    Case("SetQueueAttributes", "read-only", _queue(Attributes={"QueueArn": "x"}), BAD_NAME),
    Case("SetQueueAttributes", "queue type", _queue(Attributes={"FifoQueue": "false"}), BAD_VALUE),
    Case("SetQueueAttributes", "Policy that is not JSON", _queue(Attributes={"Policy": "{"}), BAD_VALUE),
    Case("SetQueueAttributes", "RedrivePolicy without a target", _queue(Attributes={"RedrivePolicy": "{}"}), BAD_VALUE),
    Case("SetQueueAttributes", "RedrivePolicy", _queue(Attributes={"RedrivePolicy": REDRIVE})),
    Case("SetQueueAttributes", "a dead-letter queue that does not take from this one",
         _queue(Attributes={"RedrivePolicy": REDRIVE}), BAD_VALUE, before=_unwilling),
    Case("SetQueueAttributes", "a dead-letter queue of the other type",
         _queue(Attributes={"RedrivePolicy": FIFO_REDRIVE}), BAD_VALUE,
         before=lambda scene: scene.front.add_queue("dead.fifo", (3,))),
    Case("SetQueueAttributes", "RedriveAllowPolicy", _queue(Attributes={"RedriveAllowPolicy": ALLOW})),
    Case("SetQueueAttributes", "RedriveAllowPolicy, unknown permission",
         _queue(Attributes={"RedriveAllowPolicy": '{"redrivePermission": "x"}'}), BAD_VALUE),
    Case("SetQueueAttributes", "RedriveAllowPolicy, sources with denyAll", _queue(Attributes={"RedriveAllowPolicy":
         ALLOW.replace("byQueue", "denyAll")}), BAD_VALUE),
    Case("SetQueueAttributes", "FIFO, high throughput", _fifo(Attributes={"DeduplicationScope": "messageGroup",
         "FifoThroughputLimit": "perMessageGroupId"})),
    Case("SetQueueAttributes", "FIFO, throughput without its scope",
         _fifo(Attributes={"FifoThroughputLimit": "perMessageGroupId"}), BAD_VALUE),
    Case("SetQueueAttributes", "FIFO, its type as it is", _fifo(Attributes=FIFO)),
    Case("SetQueueAttributes", "FIFO, unknown scope", _fifo(Attributes={"DeduplicationScope": "x"}), BAD_VALUE),
    Case("SetQueueAttributes", "FIFO attribute of a standard queue",
         _queue(Attributes={"ContentBasedDeduplication": "true"}), BAD_NAME),
    Case("SetQueueAttributes", "too many statements",
         _queue(Attributes={"Policy": json.dumps({"Statement": [{}] * 21})}), "OverLimit", status=403),
    Case("PurgeQueue", "one of mine", _queue()),
    Case("PurgeQueue", "twice in a minute", _queue(), SIMPLE + "PurgeQueueInProgress", status=403,
         before=lambda scene: scene.fail_storage(ErrorCode.PURGE_IN_PROGRESS)),
    # --- tags ---
    Case("TagQueue", "one", _queue(Tags={"Key": "value"})),
    Case("TagQueue", "reserved prefix", _queue(Tags={"Aws:x": "y"}), INVALID),
    Case("UntagQueue", "known and unknown keys", _queue(TagKeys=["k0", "nope"]), before=_tagged(1)),
    Case("ListQueueTags", "two", _queue(), check=has(Tags={"k0": "v", "k1": "v"}), before=_tagged(2)),
    Case("ListQueueTags", "none", _queue(), check=lambda result: not result.get("Tags")),
    # --- permissions ---
    Case("AddPermission", "one", _queue(**PERMISSION)),
    Case("AddPermission", "a label that exists", _queue(**{**PERMISSION, "Label": "s0"}), INVALID, before=_policed(1)),
    Case("AddPermission", "an action of owners only", _queue(**{**PERMISSION, "Actions": ["DeleteQueue"]}), INVALID),
    Case("AddPermission", "no account id", _queue(**{**PERMISSION, "AWSAccountIds": ["me"]}), INVALID),
    Case("AddPermission", "eight actions", _queue(**{**PERMISSION, "Actions": list(GRANTABLE)}), "OverLimit",
         status=403),
    Case("RemovePermission", "a known label", _queue(Label="s0"), before=_policed(2)),
    Case("RemovePermission", "an unknown label", _queue(Label="s2"), INVALID, before=_policed(2)),
    # --- dead-letter queues ---
    Case("ListDeadLetterSourceQueues", "all", lambda _: {"QueueUrl": url_of("dead")}, before=_redrive,
         check=has(queueUrls=[url_of("a"), url_of("b"), url_of("c")])),
    Case("ListDeadLetterSourceQueues", "a page", lambda _: {"QueueUrl": url_of("dead"), "MaxResults": 2},
         before=_redrive, check=lambda r: r["queueUrls"] == [url_of("a"), url_of("b")] and bool(r["NextToken"])),
    Case("ListDeadLetterSourceQueues", "none", _queue(), check=lambda result: not result.get("queueUrls")),
    Case("ListDeadLetterSourceQueues", "a token without MaxResults", _queue(NextToken="YQ=="), INVALID),
    Case("StartMessageMoveTask", "back to the sources", lambda _: {"SourceArn": arn_of("dead")}, before=_redrive,
         check=has(TaskHandle="task-0")),
    Case("StartMessageMoveTask", "to another queue, at a rate", lambda _: {"SourceArn": arn_of("dead"),
         "DestinationArn": arn_of("orders"), "MaxNumberOfMessagesPerSecond": 10}, before=_redrive,
         check=has(TaskHandle="task-0")),
    Case("StartMessageMoveTask", "a source that is not there", lambda _: {"SourceArn": arn_of("nowhere")},
         "ResourceNotFoundException", status=404),
    Case("StartMessageMoveTask", "an ARN that is none", lambda _: {"SourceArn": "x"}, "ResourceNotFoundException",
         status=404),
    Case("StartMessageMoveTask", "a source of another account",
         lambda _: {"SourceArn": arn_of("secret").replace(ACCOUNT, OTHER_ACCOUNT)}, "ResourceNotFoundException",
         status=404),
    Case("StartMessageMoveTask", "a destination that is not there", lambda _: {"SourceArn": arn_of("dead"),
         "DestinationArn": arn_of("nowhere")}, "ResourceNotFoundException", before=_redrive, status=404),
    Case("StartMessageMoveTask", "a source that is no dead-letter queue", lambda _: {"SourceArn": arn_of("orders")},
         INVALID),
    Case("StartMessageMoveTask", "a second one", lambda _: {"SourceArn": arn_of("dead")}, INVALID, before=_moving),
    Case("ListMessageMoveTasks", "a running one", lambda _: {"SourceArn": arn_of("dead")}, before=_moving,
         check=lambda r: [(one["TaskHandle"], one["Status"], one["SourceArn"], one["DestinationArn"],
                           one["MaxNumberOfMessagesPerSecond"], one["ApproximateNumberOfMessagesMoved"],
                           one["ApproximateNumberOfMessagesToMove"], one["StartedTimestamp"]) for one in r["Results"]]
         == [("task-0", "RUNNING", arn_of("dead"), arn_of("a"), 7, 5, 9, 1_700_000_000_123)]),
    Case("ListMessageMoveTasks", "none", lambda _: {"SourceArn": arn_of("orders")},
         check=lambda result: not result.get("Results")),
    Case("ListMessageMoveTasks", "a source that is not there", lambda _: {"SourceArn": arn_of("nowhere")},
         "ResourceNotFoundException", status=404),
    Case("CancelMessageMoveTask", "a running one", lambda _: {"TaskHandle": "task-0"}, before=_moving,
         check=has(ApproximateNumberOfMessagesMoved=0)),
    Case("CancelMessageMoveTask", "one that is not there", lambda _: {"TaskHandle": "task-9"},
         "ResourceNotFoundException", status=404),
    Case("CancelMessageMoveTask", "one that has ended", lambda _: {"TaskHandle": "task-0"}, INVALID, before=_moved),
    Case("CancelMessageMoveTask", "a handle that is none", lambda _: {"TaskHandle": "x"}, INVALID),
)  # fmt: skip


# --- limits ---


def _sized(**more: Callable[[int], Any]) -> Callable[[Scene, int], Params]:
    """Members of a call to `orders` as functions of the size."""
    return lambda scene, n: {"QueueUrl": scene.url, **{name: make(n) for name, make in more.items()}}


def _sending(**more: Callable[[int], Any]) -> Callable[[Scene, int], Params]:
    return lambda scene, n: {"MessageBody": "x", **_sized(**more)(scene, n)}


def _created(**more: Callable[[int], Any]) -> Callable[[Scene, int], Params]:
    return lambda scene, n: {"QueueName": "new", **{name: make(n) for name, make in more.items()}}


def _batch(entry: Callable[[Scene, int], Params]) -> Callable[[Scene, int], Params]:
    return lambda scene, n: {"QueueUrl": scene.url, "Entries": [{"Id": str(i), **entry(scene, i)} for i in range(n)]}


def _one_id(entry: Callable[[Scene], Params]) -> Callable[[Scene, int], Params]:
    return lambda scene, n: {"QueueUrl": scene.url, "Entries": [{"Id": "i" * n, **entry(scene)}]}


def _permission(**more: Callable[[int], Any]) -> Callable[[Scene, int], Params]:
    return lambda scene, n: {"QueueUrl": scene.url, **PERMISSION, **{name: make(n) for name, make in more.items()}}


def _tags(count: int) -> dict[str, str]:
    return {f"t{n}": "" for n in range(count)}


def _policy_of_bytes(size: int) -> str:
    text = '{"Statement":[],"Id":"%s"}'
    return text % ("x" * (size - len(text) + 2))


_RANGES: dict[str, tuple[int, int]] = {
    "DelaySeconds": (0, 900),
    "MaximumMessageSize": (1_024, 1_048_576),
    "MessageRetentionPeriod": (60, 1_209_600),
    "ReceiveMessageWaitTimeSeconds": (0, 20),
    "VisibilityTimeout": (0, 43_200),
    "KmsDataKeyReusePeriodSeconds": (60, 86_400),
}
_MANY = SIMPLE + "TooManyEntriesInBatchRequest"
_NONE = SIMPLE + "EmptyBatchRequest"
_BAD_ID = SIMPLE + "InvalidBatchEntryId"

LIMITS: tuple[Limit, ...] = (
    Limit("SendMessage", "MessageBody, bytes", 1, 2**20, _sized(MessageBody=lambda n: "x" * n), below=MISSING),
    Limit("SendMessage", "DelaySeconds", 0, 900, _sending(DelaySeconds=lambda n: n)),
    Limit("SendMessage", "MessageGroupId, characters", 1, 128, _sending(MessageGroupId=lambda n: "g" * n)),
    Limit("SendMessage", "FIFO, MessageGroupId, characters", 1, 128,
          lambda _, n: {**MESSAGE, "QueueUrl": url_of("line.fifo"), "MessageGroupId": "g" * n}),
    Limit("SendMessage", "FIFO, MessageDeduplicationId, characters", 1, 128,
          lambda _, n: {**MESSAGE, "QueueUrl": url_of("line.fifo"), "MessageDeduplicationId": "d" * n}),
    Limit("SendMessage", "MessageAttributes", 0, 10,
          _sending(MessageAttributes=lambda n: {f"a{i}": TEXT for i in range(n)}), has_below=False),
    Limit("SendMessage", "message attribute name, characters", 1, 256,
          _sending(MessageAttributes=lambda n: {"a" * n: TEXT})),
    Limit("SendMessageBatch", "Entries", 1, 10, _batch(lambda _, i: {"MessageBody": "x"}), _MANY, _NONE),
    Limit("SendMessageBatch", "Id, characters", 1, 80, _one_id(lambda _: {"MessageBody": "x"}), _BAD_ID),
    Limit("SendMessageBatch", "all messages, bytes", 2, 2**20,
          lambda scene, n: {"QueueUrl": scene.url, "Entries": [{"Id": "a", "MessageBody": "x"},
                                                               {"Id": "b", "MessageBody": "x" * (n - 1)}]},
          SIMPLE + "BatchRequestTooLong", has_below=False),
    Limit("ReceiveMessage", "MaxNumberOfMessages", 1, 10, _sized(MaxNumberOfMessages=lambda n: n)),
    Limit("ReceiveMessage", "WaitTimeSeconds", 0, 20, _sized(WaitTimeSeconds=lambda n: n)),
    Limit("ReceiveMessage", "VisibilityTimeout", 0, 43_200, _sized(VisibilityTimeout=lambda n: n)),
    Limit("ReceiveMessage", "FIFO, ReceiveRequestAttemptId, characters", 1, 128,
          lambda _, n: {"QueueUrl": url_of("line.fifo"), "ReceiveRequestAttemptId": "a" * n}),
    Limit("DeleteMessageBatch", "Entries", 1, 10, _batch(lambda scene, _: {"ReceiptHandle": scene.handle}),
          _MANY, _NONE),
    Limit("DeleteMessageBatch", "Id, characters", 1, 80, _one_id(lambda s: {"ReceiptHandle": s.handle}), _BAD_ID),
    Limit("ChangeMessageVisibility", "VisibilityTimeout", 0, 43_200,
          lambda scene, n: {"QueueUrl": scene.url, "ReceiptHandle": scene.handle, "VisibilityTimeout": n}),
    Limit("ChangeMessageVisibilityBatch", "Entries", 1, 10,
          _batch(lambda scene, _: {"ReceiptHandle": scene.handle, "VisibilityTimeout": 1}), _MANY, _NONE),
    Limit("ChangeMessageVisibilityBatch", "Id, characters", 1, 80,
          _one_id(lambda scene: {"ReceiptHandle": scene.handle, "VisibilityTimeout": 1}), _BAD_ID),
    Limit("CreateQueue", "QueueName, characters", 1, 80, _created(QueueName=lambda n: "q" * n), below=MISSING),
    Limit("CreateQueue", "FIFO, QueueName, characters with the suffix", 6, 80,
          lambda _, n: {"QueueName": "q" * (n - 5) + ".fifo", "Attributes": FIFO}),
    Limit("CreateQueue", "tags", 0, 50, _created(tags=_tags), has_below=False),
    *(
        Limit("SetQueueAttributes", name, low, high,
              lambda scene, n, name=name: {"QueueUrl": scene.url, "Attributes": {name: str(n)}}, BAD_VALUE)
        for name, (low, high) in _RANGES.items()
    ),
    Limit("SetQueueAttributes", "Policy, bytes", 24, 8_192,
          _sized(Attributes=lambda n: {"Policy": _policy_of_bytes(n)}), BAD_VALUE, has_below=False),
    Limit("SetQueueAttributes", "Policy, statements", 0, 20,
          _sized(Attributes=lambda n: {"Policy": json.dumps({"Statement": [{}] * n})}), "OverLimit", has_below=False,
          status=403),
    Limit("SetQueueAttributes", "RedrivePolicy, maxReceiveCount", 1, 1_000,
          _sized(Attributes=lambda n: {"RedrivePolicy": json.dumps({"deadLetterTargetArn": arn_of("dead"),
                                                                    "maxReceiveCount": n})}), BAD_VALUE),
    Limit("SetQueueAttributes", "RedriveAllowPolicy, sourceQueueArns", 1, 10,
          _sized(Attributes=lambda n: {"RedriveAllowPolicy": json.dumps(
              {"redrivePermission": "byQueue", "sourceQueueArns": [arn_of(f"s{i}") for i in range(n)]})}), BAD_VALUE),
    Limit("TagQueue", "Tags, in one call", 1, 50, _sized(Tags=_tags), below=MISSING),
    Limit("TagQueue", "tag key, characters", 1, 128, _sized(Tags=lambda n: {"k" * n: "v"})),
    Limit("TagQueue", "tag value, characters", 0, 256, _sized(Tags=lambda n: {"k": "v" * n}), has_below=False),
    Limit("AddPermission", "Label, characters", 1, 80, _permission(Label=lambda n: "l" * n), below=MISSING),
    Limit("AddPermission", "Actions", 1, 7, _permission(Actions=lambda n: list(GRANTABLE[:n])), "OverLimit", MISSING,
          status=403),
    Limit("AddPermission", "AWSAccountIds", 1, 50, _permission(AWSAccountIds=lambda n: [OTHER_ACCOUNT] * n),
          "OverLimit", MISSING, status=403),
    Limit("StartMessageMoveTask", "MaxNumberOfMessagesPerSecond", 1, 500,
          lambda _, n: {"SourceArn": arn_of("dead"), "MaxNumberOfMessagesPerSecond": n}, before=_redrive),
    Limit("ListMessageMoveTasks", "MaxResults", 1, 10, lambda _, n: {"SourceArn": arn_of("dead"), "MaxResults": n}),
    Limit("ListQueues", "MaxResults", 1, 1_000, lambda _, n: {"MaxResults": n}),
    Limit("ListDeadLetterSourceQueues", "MaxResults", 1, 1_000, _sized(MaxResults=lambda n: n)),
)  # fmt: skip
