"""REST settings of a queue that SQS does not have (`frontend/sqs/extensions.py`): fields of its serializers, to the
attributes that they become and back."""

from __future__ import annotations

from collections.abc import Mapping

from rest_framework import serializers

from frontend.sqs import extensions


class PolicyFields(serializers.Serializer):
    paused = serializers.BooleanField(required=False, help_text="Nothing is handed out while it is true.")


def policy_attributes(given: Mapping[str, object]) -> dict[str, str]:
    """The given settings under the names of their attributes."""
    attributes: dict[str, str] = {}
    if "paused" in given:
        attributes[extensions.PAUSED] = "true" if given["paused"] else "false"
    return attributes


def policies_json(attributes: Mapping[str, str]) -> dict[str, object]:
    return {"paused": extensions.is_paused(attributes)}
