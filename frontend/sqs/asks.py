"""The parameters of each action as typed records: decoding is the type check.

Members have the names of the SQS model. Unknown members are ignored, as SQS does. Ranges and contents are checked in
`validation.py`.
"""

from __future__ import annotations

import msgspec


class Ask(msgspec.Struct, rename="pascal", gc=False, kw_only=True):
    """Base of the parameters."""


class AttributeIn(Ask):
    """A message attribute; binary_value is base64."""

    data_type: str | None = None
    string_value: str | None = None
    binary_value: str | None = None
    string_list_values: list[str] | None = None
    binary_list_values: list[str] | None = None


class MessageFields(Ask):
    """What a message consists of, single or in a batch, by whichever way it came in."""

    message_body: str | None = None
    delay_seconds: int | None = None
    message_attributes: dict[str, AttributeIn] | None = None
    message_system_attributes: dict[str, AttributeIn] | None = None
    message_deduplication_id: str | None = None
    message_group_id: str | None = None
    # A word of `extensions.ACKS_WORDS`. Clients of SQS say it in a message attribute, REST by this field.
    penstock_acks: str | None = None
    # Of the HTTP request (`X-Amzn-Trace-Id`): the AWSTraceHeader of a message that names none itself.
    trace_header: str | None = None


class QueueAsk(Ask):
    queue_url: str | None = None


class SendMessage(MessageFields):
    queue_url: str | None = None


class SendEntry(MessageFields):
    id: str | None = None


class SendMessageBatch(QueueAsk):
    entries: list[SendEntry] | None = None


class ReceiveMessage(QueueAsk):
    max_number_of_messages: int | None = None
    visibility_timeout: int | None = None
    wait_time_seconds: int | None = None
    attribute_names: list[str] | None = None
    message_system_attribute_names: list[str] | None = None
    message_attribute_names: list[str] | None = None
    receive_request_attempt_id: str | None = None


class DeleteMessage(QueueAsk):
    receipt_handle: str | None = None


class ReceiptEntry(Ask):
    id: str | None = None
    receipt_handle: str | None = None


class DeleteMessageBatch(QueueAsk):
    entries: list[ReceiptEntry] | None = None


class ChangeMessageVisibility(QueueAsk):
    receipt_handle: str | None = None
    visibility_timeout: int | None = None


class VisibilityEntry(ReceiptEntry):
    visibility_timeout: int | None = None


class ChangeMessageVisibilityBatch(QueueAsk):
    entries: list[VisibilityEntry] | None = None


class CreateQueue(Ask):
    queue_name: str | None = None
    attributes: dict[str, str] | None = None
    tags: dict[str, str] | None = msgspec.field(default=None, name="tags")


class GetQueueUrl(Ask):
    queue_name: str | None = None
    queue_owner_account_id: str | None = msgspec.field(default=None, name="QueueOwnerAWSAccountId")


class ListQueues(Ask):
    queue_name_prefix: str | None = None
    max_results: int | None = None
    next_token: str | None = None


class GetQueueAttributes(QueueAsk):
    attribute_names: list[str] | None = None


class SetQueueAttributes(QueueAsk):
    attributes: dict[str, str] | None = None


class TagQueue(QueueAsk):
    tags: dict[str, str] | None = None


class UntagQueue(QueueAsk):
    tag_keys: list[str] | None = None


class AddPermission(QueueAsk):
    label: str | None = None
    account_ids: list[str] | None = msgspec.field(default=None, name="AWSAccountIds")
    actions: list[str] | None = None


class RemovePermission(QueueAsk):
    label: str | None = None


class ListDeadLetterSourceQueues(QueueAsk):
    max_results: int | None = None
    next_token: str | None = None


class StartMessageMoveTask(Ask):
    source_arn: str | None = None
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None


class ListMessageMoveTasks(Ask):
    source_arn: str | None = None
    max_results: int | None = None


class CancelMessageMoveTask(Ask):
    task_handle: str | None = None
