"""Addresses below /v1."""

from __future__ import annotations

from django.urls import path

import api.converters  # noqa: F401 - registers `name`
from api.alarms import views

urlpatterns = [
    path("alarms", views.AlarmsView.as_view()),
    path("alarms/<name:name>", views.AlarmView.as_view()),
    path("alarms/<name:name>/mute", views.AlarmMuteView.as_view()),
    path("alarm-events", views.AlarmEventsView.as_view()),
]
