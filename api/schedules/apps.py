"""Django's registration of the schedules app."""

from __future__ import annotations

from django.apps import AppConfig


class SchedulesConfig(AppConfig):
    name = "api.schedules"
