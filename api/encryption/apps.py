"""Django's registration of the encryption app."""

from __future__ import annotations

from django.apps import AppConfig


class EncryptionConfig(AppConfig):
    name = "api.encryption"
