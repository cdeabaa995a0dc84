"""REST settings of a queue that SQS does not have (`frontend/queues/extensions.py`): fields of its serializers, to the
attributes that they become and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from rest_framework import serializers

from api.people.strict import (
    StrictBooleanField,
    StrictChoiceField,
    StrictIntegerField,
    StrictNumberField,
    StrictSerializer,
)
from frontend.queues import extensions
from frontend.queues.retry_policy import KINDS
from storage_nodes.limits import RETRY_PAUSE_MS_MAX

# REST field -> attribute, "true" or "false".
_SWITCHES = {
    "paused": extensions.PAUSED,
    "park_groups": extensions.PARK_GROUPS,
    "uncounted_release": extensions.UNCOUNTED_RELEASE,
}


class RetryPolicySerializer(StrictSerializer):
    """The pause before a message whose receive failed is given again."""

    kind = StrictChoiceField(choices=list(KINDS))
    delay_ms = StrictIntegerField(min_value=1, max_value=RETRY_PAUSE_MS_MAX)
    max_ms = StrictIntegerField(min_value=1, max_value=RETRY_PAUSE_MS_MAX, default=RETRY_PAUSE_MS_MAX)
    jitter = StrictNumberField(min_value=0, max_value=1, default=0.0)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["max_ms"] < attrs["delay_ms"]:
            raise serializers.ValidationError({"max_ms": "must not be less than delay_ms"})
        return attrs


class PolicyFields(serializers.Serializer):
    acks = StrictChoiceField(
        choices=list(extensions.ACKS_WORDS),
        required=False,
        allow_null=True,
        help_text="When a send is answered; null: once a majority of the replicas has it on disk.",
    )
    paused = StrictBooleanField(required=False, help_text="Nothing is handed out while it is true.")
    park_groups = StrictBooleanField(
        required=False, help_text="FIFO: a group is held when a message of it becomes a dead letter."
    )
    retry_policy = RetryPolicySerializer(required=False, allow_null=True)
    uncounted_release = StrictBooleanField(
        required=False, help_text="A visibility timeout changed to 0 takes the receive back: it does not count."
    )


def policy_attributes(given: Mapping[str, object]) -> dict[str, str]:
    """The given settings under the names of their attributes."""
    attributes: dict[str, str] = {}
    for field, attribute in _SWITCHES.items():
        if field in given:
            attributes[attribute] = "true" if given[field] else "false"
    if "acks" in given:
        attributes[extensions.ACKS] = str(given["acks"] or "")
    if "retry_policy" in given:
        policy = given["retry_policy"]
        attributes[extensions.RETRY_POLICY] = "" if policy is None else json.dumps(policy)
    return attributes


def policies_json(attributes: Mapping[str, str]) -> dict[str, object]:
    retry = extensions.retry_of(attributes)
    return {
        "acks": attributes.get(extensions.ACKS),
        "retry_policy": None if retry is None else msgspec.to_builtins(retry),
        **{field: attributes.get(attribute) == "true" for field, attribute in _SWITCHES.items()},
    }
