"""Django's registration of the tails app."""

from __future__ import annotations

from django.apps import AppConfig


class TailsConfig(AppConfig):
    name = "api.tails"
