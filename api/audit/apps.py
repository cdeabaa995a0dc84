"""Django's registration of the audit app."""

from __future__ import annotations

from django.apps import AppConfig


class AuditConfig(AppConfig):
    name = "api.audit"
