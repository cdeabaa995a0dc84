"""What a view is wrapped in: the session, the account, the role; and how refusals are shown."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
)
from django.shortcuts import render
from django.urls import Resolver404, resolve
from django.views.decorators.csrf import csrf_protect

from api import clock
from api.audit.refusals import note_refusals
from api.iam.errors import AccessDenied
from api.iam.targets import ITEMS
from api.people.actions.sessions import require_recent
from api.people.errors import ActDenied, PeopleError
from api.people.origin import member_refusal, origin_of
from api.people.roles import Act, MemberRole, gives, roles_that_may
from api.people.selectors import membership_of
from console import notices
from console.error_notices import REFUSED, ErrorNotice, notice_of
from console.page_times import one_page
from console.sessions import session_of
from console.visits import AccountVisit, Visit, note_visit
from frontend.authz.actions import MANAGEMENT_OPERATIONS

View = Callable[..., HttpResponseBase]
_METHODS = "methods_of_page"
_ACTS_IN_WORDS = {
    Act.READ_QUEUES: "see queues",
    Act.MANAGE_QUEUES: "change queues",
    Act.READ_MESSAGES: "read messages",
    Act.CHANGE_MESSAGES: "send or change messages",
    Act.READ_METRICS: "see metrics",
    Act.READ_ALARMS: "see alarms",
    Act.MANAGE_ALARMS: "change alarms",
    Act.MUTE_ALARMS: "mute alarms",
    Act.DELETE_ALARMS: "delete alarms",
    Act.READ_KEYS: "see keys",
    Act.MANAGE_KEYS: "create or revoke keys",
    Act.READ_MEMBERS: "see members",
    Act.MANAGE_MEMBERS: "change members",
    Act.READ_AUDIT: "see the audit log",
    Act.CONFIGURE_ACCOUNT: "change settings of the account",
    Act.CLOSE_ACCOUNT: "close the account",
    Act.READ_USAGE: "see usage",
    Act.READ_METER: "see costs",
    Act.LIST_INVOICES: "see invoices",
    Act.READ_INVOICES: "see invoices",
    Act.READ_BUYER: "see whom invoices name",
    Act.MANAGE_BUYER: "say whom invoices name",
    Act.DELETE_BUYER: "remove whom invoices name",
    Act.READ_BUDGETS: "see budgets",
    Act.MANAGE_BUDGETS: "change budgets",
    Act.DELETE_BUDGETS: "delete budgets",
    Act.READ_PLANS: "see prices",
    Act.READ_CREDITS: "see credits",
}


class NoAccountHere(Http404):
    """The account is another's, or there is none of this id: which of the two is not told."""


def open_page(*methods: str) -> Callable[[View], View]:
    """For visitors with and without a session."""

    def wrap(view: View) -> View:
        @functools.wraps(view)
        def page(request: HttpRequest, **named: Any) -> HttpResponseBase:
            came_as = request.method
            if came_as == "HEAD":
                request.method = "GET"  # the same page, whose body the server leaves out; views know GET and POST alone
            if request.method not in methods:
                request.method = came_as
                if came_as in ("GET", "HEAD"):  # what a browser asks for when the answer of a form is opened again
                    return HttpResponseRedirect(page_above(request.path))
                return HttpResponseNotAllowed(methods)
            with one_page():
                try:
                    return view(request, **named)
                except REFUSED as error:
                    return show_refusal(request, error)
                finally:
                    request.method = came_as

        setattr(page, _METHODS, methods)
        return csrf_protect(page)

    return wrap


def page_above(path: str) -> str:
    """The nearest page above an address that takes forms alone: `/console/a/1/keys` of `/console/a/1/keys/new`."""
    parts = path.split("/")
    for count in range(len(parts) - 1, 2, -1):
        above = "/".join(parts[:count])
        for page in (above, f"{above}/"):
            with suppress(Resolver404):
                if "GET" in getattr(resolve(page).func, _METHODS, ()):
                    return page
    return "/console/"


def person_page(*methods: str) -> Callable[[View], View]:
    """`view(request, visit, ...)`, for a person who is signed in."""

    def wrap(view: View) -> View:
        @functools.wraps(view)
        def page(request: HttpRequest, **named: Any) -> HttpResponseBase:
            session = session_of(request)
            if session is None:
                return to_sign_in(request)
            visit = Visit(session, origin_of(request), request.is_secure())
            note_visit(request, visit)
            return view(request, visit, **named)

        return open_page(*methods)(page)

    return wrap


def account_page(act: Act, *methods: str, does: str = "") -> Callable[[View], View]:
    """`view(request, visit, ...)`, for a member whose role and policies allow the act; on the page of a queue (`name`)
    for that queue, and `does`, the action of policies that the page is for, as well. An account of others is not
    found. Where nothing may change, because the account is not active, a POST is refused."""

    def refuse(request: HttpRequest, visit: AccountVisit, item: str) -> HttpResponse | None:
        if not visit.may(act):
            return denied(request, visit, act)
        return denied(request, visit, act, does) if does and not visit.may_do(does) else None

    return _page_of_account(refuse, *methods)


def operation_page(operation: str, *methods: str) -> Callable[[View], View]:
    """The same for a member who may do a management operation with the key, policy or group that the address names. A
    view that changes something asks for the operation that does (`visit.require`)."""

    def refuse(request: HttpRequest, visit: AccountVisit, item: str) -> HttpResponse | None:
        refusal = visit.refusal(operation, item)
        return None if refusal is None else not_allowed(request, visit, operation, refusal)

    return _page_of_account(refuse, *methods)


def queue_list_page(*methods: str) -> Callable[[View], View]:
    """The same for a member who may list queues, or to whom a policy opens some: `visit.search_queues` finds those."""

    def refuse(request: HttpRequest, visit: AccountVisit, item: str) -> HttpResponse | None:
        refusal = None if visit.finds_queues else visit.refusal("queues.list")
        return None if refusal is None else not_allowed(request, visit, "queues.list", refusal)

    return _page_of_account(refuse, *methods)


def _page_of_account(
    refuse: Callable[[HttpRequest, AccountVisit, str], HttpResponse | None], *methods: str
) -> Callable[[View], View]:
    def wrap(view: View) -> View:
        @functools.wraps(view)
        def page(request: HttpRequest, visit: Visit, account_id: str, **named: Any) -> HttpResponseBase:
            membership, acts_for = membership_of(visit.person, account_id), None
            if membership is None and visit.acting is not None and visit.acting.member.account_id == account_id:
                acts_for, membership = visit.acting, visit.acting.member
            if membership is None:
                raise NoAccountHere
            inside = AccountVisit(visit, membership, named.get("name"), acts_for)
            note_visit(request, inside)
            refusal = refuse(request, inside, next((named[one] for one in ITEMS if one in named), ""))
            if refusal is not None:
                return refusal
            if request.method == "POST" and not inside.is_active:
                raise PeopleError("account-not-active", f"The account is {inside.state}: nothing in it can be changed.")
            return view(request, inside, **named)

        return person_page(*methods)(page)

    return wrap


def operator_page(*methods: str) -> Callable[[View], View]:
    """`view(request, visit, ...)`, for operators. To all others there is no such page."""

    def wrap(view: View) -> View:
        @functools.wraps(view)
        def page(request: HttpRequest, visit: Visit, **named: Any) -> HttpResponseBase:
            if not visit.is_operator:
                raise Http404
            return view(request, visit, **named)

        return person_page(*methods)(page)

    return wrap


def require_recent_sign_in(visit: Visit) -> None:
    """For changes of security settings. Raises PeopleError, which becomes the page that asks for the password."""
    require_recent(visit.session, clock.now())


def is_part(request: HttpRequest) -> bool:
    """Does htmx ask for a piece of the page?"""
    asks = request.headers
    return "HX-Request" in asks and "HX-Boosted" not in asks and "HX-History-Restore-Request" not in asks


def told(target: str, text: str, kind: str = "good") -> HttpResponse:
    """To another page, which says this once."""
    return notices.leave(HttpResponseRedirect(target), text, kind)


def to_sign_in(request: HttpRequest) -> HttpResponse:
    asked = request.get_full_path() if request.method == "GET" and not is_part(request) else ""
    target = "/console/sign-in" + (f"?{urlencode({'next': asked})}" if asked not in ("", "/console/") else "")
    if is_part(request):
        return HttpResponse(status=204, headers={"HX-Redirect": target})
    return HttpResponseRedirect(target)


def denied(request: HttpRequest, visit: AccountVisit, act: Act, does: str = "") -> HttpResponse:
    """`does`: the action of policies that is refused, where the act itself is not."""
    visit.note_refusal(does or act.value, visit.arn_of(does or act.value))
    roles = ", ".join(role for role in roles_that_may(act) if not does or gives(role, does))
    if does:
        text = f"Your role and policies in this account do not allow {does} with this queue."
        return show(request, ErrorNotice(403, text, f"These roles do: {roles}. Ask an owner or admin of the account."))
    text = f"Your role in this account does not allow you to {_ACTS_IN_WORDS.get(act, str(act))}."
    return show(request, ErrorNotice(403, text, f"These roles do: {roles}. Ask an owner or admin of the account."))


def not_allowed(request: HttpRequest, visit: AccountVisit, operation: str, refusal: AccessDenied) -> HttpResponse:
    """What `denied` is to acts."""
    visit.note_refusal(refusal.action, refusal.arn)
    demands = MANAGEMENT_OPERATIONS[operation]
    roles = ", ".join(role for role in MemberRole if all(gives(role, demand.action) for demand in demands))
    actions = ", ".join(demand.action for demand in demands)
    text = f"Your role and policies in this account do not allow {actions} here."
    return show(request, ErrorNotice(403, text, f"These roles do: {roles}. Ask an owner or admin of the account."))


def show_refusal(request: HttpRequest, error: Exception) -> HttpResponse:
    if isinstance(error, PeopleError) and error.code == "recent-authentication-required":
        back = request.headers.get("Referer", "").partition("/console")[2]
        target = "/console/again?" + urlencode({"next": f"/console{back}" if back else request.path})
        if is_part(request):
            return HttpResponse(status=204, headers={"HX-Redirect": target})
        return HttpResponseRedirect(target)
    _note(request, error)
    return show(request, notice_of(error))


def _note(request: HttpRequest, error: Exception) -> None:
    visit = getattr(request, "visit", None)
    if isinstance(error, AccessDenied) and error.action and isinstance(visit, AccountVisit):
        visit.note_refusal(error.action, error.arn)
    elif isinstance(error, ActDenied):
        note_refusals([member_refusal(error.account_id, error.person_id, error.act, origin_of(request))])


def show(request: HttpRequest, refusal: ErrorNotice) -> HttpResponse:
    template = "console/parts/refusal.html" if is_part(request) else "console/refused.html"
    answer = render(request, template, {"refusal": refusal}, status=refusal.status)
    return answer
