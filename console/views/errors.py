"""Pages for what is not there, and for forms that are out of date."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from api import problems
from console.error_notices import ErrorNotice
from console.pages import NoAccountHere, show
from console.security import PAGES
from console.visits import AccountVisit


def form_expired(request: HttpRequest, reason: str = "") -> HttpResponse:
    text = "The form was not sent from this site, or it is too old."
    return show(request, ErrorNotice(403, text, "Go back, load the page again, and repeat what you did."))


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    if not request.path.startswith(PAGES):
        return problems.not_found(request, exception)
    if isinstance(exception, NoAccountHere):
        text = "None of your accounts has this id."
        return show(request, ErrorNotice(404, text, "Choose another account, or sign in with another address."))
    visit = getattr(request, "visit", None)
    if isinstance(visit, AccountVisit):
        text = f"There is nothing at this address in the account {visit.title}."
        return show(request, ErrorNotice(404, text, "It may have been deleted, or the address is mistyped."))
    return show(request, ErrorNotice(404, "There is no such page.", "Look for a typing error in the address."))


def internal_failure(request: HttpRequest) -> HttpResponse:
    """Our own bug: Django has logged it. No context: nothing that may fail again."""
    if not request.path.startswith(PAGES):
        return problems.internal_failure(request)
    told = {"request_id": request.headers.get("X-Request-Id", "")}
    return HttpResponse(render_to_string("console/failed.html", told), status=500)
