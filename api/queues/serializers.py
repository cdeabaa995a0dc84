"""JSON of queues. Settings have names of their own here (units last); SQS attribute names stay on the SQS side."""

from __future__ import annotations

import json
from typing import Any

from rest_framework import serializers

from api import limits
from api.people.strict import (
    StrictBooleanField,
    StrictCharField,
    StrictChoiceField,
    StrictIntegerField,
    StrictSerializer,
)
from api.queues import layout
from api.queues.attributes import format_arn, is_fifo, parse_arn, redrive_of
from api.queues.models import MessageMoveTask, MoveStatus, Queue, QueueStatus
from api.queues.policies import PolicyFields, policies_json, policy_attributes
from api.settings.environment import environment
from frontend.errors import RequestError
from frontend.message_browser.filters import filter_json, filter_of
from frontend.queues.encryption import KMS_KEY, REUSE_PERIOD, REUSE_PERIOD_S_DEFAULT

# REST field -> SQS attribute. All are integers.
SETTINGS: dict[str, str] = {
    "visibility_timeout_seconds": "VisibilityTimeout",
    "delay_seconds": "DelaySeconds",
    "retention_seconds": "MessageRetentionPeriod",
    "receive_wait_seconds": "ReceiveMessageWaitTimeSeconds",
    "message_bytes_max": "MaximumMessageSize",
}
# Likewise, of what a queue need not have.
_SPREAD = {"partitions": "Penstock.Partitions", "priority_levels": "Penstock.PriorityLevels"}
# REST word -> SQS word of the same thing.
_SCOPES = {"queue": "queue", "group": "messageGroup"}
_THROUGHPUT = {"queue": "perQueue", "group": "perMessageGroupId"}
_PERMISSIONS = {"all": "allowAll", "none": "denyAll", "listed": "byQueue"}
_POLICY = "Policy"
_ENCRYPTION = {"encryption_key": KMS_KEY, "data_key_reuse_seconds": REUSE_PERIOD}
_PAUSED = "paused"
_FIFO_FIELDS = ("content_based_deduplication", "deduplication_scope", "throughput_limit")


class DeadLetterQueueSerializer(StrictSerializer):
    """Where a message goes that was received so often and not deleted."""

    name = StrictCharField(max_length=limits.QUEUE_NAME_CHARACTERS_MAX)
    max_receives = StrictIntegerField(
        min_value=1, max_value=limits.REDRIVE_RECEIVES_MAX, default=limits.REDRIVE_RECEIVES_DEFAULT
    )


class DeadLetterSourcesSerializer(StrictSerializer):
    """Which queues may have this one as their dead-letter queue."""

    allow = StrictChoiceField(choices=list(_PERMISSIONS))
    queues = serializers.ListField(
        child=StrictCharField(max_length=limits.QUEUE_NAME_CHARACTERS_MAX),
        required=False,
        max_length=limits.REDRIVE_SOURCES_MAX,
    )


class QueueSettingsSerializer(PolicyFields, StrictSerializer):
    """Fields of a change. What is not given stays; the ranges are those of SQS."""

    visibility_timeout_seconds = StrictIntegerField(required=False, min_value=0, max_value=43_200)
    delay_seconds = StrictIntegerField(required=False, min_value=0, max_value=900)
    retention_seconds = StrictIntegerField(required=False, min_value=60, max_value=1_209_600)
    receive_wait_seconds = StrictIntegerField(required=False, min_value=0, max_value=20)
    message_bytes_max = StrictIntegerField(required=False, min_value=1_024, max_value=1_048_576)

    partitions = StrictIntegerField(required=False, min_value=1, max_value=limits.PARTITIONS_PER_LEVEL_MAX)
    priority_levels = StrictIntegerField(required=False, min_value=1, max_value=limits.PRIORITY_LEVELS_MAX)
    content_based_deduplication = StrictBooleanField(required=False)
    deduplication_scope = StrictChoiceField(choices=list(_SCOPES), required=False)
    throughput_limit = StrictChoiceField(choices=list(_THROUGHPUT), required=False)
    encryption_key = StrictCharField(required=False, allow_null=True, max_length=2_048)
    data_key_reuse_seconds = StrictIntegerField(required=False, min_value=60, max_value=86_400)
    dead_letter_queue = DeadLetterQueueSerializer(required=False, allow_null=True)
    dead_letter_sources = DeadLetterSourcesSerializer(required=False)
    policy = serializers.DictField(
        required=False,
        allow_null=True,
        help_text="A queue policy: who else may do what with the queue. null: no other account.",
    )

    def attributes(self, account_id: str) -> dict[str, str]:
        """The given settings under their SQS names."""
        given = self.validated_data
        result = {attribute: str(given[field]) for field, attribute in SETTINGS.items() if field in given}
        result |= {attribute: str(given[field]) for field, attribute in _SPREAD.items() if field in given}
        if "content_based_deduplication" in given:
            result["ContentBasedDeduplication"] = "true" if given["content_based_deduplication"] else "false"
        if "deduplication_scope" in given:
            result["DeduplicationScope"] = _SCOPES[given["deduplication_scope"]]
        if "throughput_limit" in given:
            result["FifoThroughputLimit"] = _THROUGHPUT[given["throughput_limit"]]
        result |= {name: str(given[field] or "") for field, name in _ENCRYPTION.items() if field in given}
        if "dead_letter_queue" in given:
            result["RedrivePolicy"] = _redrive_policy(account_id, given["dead_letter_queue"])
        if "dead_letter_sources" in given:
            result["RedriveAllowPolicy"] = _redrive_allow_policy(account_id, given["dead_letter_sources"])
        if "policy" in given:
            result[_POLICY] = "" if given["policy"] is None else json.dumps(given["policy"], separators=(",", ":"))
        return {**result, **policy_attributes(given)}


class QueueRequestSerializer(QueueSettingsSerializer):
    """A name that ends in `.fifo` makes a FIFO queue."""

    name = StrictCharField(max_length=limits.QUEUE_NAME_CHARACTERS_MAX)
    tags = serializers.DictField(child=StrictCharField(allow_blank=True), required=False, default=dict)

    def attributes(self, account_id: str) -> dict[str, str]:
        fifo = {"FifoQueue": "true"} if is_fifo(self.validated_data["name"]) else {}
        return {**super().attributes(account_id), **fifo}


# Of a queue in a list, whoever asks for the list.
_LISTED = ("name", "fifo", "arn")


class QueueSerializer(PolicyFields):
    """What is about FIFO queues only is null for the others.

    `partitions` and `priority_levels` are as asked for; `partitions_open` take messages now, `partitions_draining` are
    those of a FIFO queue that are emptied because others take their place.
    """

    name = serializers.CharField()
    fifo = serializers.BooleanField()
    arn = serializers.CharField()
    state = serializers.ChoiceField(choices=[state.value for state in QueueStatus if state != QueueStatus.DELETED])
    visibility_timeout_seconds = serializers.IntegerField()
    delay_seconds = serializers.IntegerField()
    retention_seconds = serializers.IntegerField()
    receive_wait_seconds = serializers.IntegerField()
    message_bytes_max = serializers.IntegerField()
    partitions = serializers.IntegerField()
    priority_levels = serializers.IntegerField()
    partitions_open = serializers.IntegerField()
    partitions_draining = serializers.IntegerField()
    content_based_deduplication = serializers.BooleanField(allow_null=True)
    deduplication_scope = serializers.ChoiceField(choices=list(_SCOPES), allow_null=True)
    throughput_limit = serializers.ChoiceField(choices=list(_THROUGHPUT), allow_null=True)
    encryption_key = serializers.CharField(allow_null=True, help_text="As it was set: id, ARN or alias of a key.")
    encryption_key_id = serializers.CharField(allow_null=True, help_text="The key of the account that this names.")
    data_key_reuse_seconds = serializers.IntegerField(allow_null=True)
    dead_letter_queue = DeadLetterQueueSerializer(allow_null=True)
    dead_letter_sources = DeadLetterSourcesSerializer()
    policy = serializers.DictField(allow_null=True, help_text="The Policy attribute of SQS.")
    tags = serializers.DictField(child=serializers.CharField())
    created_at = serializers.DateTimeField()
    modified_at = serializers.DateTimeField()
    kept_until = serializers.DateTimeField(allow_null=True, help_text="Of a deleted queue: until then restorable.")
    queue_id = serializers.UUIDField(help_text="Of this queue and of no other one, before or after it.")

    def to_representation(self, instance: Queue) -> dict[str, object]:
        settings = {field: int(instance.attributes[attribute]) for field, attribute in SETTINGS.items()}
        when = serializers.DateTimeField()
        return {
            "name": instance.name,
            "fifo": instance.fifo,
            "arn": format_arn(environment().region, instance.account_id, instance.name),
            "state": instance.state,
            **settings,
            **_spread_json(instance),
            **_fifo_json(instance),
            **_encryption_json(instance),
            **_dead_letter_json(instance),
            **policies_json(instance.attributes),
            "policy": json.loads(instance.attributes.get(_POLICY, "null")),
            "tags": instance.tags,
            "created_at": when.to_representation(instance.created_at),
            "modified_at": when.to_representation(instance.modified_at),
            "kept_until": None if instance.kept_until is None else when.to_representation(instance.kept_until),
            "queue_id": str(instance.uuid),
        }


def listed_json(queue: Queue, is_readable: bool) -> dict[str, object]:
    shown = QueueSerializer(queue).data
    return dict(shown) if is_readable else {name: shown[name] for name in _LISTED}


def _encryption_json(queue: Queue) -> dict[str, object]:
    named = queue.attributes.get(KMS_KEY)
    reuse_s = int(queue.attributes.get(REUSE_PERIOD, REUSE_PERIOD_S_DEFAULT))
    return {
        "encryption_key": named,
        "encryption_key_id": queue.encryption_key or None,
        "data_key_reuse_seconds": None if named is None else reuse_s,
    }


class ListedQueueSerializer(QueueSerializer):
    """A queue that the caller may not read by itself has its name, its ARN and whether it is FIFO, and no more."""

    def get_fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = super().get_fields()
        for name, field in fields.items():
            field.required = name in _LISTED
        return fields


class QueuePageSerializer(serializers.Serializer):
    queues = ListedQueueSerializer(many=True)
    next_page_token = serializers.CharField(allow_null=True)


class MoveRequestSerializer(StrictSerializer):
    """`destination` is a queue of the account; not given: every message goes back to the queue it came from.

    filter                what to move, in the words of the message browser's find; not given: everything
    dry_run               count what would be moved, and move nothing
    messages_max          end when so many were moved: a few before the rest
    returned_max          fail when more than so many of the moved messages died again and came back
    returned_percent_max  the same, of a hundred moved (once a hundred were moved)
    """

    destination = StrictCharField(
        max_length=limits.QUEUE_NAME_CHARACTERS_MAX, required=False, allow_null=True, default=None
    )
    messages_per_second = StrictIntegerField(
        min_value=1, max_value=limits.MOVE_MESSAGES_PER_S_MAX, required=False, allow_null=True, default=None
    )
    messages_max = StrictIntegerField(
        min_value=1, max_value=limits.MOVE_MESSAGES_MAX, required=False, allow_null=True, default=None
    )
    filter = serializers.DictField(required=False, allow_null=True, default=None)
    dry_run = StrictBooleanField(required=False, default=False)
    returned_max = StrictIntegerField(
        min_value=0, max_value=limits.MOVE_RETURNED_MAX, required=False, allow_null=True, default=None
    )
    returned_percent_max = StrictIntegerField(min_value=0, max_value=99, required=False, allow_null=True, default=None)

    def validate_filter(self, value: dict[str, object] | None) -> dict[str, object] | None:
        if value is None:
            return None
        try:
            return filter_json(filter_of(value)) or None
        except RequestError as refusal:
            raise serializers.ValidationError(refusal.message) from None


_COUNTS_OF_SCANS = ("scanned", "matched", "skipped", "returned")
_SQS_MOVES_NULL = "Null of a task of SQS, which takes what comes and does not look through the queue."


class MoveSerializer(serializers.Serializer):
    id = serializers.UUIDField()
    status = serializers.ChoiceField(choices=[*(status.value.lower() for status in MoveStatus), _PAUSED])
    source: Any = serializers.CharField()  # Field has an attribute of that name, which holds no field
    destination = serializers.CharField(allow_null=True)
    messages_per_second = serializers.IntegerField(allow_null=True)
    messages_max = serializers.IntegerField(allow_null=True)
    filter = serializers.DictField(allow_null=True)
    dry_run = serializers.BooleanField()
    returned_max = serializers.IntegerField(allow_null=True)
    returned_percent_max = serializers.IntegerField(allow_null=True)
    scanned = serializers.IntegerField(allow_null=True, help_text=f"Messages looked at. {_SQS_MOVES_NULL}")
    matched = serializers.IntegerField(allow_null=True, help_text=f"Messages that are wanted. {_SQS_MOVES_NULL}")
    skipped = serializers.IntegerField(allow_null=True, help_text=f"Messages that stay. {_SQS_MOVES_NULL}")
    returned = serializers.IntegerField(
        allow_null=True, help_text=f"Moved messages that died again and came back. {_SQS_MOVES_NULL}"
    )
    moved = serializers.IntegerField()
    to_move = serializers.IntegerField(allow_null=True)
    failure_reason = serializers.CharField(allow_null=True)
    started_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)

    def to_representation(self, instance: MessageMoveTask) -> dict[str, object]:
        when = serializers.DateTimeField()
        return {
            "id": str(instance.uuid),
            "status": _PAUSED if _rests(instance) else instance.status.lower(),
            "source": _name_of(instance.source_arn),
            "destination": _name_of(instance.destination_arn) if instance.destination_arn else None,
            "messages_per_second": instance.messages_per_s,
            "messages_max": instance.messages_max,
            "filter": instance.filter,
            "dry_run": instance.dry_run,
            "returned_max": instance.returned_max,
            "returned_percent_max": instance.returned_percent_max,
            **{name: getattr(instance, name) if instance.scans else None for name in _COUNTS_OF_SCANS},
            "moved": instance.moved,
            "to_move": instance.to_move,
            "failure_reason": instance.failure_reason or None,
            "started_at": when.to_representation(instance.started_at),
            "ended_at": None if instance.ended_at is None else when.to_representation(instance.ended_at),
        }


def _rests(task: MessageMoveTask) -> bool:
    return task.paused_at is not None and task.status == MoveStatus.RUNNING


class MoveListSerializer(serializers.Serializer):
    moves = MoveSerializer(many=True)


def _redrive_policy(account_id: str, given: dict[str, object] | None) -> str:
    if given is None:
        return ""
    arn = format_arn(environment().region, account_id, str(given["name"]))
    return json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": given["max_receives"]})


def _redrive_allow_policy(account_id: str, given: dict[str, object]) -> str:
    policy: dict[str, object] = {"redrivePermission": _PERMISSIONS[str(given["allow"])]}
    names = given.get("queues")
    if isinstance(names, list) and names:
        policy["sourceQueueArns"] = [format_arn(environment().region, account_id, name) for name in names]
    return json.dumps(policy)


def _spread_json(queue: Queue) -> dict[str, object]:
    rows = layout.rows_of(queue.layout, queue.partitions)
    wanted = layout.wanted_of(queue.attributes, queue.fifo)
    return {
        "partitions": wanted.partitions,
        "priority_levels": wanted.levels,
        "partitions_open": len(layout.opened(rows)),
        "partitions_draining": sum(not row.drained for row in layout.closed(rows)),
    }


def _fifo_json(queue: Queue) -> dict[str, object]:
    if not queue.fifo:
        return dict.fromkeys(_FIFO_FIELDS)
    attributes = queue.attributes
    return {
        "content_based_deduplication": attributes["ContentBasedDeduplication"] == "true",
        "deduplication_scope": _word_of(_SCOPES, attributes["DeduplicationScope"]),
        "throughput_limit": _word_of(_THROUGHPUT, attributes["FifoThroughputLimit"]),
    }


def _dead_letter_json(queue: Queue) -> dict[str, object]:
    redrive = redrive_of(queue.attributes)
    allow = json.loads(queue.attributes.get("RedriveAllowPolicy") or '{"redrivePermission": "allowAll"}')
    return {
        "dead_letter_queue": None
        if redrive is None
        else {"name": redrive.target.name, "max_receives": redrive.receives_max},
        "dead_letter_sources": {
            "allow": _word_of(_PERMISSIONS, allow["redrivePermission"]),
            "queues": [_name_of(arn) for arn in allow.get("sourceQueueArns", [])],
        },
    }


def _word_of(words: dict[str, str], sqs_word: str) -> str:
    return next(word for word, known in words.items() if known == sqs_word)


def _name_of(arn: str) -> str:
    parsed = parse_arn(arn)
    assert parsed is not None
    return parsed.name


class DeletedQueueSerializer(serializers.Serializer):
    queue_id = serializers.UUIDField(source="uuid")
    name = serializers.CharField()
    fifo = serializers.BooleanField()
    deleted_at = serializers.DateTimeField()
    kept_until = serializers.DateTimeField()
    shred = serializers.BooleanField(source="shreds", help_text="Its dead letters in other queues end with it.")


class DeletedQueuePageSerializer(serializers.Serializer):
    queues = DeletedQueueSerializer(many=True)
    next_page_token = serializers.CharField(allow_null=True)


class RestorationSerializer(StrictSerializer):
    name = StrictCharField(
        max_length=limits.QUEUE_NAME_CHARACTERS_MAX,
        required=False,
        default="",
        help_text="Its new name, where another queue has the old one now.",
    )
