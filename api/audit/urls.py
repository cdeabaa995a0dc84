"""Addresses below /v1."""

from __future__ import annotations

from django.urls import path

from api.audit.views import AuditEntriesView, AuditExportView

urlpatterns = [
    path("audit-entries", AuditEntriesView.as_view()),
    path("audit-entries/export", AuditExportView.as_view()),
]
