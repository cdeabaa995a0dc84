"""Serializers that take what they are given or refuse it: no unknown members, no text made of numbers.

What is quoted of a request in an answer can be encoded: JSON lets half a surrogate pair into a text.
"""

from __future__ import annotations

from typing import Any, ClassVar

from rest_framework import serializers


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

    default_error_messages: ClassVar = {"invalid_choice": "Not one of the choices."}

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, str):
            self.fail("invalid_choice")
        return super().to_internal_value(data)


class StrictSerializer(serializers.Serializer):
    """Members that are not declared are refused. Members named twice are refused before, by the parser."""

    def to_internal_value(self, data: Any) -> Any:
        unknown = set(data) - set(self.fields) if isinstance(data, dict) else set()
        if unknown:
            raise serializers.ValidationError({_shown(name): ["is not known here"] for name in sorted(unknown)})
        return super().to_internal_value(data)


def _shown(name: str) -> str:
    return name.encode(errors="backslashreplace").decode()
