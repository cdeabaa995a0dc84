"""Django's registration of the webhooks app."""

from __future__ import annotations

from django.apps import AppConfig


class WebhooksConfig(AppConfig):
    name = "api.webhooks"
