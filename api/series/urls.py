"""Addresses below /v1."""

from __future__ import annotations

from django.urls import path

from api.series import views

urlpatterns = [
    path("metrics", views.MetricsView.as_view()),
    path("metrics/data", views.MetricDataView.as_view()),
    path("metrics/prometheus", views.MetricScrapeView.as_view()),
]
