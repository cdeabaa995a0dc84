"""REST: alarms of the account that asks."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response

from api.alarms import actions, selectors
from api.alarms.actions import AlarmError, no_such_alarm
from api.alarms.models import MetricAlarm
from api.alarms.serializers import (
    AlarmEventsSerializer,
    AlarmMuteSerializer,
    AlarmRequestSerializer,
    MetricAlarmSerializer,
    MetricAlarmsSerializer,
)
from api.internal.rest import caller
from api.operation_view import OperationView, Tagged
from api.pages import text_asked

ALARM = OpenApiParameter("alarm", OpenApiTypes.STR, description="Of the alarm of this name alone.")


class _RefusedAlarm(APIException):
    """An AlarmError in the form that `api/problems.py` writes."""

    def __init__(self, error: AlarmError) -> None:
        super().__init__(error.detail)
        self.status_code = error.status
        self.default_code = error.code


class AlarmingView(OperationView):
    def handle_exception(self, exc: Exception) -> Response:
        return super().handle_exception(_RefusedAlarm(exc) if isinstance(exc, AlarmError) else exc)


class AlarmsView(AlarmingView):
    @extend_schema(operation_id="alarms.list", responses=MetricAlarmsSerializer)
    def get(self, request: Request) -> Response:
        """The account's alarms with their states; those in ALARM first."""
        account_id = caller(request).account_id
        found = selectors.alarms_of(account_id)
        names = selectors.queue_names(account_id, (alarm.queue_uuid for alarm in found))
        return Response({"alarms": [_shown(alarm, names.get(alarm.queue_uuid, "")) for alarm in found]})


class AlarmView(AlarmingView):
    tagged = Tagged(
        frozenset(("state", "state_reason", "state_since", "judged_up_to")),
        lambda account_id, path: selectors.lock_alarm(account_id, **path),
        creates=True,
    )

    @extend_schema(operation_id="alarms.get", responses=MetricAlarmSerializer)
    def get(self, request: Request, name: str) -> Response:
        account_id = caller(request).account_id
        return Response(_named(account_id, selectors.alarm_of(account_id, name)))

    @extend_schema(
        operation_id="alarms.put",
        request=AlarmRequestSerializer,
        responses={200: MetricAlarmSerializer, 201: MetricAlarmSerializer},
    )
    def put(self, request: Request, name: str) -> Response:
        """Creates or replaces an alarm: a threshold for a metric of a queue, over some periods."""
        asked = AlarmRequestSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        who = caller(request)
        alarm, is_new = actions.put_alarm(who, who.account_id, name, asked.spec())
        return Response(_named(who.account_id, alarm), status=201 if is_new else 200)

    @extend_schema(operation_id="alarms.delete", responses={204: None})
    def delete(self, request: Request, name: str) -> Response:
        """Deletes an alarm. Its history stays."""
        who = caller(request)
        actions.delete_alarm(who, who.account_id, name)
        return Response(status=204)


class AlarmMuteView(AlarmingView):
    @extend_schema(operation_id="alarms.mute", request=AlarmMuteSerializer, responses=MetricAlarmSerializer)
    def put(self, request: Request, name: str) -> Response:
        """Until then its changes are noted, no mail is sent and no webhook is called."""
        asked = AlarmMuteSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        who = caller(request)
        alarm = actions.mute_alarm(who, who.account_id, name, asked.validated_data["until"])
        return Response(_named(who.account_id, alarm))


class AlarmEventsView(AlarmingView):
    @extend_schema(operation_id="alarms.events", parameters=[ALARM], responses=AlarmEventsSerializer)
    def get(self, request: Request) -> Response:
        """Changes of the states of alarms, the latest first."""
        found = selectors.alarm_events_of(caller(request).account_id, text_asked(request, "alarm"))
        return Response(AlarmEventsSerializer({"events": found}).data)


def _named(account_id: str, alarm: MetricAlarm | None) -> Any:
    if alarm is None:
        raise no_such_alarm()
    names = selectors.queue_names(account_id, [alarm.queue_uuid])
    return _shown(alarm, names.get(alarm.queue_uuid, ""))


def _shown(alarm: MetricAlarm, queue: str) -> Any:
    fields = MetricAlarmSerializer().fields
    shown = {name: queue if name == "queue" else getattr(alarm, str(name)) for name in fields}
    return MetricAlarmSerializer(shown).data
