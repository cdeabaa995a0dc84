"""Addresses of the pages."""

from __future__ import annotations

from django.urls import path

from console.views import front_page

urlpatterns = [path("console", front_page), path("console/", front_page)]
