"""Django's registration of the alarms app."""

from __future__ import annotations

from django.apps import AppConfig


class AlarmsConfig(AppConfig):
    name = "api.alarms"
