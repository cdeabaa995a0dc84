"""Addresses below /v1."""

from __future__ import annotations

from django.urls import path

import api.converters  # noqa: F401 - registers `name`
from api.accounts.views import AccountView, KeysView, KeyView

urlpatterns = [
    path("account", AccountView.as_view()),
    path("keys", KeysView.as_view()),
    path("keys/<name:access_key_id>", KeyView.as_view()),
]
