"""What every template may use."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from api.settings.environment import environment
from console import notices
from console.visits import AccountVisit


def of_page(request: HttpRequest) -> dict[str, Any]:
    """`account` where the page is one of an account; `here` is the path, for the navigation."""
    visit = getattr(request, "visit", None)
    env = environment()
    return {
        "visit": visit,
        "account": visit if isinstance(visit, AccountVisit) else None,
        "notice": notices.take(request),
        "here": request.path,
        "endpoint": env.endpoint,
        "region": env.region,
    }
