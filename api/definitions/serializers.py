"""JSON of definitions, for the documented interface. The document itself is read by `document.py`."""

from __future__ import annotations

from rest_framework import serializers

from api.definitions.comparison import ChangeKind
from api.definitions.document import FORMAT


class QueueDefinitionSerializer(serializers.Serializer):
    name = serializers.CharField()
    attributes = serializers.DictField(child=serializers.CharField())
    tags = serializers.DictField(child=serializers.CharField())
    quotas = serializers.DictField(
        child=serializers.IntegerField(), required=False, help_text="The queue's own; they stay where this is left out"
    )


class PolicyDefinitionSerializer(serializers.Serializer):
    name = serializers.CharField()
    policy = serializers.DictField()


class DefinitionsSerializer(serializers.Serializer):
    """An account's queues and policies."""

    format = serializers.CharField(help_text=f"`{FORMAT}`")
    account_id = serializers.CharField()
    queues = QueueDefinitionSerializer(many=True)
    policies = PolicyDefinitionSerializer(many=True)
    next_after = serializers.CharField(required=False, help_text="`after` of the next document, where there is one")


class DefinitionDifferenceSerializer(serializers.Serializer):
    field = serializers.CharField()
    before = serializers.CharField(allow_blank=True)
    after = serializers.CharField(allow_blank=True)


class DefinitionChangeSerializer(serializers.Serializer):
    what = serializers.ChoiceField(choices=["queue", "policy"])
    name = serializers.CharField()
    kind = serializers.ChoiceField(choices=[kind.value for kind in ChangeKind])
    differences = DefinitionDifferenceSerializer(many=True)
    problem = serializers.CharField(allow_blank=True)


class ComparisonSerializer(serializers.Serializer):
    """`digest` names these changes, for the import."""

    digest = serializers.CharField()
    changes = DefinitionChangeSerializer(many=True)


class ImportRequestSerializer(serializers.Serializer):
    definitions = DefinitionsSerializer()
    digest = serializers.CharField()


class ImportOutcomeSerializer(serializers.Serializer):
    what = serializers.ChoiceField(choices=["queue", "policy"])
    name = serializers.CharField()
    kind = serializers.ChoiceField(choices=[kind.value for kind in ChangeKind])
    problem = serializers.CharField(allow_blank=True)


class ImportResultSerializer(serializers.Serializer):
    """`left` were not begun: compare again, and import the rest."""

    outcomes = ImportOutcomeSerializer(many=True)
    left = serializers.IntegerField()
