"""Django's registration of the control plane's own commands."""

from __future__ import annotations

from django.apps import AppConfig


class ApiConfig(AppConfig):
    name = "api"
