"""Who is signed in: the header `Session-Token`. No cookie is read: no page of another site can act for a person.

No import of `rest_framework.views`: that reads its settings before they are whole.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from api import clock
from api.people.actions.sessions import note_session_seen
from api.people.errors import not_signed_in
from api.people.models import Person, PersonSession
from api.people.selectors import session_by_token

SESSION_HEADER = "Session-Token"


class SignedIn(NamedTuple):
    person: Person
    session: PersonSession


class SessionTokenAuthentication(BaseAuthentication):
    """`request.user` is the SignedIn, if there is one."""

    def authenticate(self, request: Request) -> tuple[Any, None] | None:
        now = clock.now()
        session = session_by_token(request.headers.get(SESSION_HEADER, ""), now)
        if session is None:
            return None
        note_session_seen(session, now)
        return SignedIn(session.person, session), None

    def authenticate_header(self, request: Request) -> str:
        return SESSION_HEADER


class IsSignedIn(BasePermission):
    """Absent, ended, expired and made-up tokens have one answer."""

    def has_permission(self, request: Request, view: object) -> bool:
        if not isinstance(request.user, SignedIn):
            raise not_signed_in()
        return True


class SessionTokenScheme(OpenApiAuthenticationExtension):
    target_class = SessionTokenAuthentication
    name = "sessionToken"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "apiKey", "in": "header", "name": SESSION_HEADER}


def signed_in(request: Request) -> SignedIn:
    """Who asks, in a view that requires a session."""
    user: Any = request.user
    assert isinstance(user, SignedIn)
    return user
