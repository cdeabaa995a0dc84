"""The parameters of each action as typed records: decoding is the type check.

Members have the names of the SQS model. Unknown members are ignored, as SQS does. Ranges and contents are checked by
`frontend/messages` and `frontend/queues`.
"""

from __future__ import annotations

import msgspec


class SqsRequest(msgspec.Struct, rename="pascal", gc=False, kw_only=True):
    """Base of the parameters."""


class AttributeIn(SqsRequest):
    """A message attribute; binary_value is base64."""

    data_type: str | None = None
    string_value: str | None = None
    binary_value: str | None = None
    string_list_values: list[str] | None = None
    binary_list_values: list[str] | None = None


class MessageFields(SqsRequest):
    """What a message consists of, single or in a batch."""

    message_body: str | None = None
    delay_seconds: int | None = None
    message_attributes: dict[str, AttributeIn] | None = None
    message_system_attributes: dict[str, AttributeIn] | None = None
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class QueueRequest(SqsRequest):
    queue_url: str | None = None


class SendMessage(MessageFields):
    queue_url: str | None = None


class SendEntry(MessageFields):
    id: str | None = None


class SendMessageBatch(QueueRequest):
    entries: list[SendEntry] | None = None


class ReceiveMessage(QueueRequest):
    max_number_of_messages: int | None = None
    visibility_timeout: int | None = None
    wait_time_seconds: int | None = None
    attribute_names: list[str] | None = None
    message_system_attribute_names: list[str] | None = None
    message_attribute_names: list[str] | None = None
    receive_request_attempt_id: str | None = None


class DeleteMessage(QueueRequest):
    receipt_handle: str | None = None


class ReceiptEntry(SqsRequest):
    id: str | None = None
    receipt_handle: str | None = None


class DeleteMessageBatch(QueueRequest):
    entries: list[ReceiptEntry] | None = None


class ChangeMessageVisibility(QueueRequest):
    receipt_handle: str | None = None
    visibility_timeout: int | None = None


class VisibilityEntry(ReceiptEntry):
    visibility_timeout: int | None = None


class ChangeMessageVisibilityBatch(QueueRequest):
    entries: list[VisibilityEntry] | None = None


class CreateQueue(SqsRequest):
    queue_name: str | None = None
    attributes: dict[str, str] | None = None
    tags: dict[str, str] | None = msgspec.field(default=None, name="tags")


class GetQueueUrl(SqsRequest):
    queue_name: str | None = None
    queue_owner_account_id: str | None = msgspec.field(default=None, name="QueueOwnerAWSAccountId")


class ListQueues(SqsRequest):
    queue_name_prefix: str | None = None
    max_results: int | None = None
    next_token: str | None = None


class GetQueueAttributes(QueueRequest):
    attribute_names: list[str] | None = None


class SetQueueAttributes(QueueRequest):
    attributes: dict[str, str] | None = None


class TagQueueRequest(QueueRequest):
    tags: dict[str, str] | None = None


class UntagQueue(QueueRequest):
    tag_keys: list[str] | None = None


class AddPermission(QueueRequest):
    label: str | None = None
    account_ids: list[str] | None = msgspec.field(default=None, name="AWSAccountIds")
    actions: list[str] | None = None


class RemovePermission(QueueRequest):
    label: str | None = None


class ListDeadLetterSourceQueues(QueueRequest):
    max_results: int | None = None
    next_token: str | None = None


class StartMessageMoveTask(SqsRequest):
    source_arn: str | None = None
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None


class ListMessageMoveTasks(SqsRequest):
    source_arn: str | None = None
    max_results: int | None = None


class CancelMessageMoveTask(SqsRequest):
    task_handle: str | None = None
