"""Addresses below /v1."""

from __future__ import annotations

from django.urls import path

import api.converters  # noqa: F401 - registers `name`
from api.schedules.views import SchedulePauseView, ScheduleResumeView, SchedulesView, ScheduleView

urlpatterns = [
    path("queues/<name:name>/schedules", SchedulesView.as_view()),
    path("queues/<name:name>/schedules/<name:schedule>", ScheduleView.as_view()),
    path("queues/<name:name>/schedules/<name:schedule>/pause", SchedulePauseView.as_view()),
    path("queues/<name:name>/schedules/<name:schedule>/resume", ScheduleResumeView.as_view()),
]
