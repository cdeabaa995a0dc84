"""What holds for every page: where the visitor comes from, and the headers of the answer.

A front end says by which scheme the visitor came (`X-Forwarded-Proto`); it is believed where the front end has vouched
for the request (api/people/origin.py), and from no other caller. The host is the visitor's own, and must be an allowed
one. No page runs a script, loads a thing or sends a form that is not from here, and none may stand in a frame.
"""

from __future__ import annotations

from typing import TypeVar

from django.core.exceptions import DisallowedHost
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils.cache import add_never_cache_headers
from django.utils.deprecation import MiddlewareMixin

from api.people.errors import PeopleError
from api.people.origin import SOURCE_HEADER, origin_of
from api.problems import bad_request
from console import notices

PAGES = "/console"
Answer = TypeVar("Answer", bound=HttpResponseBase)
# So long a browser that was here by https comes by https only.
ENCRYPTED_FOR_S = 180 * 86_400
_SCHEME = "HTTP_X_PENSTOCK_SCHEME"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


def keep_to_own_things(response: Answer) -> Answer:
    """The page runs, loads and sends nothing that is not from here, and stands in no frame."""
    response["Content-Security-Policy"] = _POLICY
    response["Permissions-Policy"] = "camera=(), geolocation=(), microphone=(), payment=()"
    return response


class PageSecurity(MiddlewareMixin):
    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        request.META.pop(_SCHEME, None)
        if not request.path.startswith(PAGES):
            return None
        try:
            origin_of(request)
        except PeopleError as error:
            return HttpResponse(error.detail, status=error.status, content_type="text/plain")
        if SOURCE_HEADER in request.headers:
            request.META[_SCHEME] = request.headers.get("X-Forwarded-Proto", "")
        try:
            request.get_host()
        except DisallowedHost as error:
            # Anybody can send one: Django logs the answer in a line, not a failure of ours with its trace.
            request.META.pop(_SCHEME, None)
            return bad_request(request, error)
        return None

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if not request.path.startswith(PAGES):
            return response
        keep_to_own_things(response)
        response["Vary"] = "Cookie, HX-Request, HX-Boosted"
        add_never_cache_headers(response)
        notices.forget_shown(request, response)
        if request.is_secure():
            # It holds for all ports of the name: not for the one that every program of a machine shares.
            if request.get_host().partition(":")[0] != "localhost":
                response["Strict-Transport-Security"] = f"max-age={ENCRYPTED_FOR_S}"
            for cookie in response.cookies.values():
                cookie["secure"] = True
        return response
