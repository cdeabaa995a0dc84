"""Django's registration of the quotas app."""

from __future__ import annotations

from django.apps import AppConfig


class QuotasConfig(AppConfig):
    name = "api.quotas"
