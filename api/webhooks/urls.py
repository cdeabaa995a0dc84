"""Addresses below /v1."""

from __future__ import annotations

from django.urls import path

import api.converters  # noqa: F401 - registers `name`
from api.webhooks import views

urlpatterns = [
    path("webhooks", views.WebhooksView.as_view()),
    path("webhooks/<name:name>", views.WebhookView.as_view()),
    path("webhooks/<name:name>/rotation", views.WebhookRotationView.as_view()),
    path("webhooks/<name:name>/test", views.WebhookTestView.as_view()),
    path("webhooks/<name:name>/deliveries", views.WebhookDeliveriesView.as_view()),
]
