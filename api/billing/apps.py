"""Django's registration of the billing app."""

from __future__ import annotations

from django.apps import AppConfig


class BillingConfig(AppConfig):
    name = "api.billing"
