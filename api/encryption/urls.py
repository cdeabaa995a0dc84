"""Addresses below /v1."""

from __future__ import annotations

from django.urls import path

import api.converters  # noqa: F401 - registers `name`
from api.encryption import views

_KEY = "encryption-keys/<name:encryption_key>"

urlpatterns = [
    path("encryption-keys", views.EncryptionKeysView.as_view()),
    path(_KEY, views.EncryptionKeyView.as_view()),
    path(f"{_KEY}/enable", views.EncryptionKeyEnableView.as_view()),
    path(f"{_KEY}/disable", views.EncryptionKeyDisableView.as_view()),
    path(f"{_KEY}/rotation", views.EncryptionKeyRotationView.as_view()),
    path(f"{_KEY}/deletion", views.EncryptionKeyDeletionView.as_view()),
    path(f"{_KEY}/uses", views.EncryptionKeyUsesView.as_view()),
]
