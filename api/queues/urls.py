"""Addresses below /v1."""

from __future__ import annotations

from django.urls import path

from api.queues.views import QueuesView, QueueView

urlpatterns = [path("queues", QueuesView.as_view()), path("queues/<str:name>", QueueView.as_view())]
