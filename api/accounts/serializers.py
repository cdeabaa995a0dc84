"""JSON of accounts and keys."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.utils import timezone
from rest_framework import serializers

from api import limits
from api.accounts.models import AccessKey, Account
from api.people.limits import ACCOUNT_TITLE_CHARACTERS_MAX
from api.people.strict import (
    StrictBooleanField,
    StrictCharField,
    StrictChoiceField,
    StrictIntegerField,
    StrictSerializer,
)
from frontend.authz.scopes import SCOPES, KeyScopes, scopes_of


class AccountSerializer(serializers.Serializer):
    account_id = serializers.CharField(source="id")
    name = serializers.CharField(help_text="The installation's, and unique; it does not change.")
    title = serializers.SerializerMethodField(help_text="What people call the account.")
    active = serializers.BooleanField()
    created_at = serializers.DateTimeField()
    auto_create_queues = serializers.BooleanField(help_text="A send to a queue that does not exist creates it.")
    deletion_protection = serializers.BooleanField(help_text="No queue can be deleted.")
    deletion_grace_days = serializers.IntegerField(help_text="So long a deleted queue can be restored.")

    def get_title(self, account: Account) -> str:
        """Nobody has named an account that the command line made: it is called by its name."""
        return account.life.title if hasattr(account, "life") else account.name


class AccountSettingsSerializer(StrictSerializer):
    """What is not given stays."""

    title = StrictCharField(required=False, max_length=ACCOUNT_TITLE_CHARACTERS_MAX)
    auto_create_queues = StrictBooleanField(required=False)
    deletion_protection = StrictBooleanField(required=False)
    deletion_grace_days = StrictIntegerField(required=False, min_value=0, max_value=limits.DELETION_GRACE_DAYS_MAX)

    def validate_title(self, value: str) -> str:
        if not value.isprintable():
            raise serializers.ValidationError("holds a character that is not allowed")
        return value


class KeySerializer(serializers.Serializer):
    access_key_id = serializers.CharField()
    name = serializers.CharField()
    active = serializers.BooleanField()
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True)
    last_used_at = serializers.DateTimeField(allow_null=True, help_text="Last use of this key, to the minute.")
    restricted = serializers.SerializerMethodField(help_text="It may do what its policies allow, and nothing else.")
    tags = serializers.SerializerMethodField(help_text="Of a restricted key: aws:PrincipalTag of conditions.")

    scopes = serializers.SerializerMethodField(help_text="That its own policy stands for; null for any other policy.")
    queues = serializers.SerializerMethodField(help_text="Names of queues that the scopes are about.")

    def get_scopes(self, key: AccessKey) -> list[str] | None:
        found = self._scopes_of(key)
        return None if found is None else list(found.scopes)

    def get_queues(self, key: AccessKey) -> list[str] | None:
        found = self._scopes_of(key)
        return None if found is None else list(found.queues)

    def _scopes_of(self, key: AccessKey) -> KeyScopes | None:
        return scopes_of(key.account_id, key.access.policy) if hasattr(key, "access") else None

    def get_restricted(self, key: AccessKey) -> bool:
        return hasattr(key, "access")

    def get_tags(self, key: AccessKey) -> dict[str, str]:
        return key.access.tags if hasattr(key, "access") else {}


class ListedKeySerializer(KeySerializer):
    """Of a key that the caller may not read by itself only its id and name."""

    def to_representation(self, instance: AccessKey) -> dict[str, object]:
        if instance.access_key_id in self.context["readable"]:
            return dict(super().to_representation(instance))
        return {"access_key_id": instance.access_key_id, "name": instance.name}


class KeyPageSerializer(serializers.Serializer):
    keys = ListedKeySerializer(many=True)
    next_page_token = serializers.CharField(allow_null=True)


class NewKeySerializer(KeySerializer):
    secret_access_key = serializers.CharField(help_text="Shown this once.")
    bearer_token = serializers.CharField(help_text="Shown this once.")


class KeyRequestSerializer(StrictSerializer):
    name = StrictCharField(max_length=limits.KEY_NAME_CHARACTERS_MAX)
    expires_at = serializers.DateTimeField(required=False, allow_null=True, default=None)
    policy = serializers.DictField(
        required=False,
        allow_null=True,
        default=None,
        help_text="An identity policy. Without one the key may do everything in its account.",
    )
    scopes = serializers.ListField(
        child=StrictChoiceField(choices=list(SCOPES)),
        required=False,
        allow_null=True,
        default=None,
        help_text="Instead of a policy: what the key may do, in words.",
    )
    queues = serializers.ListField(
        child=StrictCharField(), required=False, default=list, help_text="Of the scopes; none: all queues."
    )
    tags = serializers.DictField(child=StrictCharField(allow_blank=True), required=False, default=dict)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["scopes"] is not None and attrs["policy"] is not None:
            raise serializers.ValidationError({"scopes": "a key has scopes or a policy"})
        if attrs["scopes"] is None and attrs["queues"]:
            raise serializers.ValidationError({"queues": "say which queues the scopes are about: give scopes, too"})
        return attrs

    def validate_expires_at(self, value: datetime | None) -> datetime | None:
        if value is not None and value <= timezone.now():
            raise serializers.ValidationError("must be in the future")
        return value
