"""JSON of queues. Settings have names of their own here (units last); SQS attribute names stay on the SQS side."""

from __future__ import annotations

from rest_framework import serializers

from api import limits
from api.queues.attributes import format_arn
from api.queues.models import Queue, QueueState
from api.settings.environment import environment

# REST field -> SQS attribute. All are integers.
SETTINGS: dict[str, str] = {
    "visibility_timeout_seconds": "VisibilityTimeout",
    "delay_seconds": "DelaySeconds",
    "retention_seconds": "MessageRetentionPeriod",
    "receive_wait_seconds": "ReceiveMessageWaitTimeSeconds",
    "message_bytes_max": "MaximumMessageSize",
}


class QueueSettingsSerializer(serializers.Serializer):
    """Fields of a change. What is not given stays; the ranges are those of SQS."""

    visibility_timeout_seconds = serializers.IntegerField(required=False, min_value=0, max_value=43_200)
    delay_seconds = serializers.IntegerField(required=False, min_value=0, max_value=900)
    retention_seconds = serializers.IntegerField(required=False, min_value=60, max_value=1_209_600)
    receive_wait_seconds = serializers.IntegerField(required=False, min_value=0, max_value=20)
    message_bytes_max = serializers.IntegerField(required=False, min_value=1_024, max_value=1_048_576)

    def attributes(self) -> dict[str, str]:
        """The given settings under their SQS names."""
        given = self.validated_data
        return {attribute: str(given[field]) for field, attribute in SETTINGS.items() if field in given}

    def validate(self, attrs: dict[str, object]) -> dict[str, object]:
        unknown = set(self.initial_data) - set(self.fields)
        if unknown:
            raise serializers.ValidationError(dict.fromkeys(sorted(unknown), "is not known here"))
        return attrs


class QueueRequestSerializer(QueueSettingsSerializer):
    name = serializers.CharField(max_length=limits.QUEUE_NAME_CHARACTERS_MAX)
    tags = serializers.DictField(child=serializers.CharField(allow_blank=True), required=False, default=dict)


class QueueSerializer(serializers.Serializer):
    name = serializers.CharField()
    arn = serializers.CharField()
    state = serializers.ChoiceField(choices=[state.value for state in QueueState if state != QueueState.DELETED])
    visibility_timeout_seconds = serializers.IntegerField()
    delay_seconds = serializers.IntegerField()
    retention_seconds = serializers.IntegerField()
    receive_wait_seconds = serializers.IntegerField()
    message_bytes_max = serializers.IntegerField()
    tags = serializers.DictField(child=serializers.CharField())
    created_at = serializers.DateTimeField()
    modified_at = serializers.DateTimeField()

    def to_representation(self, instance: Queue) -> dict[str, object]:
        settings = {field: int(instance.attributes[attribute]) for field, attribute in SETTINGS.items()}
        when = serializers.DateTimeField()
        return {
            "name": instance.name,
            "arn": format_arn(environment().region, instance.account_id, instance.name),
            "state": instance.state,
            **settings,
            "tags": instance.tags,
            "created_at": when.to_representation(instance.created_at),
            "modified_at": when.to_representation(instance.modified_at),
        }


class QueuePageSerializer(serializers.Serializer):
    queues = QueueSerializer(many=True)
    next_page_token = serializers.CharField(allow_null=True)
