"""REST: schedules of a queue."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from api.accounts.views import PAGE_PARAMETERS
from api.internal.rest import caller
from api.operation_view import OperationView, Tagged
from api.pages import page_asked
from api.queues.selectors import queue_of
from api.schedules import actions, selectors
from api.schedules.serializers import (
    ScheduleChangeSerializer,
    SchedulePageSerializer,
    ScheduleRequestSerializer,
    ScheduleSerializer,
)


class SchedulesView(OperationView):
    @extend_schema(operation_id="schedules.list", parameters=PAGE_PARAMETERS, responses=SchedulePageSerializer)
    def get(self, request: Request, name: str) -> Response:
        """The queue's schedules by name."""
        page = page_asked(request)
        queue = queue_of(caller(request).account_id, name)
        if queue is None:
            raise NotFound
        found = selectors.schedules_of(queue.pk, page.after, page.size + 1)
        shown = found[: page.size]
        token = page.token(shown[-1].name) if len(found) > page.size else None
        return Response({"schedules": ScheduleSerializer(shown, many=True).data, "next_page_token": token})

    @extend_schema(
        operation_id="schedules.create", request=ScheduleRequestSerializer, responses={201: ScheduleSerializer}
    )
    def post(self, request: Request, name: str) -> Response:
        """A message that the queue gets at every time its cron expression names, once each."""
        asked = ScheduleRequestSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        who = caller(request)
        schedule = actions.create_schedule(who, who.account_id, name, asked.spec())
        return Response(ScheduleSerializer(schedule).data, status=201)


class ScheduleView(OperationView):
    tagged = Tagged(
        frozenset(("next_at", "last_at", "fired", "gaps", "last_error")),
        lambda account_id, path: selectors.lock_schedule(account_id, path["name"], path["schedule"]),
    )

    @extend_schema(operation_id="schedules.get", responses=ScheduleSerializer)
    def get(self, request: Request, name: str, schedule: str) -> Response:
        found = selectors.schedule_of(caller(request).account_id, name, schedule)
        if found is None:
            raise NotFound
        return Response(ScheduleSerializer(found).data)

    @extend_schema(operation_id="schedules.update", request=ScheduleChangeSerializer, responses=ScheduleSerializer)
    def patch(self, request: Request, name: str, schedule: str) -> Response:
        """Its expression, time zone, message or group. Ticks of the next seconds may come as they were."""
        asked = ScheduleChangeSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        who = caller(request)
        changed = actions.update_schedule(who, who.account_id, name, schedule, asked.change())
        return Response(ScheduleSerializer(changed).data)

    @extend_schema(operation_id="schedules.delete", responses={204: None})
    def delete(self, request: Request, name: str, schedule: str) -> Response:
        """No tick comes any more, but for those of the next seconds."""
        who = caller(request)
        actions.delete_schedule(who, who.account_id, name, schedule)
        return Response(status=204)


class SchedulePauseView(OperationView):
    @extend_schema(operation_id="schedules.pause", request=None, responses=ScheduleSerializer)
    def post(self, request: Request, name: str, schedule: str) -> Response:
        """Ticks that pass until it is resumed do not come."""
        return _set_enabled(request, name, schedule, False)


class ScheduleResumeView(OperationView):
    @extend_schema(operation_id="schedules.resume", request=None, responses=ScheduleSerializer)
    def post(self, request: Request, name: str, schedule: str) -> Response:
        """It goes on with its next tick."""
        return _set_enabled(request, name, schedule, True)


def _set_enabled(request: Request, queue_name: str, name: str, enabled: bool) -> Response:
    who = caller(request)
    schedule = actions.set_enabled(who, who.account_id, queue_name, name, enabled)
    return Response(ScheduleSerializer(schedule).data)
