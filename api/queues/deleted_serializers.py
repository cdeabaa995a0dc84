"""JSON of deleted queues that can still be restored."""

from __future__ import annotations

from rest_framework import serializers

from api import limits


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


class RestorationSerializer(serializers.Serializer):
    name = serializers.CharField(
        max_length=limits.QUEUE_NAME_CHARACTERS_MAX,
        required=False,
        default="",
        help_text="Its new name, where another queue has the old one now.",
    )
