"""Serializers that take what they are given or refuse it: no unknown members, no text made of numbers."""

from __future__ import annotations

from typing import Any, ClassVar

from rest_framework import serializers

from api.unknown_members import unknown_members


class StrictCharField(serializers.CharField):
    """A JSON string. DRF's own also takes numbers."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class StrictBooleanField(serializers.BooleanField):
    """A JSON boolean. DRF's own also takes words and numbers."""

    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


class StrictIntegerField(serializers.IntegerField):
    """A JSON number without a point. DRF's own also takes texts."""

    def to_internal_value(self, data: Any) -> int:
        if type(data) is not int:
            self.fail("invalid")
        return super().to_internal_value(data)


class StrictNumberField(serializers.FloatField):
    """A JSON number. DRF's own also takes texts. It refuses what is not finite, and integers that no float holds."""

    def to_internal_value(self, data: Any) -> float:
        if type(data) not in (int, float):
            self.fail("invalid")
        return super().to_internal_value(data)


class StrictChoiceField(serializers.ChoiceField):
    """One of some JSON strings. DRF's own takes numbers, and quotes what it was given."""

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, str) or data not in self.choices:
            words = ", ".join(str(one) for one in self.choices)
            raise serializers.ValidationError(f"must be one of {words}", "invalid_choice")
        return super().to_internal_value(data)


class StrictSerializer(serializers.Serializer):
    """Members that are not declared are refused. Members named twice are refused before, by the parser."""

    default_error_messages: ClassVar = {"invalid": "must be a JSON object"}

    def to_internal_value(self, data: Any) -> Any:
        unknown = unknown_members(data, self.fields) if isinstance(data, dict) else {}
        if unknown:
            raise serializers.ValidationError(unknown)
        return super().to_internal_value(data)
