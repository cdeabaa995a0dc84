"""What every template may use."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from api.people.relying_party import relying_party
from api.settings.environment import environment
from console import notices
from console.visits import AccountVisit


def of_page(request: HttpRequest) -> dict[str, Any]:
    """`account` where the page is one of an account; `here` is the path, for the navigation."""
    visit = getattr(request, "visit", None)
    env = environment()
    party = relying_party(env.endpoint)
    return {
        "visit": visit,
        "account": visit if isinstance(visit, AccountVisit) else None,
        "notice": notices.take(request),
        "here": request.path,
        "endpoint": env.endpoint,
        "region": env.region,
        # The one origin whose pages browsers give passkeys to; "" where there is none.
        "passkey_origin": party.origin if party else "",
    }
