"""Addresses below /v1."""

from __future__ import annotations

from django.urls import path

import api.converters  # noqa: F401 - registers `name`
from api.quotas.views import QuotaRequestsView, QuotaRequestView, QuotasView

urlpatterns = [
    path("quotas", QuotasView.as_view()),
    path("quota-requests", QuotaRequestsView.as_view()),
    path("quota-requests/<name:request_id>", QuotaRequestView.as_view()),
]
