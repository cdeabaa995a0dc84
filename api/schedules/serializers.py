"""JSON of schedules. The message of one is taken in and never shown."""

from __future__ import annotations

from collections.abc import Mapping

from rest_framework import serializers

from api import limits
from api.people.strict import StrictBooleanField, StrictCharField, StrictSerializer
from api.schedules.actions import ScheduleChange, ScheduleSpec
from api.schedules.models import CronSchedule


class ScheduleAttributeSerializer(StrictSerializer):
    """A message attribute; the value of a Binary one is base64."""

    type = StrictCharField(default="String")
    value = StrictCharField(trim_whitespace=False)


class ScheduleRequestSerializer(StrictSerializer):
    """`cron` has five fields, or six with the seconds in front; `time_zone` is a name of the tz database."""

    name = StrictCharField(max_length=limits.SCHEDULE_NAME_CHARACTERS_MAX)
    cron = StrictCharField(max_length=limits.CRON_CHARACTERS_MAX)
    time_zone = StrictCharField(max_length=limits.ZONE_CHARACTERS_MAX, default="UTC")
    body = StrictCharField(trim_whitespace=False, max_length=limits.REQUEST_BYTES_MAX)
    attributes = serializers.DictField(child=ScheduleAttributeSerializer(), required=False)
    group = StrictCharField(required=False, allow_null=True, default=None)
    enabled = StrictBooleanField(default=True)

    def spec(self) -> ScheduleSpec:
        given = self.validated_data
        attributes = _pairs(given.get("attributes", {}))
        return ScheduleSpec(
            given["name"], given["cron"], given["time_zone"], given["body"], attributes, given["group"],
            given["enabled"],
        )  # fmt: skip


class ScheduleChangeSerializer(StrictSerializer):
    """What is left out stays as it is. `attributes` come with `body`, and replace all that there were."""

    cron = StrictCharField(max_length=limits.CRON_CHARACTERS_MAX, required=False)
    time_zone = StrictCharField(max_length=limits.ZONE_CHARACTERS_MAX, required=False)
    body = StrictCharField(trim_whitespace=False, max_length=limits.REQUEST_BYTES_MAX, required=False)
    attributes = serializers.DictField(child=ScheduleAttributeSerializer(), required=False)
    group = StrictCharField(required=False, allow_null=True, help_text="null: none.")

    def change(self) -> ScheduleChange:
        given = self.validated_data
        attributes = _pairs(given["attributes"]) if "attributes" in given else None
        group = (given["group"] or "") if "group" in given else None
        return ScheduleChange(given.get("cron"), given.get("time_zone"), given.get("body"), attributes, group)


def _pairs(attributes: Mapping[str, Mapping[str, str]]) -> dict[str, tuple[str, str]]:
    return {name: (one["type"], one["value"]) for name, one in attributes.items()}


class ScheduleSerializer(serializers.Serializer):
    name = serializers.CharField()
    cron = serializers.CharField()
    time_zone = serializers.CharField(source="zone")
    group = serializers.CharField(allow_null=True)
    enabled = serializers.BooleanField()
    next_at = serializers.DateTimeField(allow_null=True)
    last_at = serializers.DateTimeField(allow_null=True, source="last_tick_at")
    fired = serializers.IntegerField()
    gaps = serializers.IntegerField(source="missed")
    last_error = serializers.CharField(allow_null=True)
    created_at = serializers.DateTimeField()
    modified_at = serializers.DateTimeField()

    def to_representation(self, instance: CronSchedule) -> dict[str, object]:
        when = serializers.DateTimeField()
        last = instance.last_tick_at
        return {
            "name": instance.name,
            "cron": instance.cron,
            "time_zone": instance.zone,
            "group": instance.group or None,
            "enabled": instance.enabled,
            "next_at": when.to_representation(instance.next_tick_at) if instance.enabled else None,
            "last_at": None if last is None else when.to_representation(last),
            "fired": instance.fired,
            "gaps": instance.missed,
            "last_error": instance.last_error or None,
            "created_at": when.to_representation(instance.created_at),
            "modified_at": when.to_representation(instance.modified_at),
        }


class SchedulePageSerializer(serializers.Serializer):
    schedules = ScheduleSerializer(many=True)
    next_page_token = serializers.CharField(allow_null=True)
