"""The control plane as an ASGI application: Django, and beside it

    GET /internal/alive    for the front ends (frontend/control_watch.py): 200, or 503 while PostgreSQL does not answer;
                           200 says where it takes no more connections

Django's calls have a place each, and accounts share the places (`call_sharing.py`). `alive` needs none, and is answered
on the event loop: Django's threads may all hang in a database that has fallen silent.
"""

from __future__ import annotations

import os
from typing import Any

from django.core.asgi import get_asgi_application

from api import limits
from api.call_places import CallPlaces
from api.database_probe import DatabaseProbe, DatabaseState
from api.queues.readiness import connection_parameters
from frontend.http import Application, Receive, Scope, Send, answer
from frontend.readiness import ALIVE_FULL, ALIVE_PATH

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "api.settings.project")
_TEXT = ((b"content-type", b"text/plain"),)
_probe: list[DatabaseProbe] = []  # made with the first question


def _django_with_places() -> Application:
    django = get_asgi_application()
    from api.call_sharing import sharing_places  # names models

    return sharing_places(django, CallPlaces(limits.CALLS_WORKED_ON_MAX, limits.DEFINITIONS_CALLS_MAX))


_django = _django_with_places()


async def application(scope: Scope, receive: Receive, send: Send) -> Any:
    if scope["type"] == "http" and scope["path"] == ALIVE_PATH:
        await _serve_alive(send)
        return None
    await _django(scope, receive, send)
    return None


async def _serve_alive(send: Send) -> None:
    if not _probe:
        _probe.append(DatabaseProbe(connection_parameters()))
    state = await _probe[0].look()
    if state is not DatabaseState.AWAY:
        await answer(send, 200, _TEXT, b"ok\n" if state is DatabaseState.ANSWERS else ALIVE_FULL)
    else:
        await answer(send, 503, _TEXT, b"the database does not answer\n")
