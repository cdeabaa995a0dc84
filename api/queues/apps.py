"""Django's registration of the queues app."""

from __future__ import annotations

from django.apps import AppConfig


class QueuesConfig(AppConfig):
    name = "api.queues"
