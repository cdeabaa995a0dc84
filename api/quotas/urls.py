"""Addresses below /v1."""

from __future__ import annotations

from django.urls import path

import api.converters  # noqa: F401 - registers `name`
from api.quotas.single_views import KeyQuotasView, QueueQuotasView
from api.quotas.views import QuotaRequestsView, QuotaRequestView, QuotasView

urlpatterns = [
    path("keys/<name:access_key_id>/quotas", KeyQuotasView.as_view()),
    path("queues/<name:name>/quotas", QueueQuotasView.as_view()),
    path("quotas", QuotasView.as_view()),
    path("quota-requests", QuotaRequestsView.as_view()),
    path("quota-requests/<name:request_id>", QuotaRequestView.as_view()),
]
