"""How each limit is asked that `documented.py` lists: the call as a function of the size. The sizes stand there."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.frontend.compat.scene import (
    BAD_VALUE,
    FIFO,
    GRANTABLE,
    INVALID,
    MESSAGE,
    MISSING,
    NOT_FOUND,
    PERMISSION,
    SIMPLE,
    TEXT,
    Limit,
    Params,
    Scene,
    arn_of,
    policed,
    tagged,
    with_sources,
)
from tests.support.frontend_plane import OTHER_ACCOUNT

Asked = Callable[[Scene, int], Params]
_MANY = SIMPLE + "TooManyEntriesInBatchRequest"
_NONE = SIMPLE + "EmptyBatchRequest"
_BAD_ID = SIMPLE + "InvalidBatchEntryId"
_TOO_LONG = SIMPLE + "BatchRequestTooLong"
_NUMBERS = (
    "DelaySeconds",
    "MaximumMessageSize",
    "MessageRetentionPeriod",
    "ReceiveMessageWaitTimeSeconds",
    "VisibilityTimeout",
    "KmsDataKeyReusePeriodSeconds",
)


# --- calls whose members are functions of the size ---


def _sized(**more: Callable[[int], Any]) -> Asked:
    return lambda scene, n: {"QueueUrl": scene.url, **_made(more, n)}


def _sending(**more: Callable[[int], Any]) -> Asked:
    return lambda scene, n: {"QueueUrl": scene.url, "MessageBody": "x", **_made(more, n)}


def _sending_fifo(**more: Callable[[int], Any]) -> Asked:
    return lambda scene, n: {"QueueUrl": scene.fifo_url, **MESSAGE, **_made(more, n)}


def _entry(**more: Callable[[int], Any]) -> Asked:
    """A batch of one message."""
    return lambda scene, n: {"QueueUrl": scene.url, "Entries": [{"Id": "a", "MessageBody": "x", **_made(more, n)}]}


def _fifo_entry(**more: Callable[[int], Any]) -> Asked:
    return lambda scene, n: {"QueueUrl": scene.fifo_url, "Entries": [{"Id": "a", **MESSAGE, **_made(more, n)}]}


def _created(**more: Callable[[int], Any]) -> Asked:
    return lambda _, n: {"QueueName": "new", **_made(more, n)}


def _permission(**more: Callable[[int], Any]) -> Asked:
    return lambda scene, n: {"QueueUrl": scene.url, **PERMISSION, **_made(more, n)}


def _batch(entry: Asked) -> Asked:
    return lambda scene, n: {"QueueUrl": scene.url, "Entries": [{"Id": str(i), **entry(scene, i)} for i in range(n)]}


def _one_id(entry: Callable[[Scene], Params]) -> Asked:
    return lambda scene, n: {"QueueUrl": scene.url, "Entries": [{"Id": "i" * n, **entry(scene)}]}


def _made(more: dict[str, Callable[[int], Any]], n: int) -> Params:
    return {name: make(n) for name, make in more.items()}


# --- members ---


def _tags(count: int) -> dict[str, str]:
    return {f"t{n}": "" for n in range(count)}


def _attributes(count: int) -> Params:
    return {f"a{i}": TEXT for i in range(count)}


def _labelled(size: int) -> Params:
    return {"a": {"DataType": "String." + "t" * (size - 7), "StringValue": "x"}}


def _number(power: int, sign: str = "") -> Params:
    return {"a": {"DataType": "Number", "StringValue": f"{sign}1E{power}"}}


def _trace(size: int) -> Params:
    return {"AWSTraceHeader": {"DataType": "String", "StringValue": "t" * size}}


def _policy(*statements: Params) -> dict[str, str]:
    """Statements that are whole, but for what is given."""
    whole = {"Effect": "Allow", "Principal": {"AWS": OTHER_ACCOUNT}, "Action": "SQS:SendMessage", "Resource": "*"}
    written = [{**whole, **statement} for statement in statements]
    return {"Policy": json.dumps({"Version": "2012-10-17", "Statement": written})}


def _policy_of_bytes(size: int) -> dict[str, str]:
    """White space fills up the smallest that there is."""
    text = _policy({})["Policy"]
    return {"Policy": text + " " * (size - len(text))}


def _redrive(receives: int) -> dict[str, str]:
    return {"RedrivePolicy": json.dumps({"deadLetterTargetArn": arn_of("dead"), "maxReceiveCount": receives})}


def _allowed(count: int) -> dict[str, str]:
    sources = [arn_of(f"s{i}") for i in range(count)]
    return {"RedriveAllowPolicy": json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": sources})}


def _conditions(count: int) -> Params:
    """Two keys of one operator are two conditions."""
    keys = {f"aws:RequestTag/t{n}": "x" for n in range(count)}
    halves = (dict(list(keys.items())[::2]), dict(list(keys.items())[1::2]))
    named = zip(("StringEquals", "StringLike"), halves, strict=True)
    return {"Condition": {operator: half for operator, half in named if half}}


def _of_attributes(action: str, asked: Callable[..., Asked]) -> tuple[Limit, ...]:
    """What CreateQueue and SetQueueAttributes refuse in the same way; `asked` as `_sized`."""

    def over_limit(what: str, make: Callable[[int], dict[str, str]]) -> Limit:
        return Limit(action, what, asked(Attributes=make), "OverLimit", has_below=False, status=403)

    return (
        *(Limit(action, name, asked(Attributes=lambda n, name=name: {name: str(n)}), BAD_VALUE) for name in _NUMBERS),
        Limit(action, "Policy, bytes", asked(Attributes=_policy_of_bytes), BAD_VALUE, has_below=False),
        over_limit("Policy, statements", lambda n: _policy(*[{}] * n)),
        over_limit("Policy, principals of a statement",
                   lambda n: _policy({"Principal": {"AWS": [f"{i:012}" for i in range(n)]}})),
        over_limit("Policy, actions of a statement",
                   lambda n: _policy({"Action": [f"SQS:{one}" for one in GRANTABLE[:n]]})),
        over_limit("Policy, conditions of a statement", lambda n: _policy(_conditions(n))),
        Limit(action, "RedrivePolicy, maxReceiveCount", asked(Attributes=_redrive)),
        Limit(action, "RedriveAllowPolicy, sourceQueueArns", asked(Attributes=_allowed), BAD_VALUE),
    )  # fmt: skip


# --- calls that find something of that size ---


def _under_a_maximum(asked: Asked) -> Asked:
    def params(scene: Scene, n: int) -> Params:
        scene.front.add_queue("orders", attributes={"MaximumMessageSize": "1024"})
        return asked(scene, n)

    return params


def _url_of_name(scene: Scene, n: int) -> Params:
    name = "q" * n
    if 0 < n <= 80:
        scene.front.add_queue(name)
    return {"QueueName": name}


def _owner(scene: Scene, n: int) -> Params:
    account_id = "123456789012345"[:n]
    return {"QueueName": "orders", "QueueOwnerAWSAccountId": account_id}


def _tag_more(scene: Scene, n: int) -> Params:
    """The queue has all of them but one."""
    tagged(n - 1)(scene)
    return {"QueueUrl": scene.url, "Tags": {"one more": ""} if n else {}}


def _permit_more(scene: Scene, n: int) -> Params:
    policed(n - 1)(scene)
    return {"QueueUrl": scene.url, **PERMISSION}


def _known_label(scene: Scene, n: int) -> Params:
    scene.front.add_queue("orders", attributes=_policy({"Sid": "l" * n}))
    return {"QueueUrl": scene.url, "Label": "l" * n}


def _held(scene: Scene, n: int) -> Params:
    """It was received 20 seconds ago."""
    scene.front.clock.now_s += 20
    return {"ReceiptHandle": scene.handle, "VisibilityTimeout": n - 20}


def _of_a_message(
    action: str, asked: Callable[..., Asked], fifo: Callable[..., Asked], *, in_entry: bool
) -> tuple[Limit, ...]:
    """What a message alone and an entry of a batch are refused for in the same way; `asked` as `_sending`."""

    def limit(what: str, params: Asked, below: str = "", has_below: bool = True) -> Limit:
        return Limit(action, what, params, below=below, has_below=has_below, in_entry=in_entry)

    return (
        limit("MessageBody, bytes, MaximumMessageSize 1,024",
              _under_a_maximum(asked(MessageBody=lambda n: "x" * n)), below=MISSING),
        limit("DelaySeconds", asked(DelaySeconds=lambda n: n)),
        limit("MessageGroupId, characters", asked(MessageGroupId=lambda n: "g" * n)),
        limit("FIFO, MessageGroupId, characters", fifo(MessageGroupId=lambda n: "g" * n)),
        limit("FIFO, MessageDeduplicationId, characters", fifo(MessageDeduplicationId=lambda n: "d" * n)),
        limit("MessageAttributes", asked(MessageAttributes=_attributes), has_below=False),
        limit("attribute name, characters", asked(MessageAttributes=lambda n: {"a" * n: TEXT})),
        limit("attribute type with a label, characters", asked(MessageAttributes=_labelled)),
        limit("attribute of type Number, power of ten", asked(MessageAttributes=_number), has_below=False),
        limit("attribute of type Number, negative, power of ten",
              asked(MessageAttributes=lambda n: _number(n, "-")), has_below=False),
        limit("AWSTraceHeader, characters", asked(MessageSystemAttributes=_trace)),
    )  # fmt: skip


LIMITS: tuple[Limit, ...] = (
    # --- messages ---
    Limit("SendMessage", "MessageBody, bytes", _sized(MessageBody=lambda n: "x" * n), below=MISSING),
    Limit("SendMessage", "MessageBody with its attributes, bytes",
          lambda scene, n: {"QueueUrl": scene.url, "MessageBody": "x" * (n - len("aStringx")),
                            "MessageAttributes": {"a": TEXT}}, below=MISSING),
    *_of_a_message("SendMessage", _sending, _sending_fifo, in_entry=False),
    Limit("SendMessageBatch", "Entries", _batch(lambda _, i: {"MessageBody": "x"}), _MANY, _NONE),
    Limit("SendMessageBatch", "all messages, bytes",
          lambda scene, n: {"QueueUrl": scene.url, "Entries": [{"Id": "a", "MessageBody": "x"},
                                                               {"Id": "b", "MessageBody": "x" * (n - 1)}]},
          _TOO_LONG, has_below=False),
    Limit("SendMessageBatch", "Id, characters", _one_id(lambda _: {"MessageBody": "x"}), _BAD_ID),
    Limit("SendMessageBatch", "MessageBody, bytes", _entry(MessageBody=lambda n: "x" * n), _TOO_LONG, has_below=False),
    *_of_a_message("SendMessageBatch", _entry, _fifo_entry, in_entry=True),
    Limit("ReceiveMessage", "MaxNumberOfMessages", _sized(MaxNumberOfMessages=lambda n: n)),
    Limit("ReceiveMessage", "WaitTimeSeconds", _sized(WaitTimeSeconds=lambda n: n)),
    Limit("ReceiveMessage", "VisibilityTimeout", _sized(VisibilityTimeout=lambda n: n)),
    Limit("ReceiveMessage", "FIFO, ReceiveRequestAttemptId, characters",
          lambda scene, n: {"QueueUrl": scene.fifo_url, "ReceiveRequestAttemptId": "a" * n}),
    Limit("DeleteMessageBatch", "Entries", _batch(lambda scene, _: {"ReceiptHandle": scene.handle}), _MANY, _NONE),
    Limit("DeleteMessageBatch", "Id, characters", _one_id(lambda s: {"ReceiptHandle": s.handle}), _BAD_ID),
    Limit("ChangeMessageVisibility", "VisibilityTimeout",
          lambda scene, n: {"QueueUrl": scene.url, "ReceiptHandle": scene.handle, "VisibilityTimeout": n}),
    Limit("ChangeMessageVisibilityBatch", "Entries",
          _batch(lambda scene, _: {"ReceiptHandle": scene.handle, "VisibilityTimeout": 1}), _MANY, _NONE),
    Limit("ChangeMessageVisibilityBatch", "Id, characters",
          _one_id(lambda scene: {"ReceiptHandle": scene.handle, "VisibilityTimeout": 1}), _BAD_ID),
    Limit("ChangeMessageVisibilityBatch", "VisibilityTimeout",
          lambda scene, n: {"QueueUrl": scene.url, "Entries": [{"Id": "a", "ReceiptHandle": scene.handle,
                                                                "VisibilityTimeout": n}]}, in_entry=True),
    Limit("ChangeMessageVisibility", "VisibilityTimeout, from the receive on",
          lambda scene, n: {"QueueUrl": scene.url, **_held(scene, n)}, has_below=False),
    Limit("ChangeMessageVisibilityBatch", "VisibilityTimeout, from the receive on",
          lambda scene, n: {"QueueUrl": scene.url, "Entries": [{"Id": "a", **_held(scene, n)}]}, has_below=False,
          in_entry=True),
    # --- queues ---
    Limit("CreateQueue", "QueueName, characters", _created(QueueName=lambda n: "q" * n), below=MISSING),
    Limit("CreateQueue", "FIFO, QueueName, characters with the suffix",
          lambda _, n: {"QueueName": "q" * (n - 5) + ".fifo", "Attributes": FIFO}),
    *_of_attributes("CreateQueue", _created),
    *_of_attributes("SetQueueAttributes", _sized),
    Limit("CreateQueue", "tags", _created(tags=_tags), has_below=False),
    Limit("CreateQueue", "tag key, characters", _created(tags=lambda n: {"k" * n: "v"})),
    Limit("CreateQueue", "tag value, characters", _created(tags=lambda n: {"k": "v" * n}), has_below=False),
    Limit("TagQueue", "Tags, in one call", _sized(Tags=_tags), below=MISSING),
    Limit("TagQueue", "Tags, of the queue then", _tag_more, below=MISSING),
    Limit("TagQueue", "tag key, characters", _sized(Tags=lambda n: {"k" * n: "v"})),
    Limit("TagQueue", "tag value, characters", _sized(Tags=lambda n: {"k": "v" * n}), has_below=False),
    Limit("UntagQueue", "TagKeys", _sized(TagKeys=lambda n: [f"k{i}" for i in range(n)])),
    Limit("GetQueueUrl", "QueueName, characters", _url_of_name, NOT_FOUND, MISSING),
    Limit("GetQueueUrl", "QueueOwnerAWSAccountId, digits", _owner, "InvalidAddress"),
    Limit("ListQueues", "MaxResults", lambda _, n: {"MaxResults": n}),
    Limit("ListDeadLetterSourceQueues", "MaxResults", _sized(MaxResults=lambda n: n)),
    Limit("AddPermission", "Label, characters", _permission(Label=lambda n: "l" * n), below=MISSING),
    Limit("AddPermission", "Actions", _permission(Actions=lambda n: list(GRANTABLE[:n])), "OverLimit", MISSING,
          status=403),
    Limit("AddPermission", "AWSAccountIds", _permission(AWSAccountIds=lambda n: [OTHER_ACCOUNT] * n),
          "OverLimit", INVALID, status=403),
    Limit("AddPermission", "AWSAccountIds, digits of one", _permission(AWSAccountIds=lambda n: ["1" * n])),
    Limit("AddPermission", "permissions of a queue", _permit_more, "OverLimit", has_below=False, status=403),
    Limit("RemovePermission", "Label, characters", _known_label, below=MISSING),
    # --- move tasks ---
    Limit("StartMessageMoveTask", "MaxNumberOfMessagesPerSecond",
          lambda _, n: {"SourceArn": arn_of("dead"), "MaxNumberOfMessagesPerSecond": n}, before=with_sources),
    Limit("ListMessageMoveTasks", "MaxResults", lambda _, n: {"SourceArn": arn_of("dead"), "MaxResults": n}),
)  # fmt: skip
