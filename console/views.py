"""The pages."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from api.settings.environment import environment


def front_page(request: HttpRequest) -> HttpResponse:
    """What this installation is and how to send it the first message."""
    env = environment()
    return render(request, "console/front_page.html", {"endpoint": env.endpoint, "region": env.region})
