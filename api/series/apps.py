"""Django's registration of the series app."""

from __future__ import annotations

from django.apps import AppConfig


class SeriesConfig(AppConfig):
    name = "api.series"
