"""Django's registration of the iam app."""

from __future__ import annotations

from django.apps import AppConfig


class IamConfig(AppConfig):
    name = "api.iam"
