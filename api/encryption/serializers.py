"""JSON of encryption keys."""

from __future__ import annotations

from rest_framework import serializers

from api.encryption import limits
from api.encryption.models import EncryptionKey, KeyState
from api.people.strict import StrictCharField, StrictIntegerField, StrictSerializer
from api.settings.environment import environment
from frontend.authz.request_context import AWS_PARTITION


class EncryptionKeySerializer(serializers.Serializer):
    id = serializers.CharField(source="pk")
    name = serializers.CharField()
    arn = serializers.SerializerMethodField(help_text="For KmsMasterKeyId, as are the id and `alias/` with the name.")
    description = serializers.CharField()
    state = serializers.ChoiceField(choices=[state.value for state in KeyState if state != KeyState.DELETED])
    versions = serializers.SerializerMethodField(help_text="How many; the newest one seals.")
    shared_accounts = serializers.ListField(
        child=serializers.CharField(), help_text="May use the key through queues that are open to them."
    )
    created_at = serializers.DateTimeField()
    rotated_at = serializers.DateTimeField(allow_null=True)
    deletes_at = serializers.DateTimeField(allow_null=True)

    def get_arn(self, key: EncryptionKey) -> str:
        return f"arn:{AWS_PARTITION}:kms:{environment().region}:{key.account_id}:key/{key.pk}"

    def get_versions(self, key: EncryptionKey) -> int:
        return len(key.versions.all())


class ListedEncryptionKeySerializer(EncryptionKeySerializer):
    """Of a key that the caller may not read by itself only its id, name and ARN."""

    def to_representation(self, instance: EncryptionKey) -> dict[str, object]:
        shown: dict[str, object] = dict(super().to_representation(instance))
        is_readable = str(instance.pk) in self.context["readable"]
        return shown if is_readable else {name: shown[name] for name in ("id", "name", "arn")}


class EncryptionKeyPageSerializer(serializers.Serializer):
    encryption_keys = ListedEncryptionKeySerializer(many=True)
    next_page_token = serializers.CharField(allow_null=True)


class NewEncryptionKeySerializer(StrictSerializer):
    name = StrictCharField(max_length=limits.NAME_CHARACTERS_MAX)
    description = StrictCharField(max_length=limits.DESCRIPTION_CHARACTERS_MAX, default="", allow_blank=True)
    shared_accounts = serializers.ListField(
        child=StrictCharField(max_length=12), max_length=limits.SHARED_ACCOUNTS_MAX, default=list
    )


class EncryptionKeyChangeSerializer(StrictSerializer):
    """What is not given stays."""

    description = StrictCharField(max_length=limits.DESCRIPTION_CHARACTERS_MAX, required=False, allow_blank=True)
    shared_accounts = serializers.ListField(
        child=StrictCharField(max_length=12), max_length=limits.SHARED_ACCOUNTS_MAX, required=False
    )


class KeyDeletionSerializer(StrictSerializer):
    days = StrictIntegerField(
        min_value=limits.DELETION_DAYS_MIN, max_value=limits.DELETION_DAYS_MAX, default=limits.DELETION_DAYS_DEFAULT
    )


class EncryptionKeyUseSerializer(serializers.Serializer):
    hour = serializers.DateTimeField()
    sealed = serializers.IntegerField(help_text="Messages.")
    opened = serializers.IntegerField(help_text="Messages.")


class EncryptionKeyUsesSerializer(serializers.Serializer):
    uses = EncryptionKeyUseSerializer(many=True)
