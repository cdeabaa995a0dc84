"""Addresses below /v1."""

from __future__ import annotations

from django.urls import path

from api.schedules.views import SchedulePauseView, ScheduleResumeView, SchedulesView, ScheduleView

urlpatterns = [
    path("queues/<str:name>/schedules", SchedulesView.as_view()),
    path("queues/<str:name>/schedules/<str:schedule>", ScheduleView.as_view()),
    path("queues/<str:name>/schedules/<str:schedule>/pause", SchedulePauseView.as_view()),
    path("queues/<str:name>/schedules/<str:schedule>/resume", ScheduleResumeView.as_view()),
]
