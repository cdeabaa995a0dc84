"""Addresses below /v1."""

from __future__ import annotations

from django.urls import path

from api.definitions.views import ComparisonView, DefinitionsView, ImportView

urlpatterns = [
    path("definitions", DefinitionsView.as_view()),
    path("definitions/comparison", ComparisonView.as_view()),
    path("definitions/import", ImportView.as_view()),
]
