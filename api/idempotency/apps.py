"""Django's registration of the idempotency app."""

from __future__ import annotations

from django.apps import AppConfig


class IdempotencyConfig(AppConfig):
    name = "api.idempotency"
