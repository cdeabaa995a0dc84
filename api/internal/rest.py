"""DRF's side of the principal. No import of `rest_framework.views`: that reads its settings, which name this module."""

from __future__ import annotations

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from api.accounts.actions import note_key_use
from api.internal.authentication import principal_of
from frontend.authn.principal import Principal
from frontend.authn.vouching import PrincipalError


class PrincipalAuthentication(BaseAuthentication):
    """`request.user` is the Principal. The front end has checked the key and its limits before."""

    def authenticate(self, request: Request) -> tuple[Principal, None]:
        try:
            principal = principal_of(request._request)
        except PrincipalError as error:
            raise AuthenticationFailed(str(error)) from None
        note_key_use(principal.name)
        return principal, None

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="penstock"'


class PrincipalScheme(OpenApiAuthenticationExtension):
    """What callers of the public endpoint present: the front end turns it into the principal header."""

    target_class = PrincipalAuthentication
    name = "bearerAuth"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "pstk_..."}


def caller(request: Request) -> Principal:
    """Who asks, in a view that lets nobody in without a principal."""
    assert isinstance(request.user, Principal)
    return request.user
