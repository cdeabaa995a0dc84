"""JSON of policies, groups and what keys may do."""

from __future__ import annotations

import json

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from api.iam import limits, selectors
from api.iam.models import PeopleGroup, Policy
from api.limits import KEY_NAME_CHARACTERS_MAX
from api.people.strict import StrictBooleanField, StrictCharField, StrictIntegerField, StrictSerializer


class KeyChangeSerializer(StrictSerializer):
    name = StrictCharField(required=False, max_length=KEY_NAME_CHARACTERS_MAX)
    active = StrictBooleanField(
        required=False, help_text="false: the key opens nothing until this is true again. What it may do is kept."
    )
    restricted = StrictBooleanField(
        required=False, help_text="false: all policies of the key are taken away, it may do everything in its account."
    )
    tags = serializers.DictField(
        child=StrictCharField(allow_blank=True, trim_whitespace=False), required=False, help_text="All of them."
    )


class RotationSerializer(StrictSerializer):
    grace_seconds = StrictIntegerField(
        min_value=0,
        max_value=limits.ROTATION_GRACE_S_MAX,
        default=limits.ROTATION_GRACE_S_DEFAULT,
        help_text="The old key goes on for so long.",
    )


class PolicyDocumentSerializer(StrictSerializer):
    policy = serializers.DictField(help_text="An identity policy: Version, Statement.")


class KeyPolicySerializer(serializers.Serializer):
    restricted = serializers.BooleanField()
    policy = serializers.DictField(allow_null=True, help_text="The key's own.")
    attached = serializers.ListField(child=serializers.CharField(), help_text="Names of policies of the account.")


class NewPolicySerializer(PolicyDocumentSerializer):
    name = StrictCharField(max_length=limits.POLICY_NAME_CHARACTERS_MAX)


class PolicySerializer(serializers.Serializer):
    name = serializers.CharField()
    policy = serializers.SerializerMethodField()
    created_at = serializers.DateTimeField()
    modified_at = serializers.DateTimeField()

    @extend_schema_field(serializers.DictField())
    def get_policy(self, policy: Policy) -> dict[str, object]:
        return document_json(policy.text)


class ListedPolicySerializer(serializers.Serializer):
    """`policy` is left out of one that the caller may not read by itself."""

    name = serializers.CharField()
    policy = serializers.DictField(required=False)
    created_at = serializers.DateTimeField()
    modified_at = serializers.DateTimeField()

    def to_representation(self, instance: Policy) -> dict[str, object]:
        shown: dict[str, object] = dict(PolicySerializer(instance).data)
        if instance.name not in self.context["readable"]:
            del shown["policy"]
        return shown


class PolicyPageSerializer(serializers.Serializer):
    policies = ListedPolicySerializer(many=True)
    next_page_token = serializers.CharField(allow_null=True)


class NewGroupSerializer(StrictSerializer):
    name = StrictCharField(max_length=limits.GROUP_NAME_CHARACTERS_MAX)


class GroupSerializer(serializers.Serializer):
    name = serializers.CharField()
    created_at = serializers.DateTimeField()
    members = serializers.SerializerMethodField(help_text="Ids of people.")
    attached = serializers.SerializerMethodField(help_text="Names of policies.")

    def get_members(self, group: PeopleGroup) -> list[str]:
        return selectors.members_of_group(group)

    def get_attached(self, group: PeopleGroup) -> list[str]:
        return selectors.attached_to_group(group)


class GroupNameSerializer(serializers.Serializer):
    name = serializers.CharField()
    created_at = serializers.DateTimeField()


class GroupPageSerializer(serializers.Serializer):
    groups = GroupNameSerializer(many=True)
    next_page_token = serializers.CharField(allow_null=True)


class AttachedSerializer(serializers.Serializer):
    attached = serializers.ListField(child=serializers.CharField(), help_text="Names of policies.")


def document_json(text: str) -> dict[str, object]:
    document: dict[str, object] = json.loads(text)
    return document
