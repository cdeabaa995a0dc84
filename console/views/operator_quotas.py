"""The operator's side of quotas: values of accounts and of the installation, requests for more, sending that is
stopped."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from api.billing.actions.budget_effects import lift_stop
from api.people.operator_selectors import account_row
from api.quotas import actions, selectors
from api.quotas.errors import QuotaProblem
from console.error_notices import ErrorNotice, notice_of
from console.pages import operator_page, require_recent_sign_in, told
from console.views.quotas import QuotaRow, sections_of, whole_number
from console.visits import Visit
from frontend.limits.quotas import INSTALLATION

REQUESTS_SHOWN_MAX = 200


@operator_page("GET", "POST")
def account_quotas(request: HttpRequest, visit: Visit, account_id: str) -> HttpResponse:
    row = account_row(account_id)
    if row is None:
        raise Http404
    refusal = None
    here = f"/console/operators/accounts/{account_id}/quotas"
    if request.method == "POST":
        require_recent_sign_in(visit)
        try:
            return told(here, _change(request, visit, account_id))
        except QuotaProblem as error:
            refusal = notice_of(error)
    holder = selectors.holder_of(account_id)
    shown = {
        "row": row,
        "sections": sections_of(account_id),
        "given": {} if holder is None else holder.given,
        "stopped": "" if holder is None else holder.sending_stopped,
        "sends_per_s": 0 if holder is None else holder.sends_per_s,
    }
    return _page(request, shown, refusal)


@operator_page("GET", "POST")
def installation_quotas(request: HttpRequest, visit: Visit) -> HttpResponse:
    refusal = None
    if request.method == "POST":
        require_recent_sign_in(visit)
        try:
            return told("/console/operators/quotas", _set(request, visit, INSTALLATION))
        except QuotaProblem as error:
            refusal = notice_of(error)
    rows = [QuotaRow(quota, None, None) for quota in selectors.quotas_in_use(INSTALLATION)]
    holder = selectors.holder_of(INSTALLATION)
    given = {} if holder is None else holder.given
    return _page(request, {"sections": [("All accounts together", rows)], "given": given}, refusal)


@operator_page("GET", "POST")
def quota_requests(request: HttpRequest, visit: Visit) -> HttpResponse:
    refusal = None
    if request.method == "POST":
        require_recent_sign_in(visit)
        request_id = whole_number(request.POST.get("request", ""))
        if request_id is None:
            raise Http404
        is_approved = request.POST.get("what") == "approve"
        answer = request.POST.get("answer", "").strip()
        try:
            decided = actions.decide_request(visit.actor, request_id, is_approved, answer)
            text = f"The request for {decided.name} is {decided.state}."
            return told("/console/operators/quota-requests", text, "good" if is_approved else "warn")
        except QuotaProblem as error:
            refusal = notice_of(error)
    found = selectors.open_requests(REQUESTS_SHOWN_MAX)
    shown = {
        "requests": [(one, selectors.quota_value_or_none(one.account_id, one.name)) for one in found],
        "refusal": refusal,
    }
    return render(request, "console/quotas/requests.html", shown, status=refusal.status if refusal else 200)


def _change(request: HttpRequest, visit: Visit, account_id: str) -> str:
    """What was done. Raises QuotaProblem."""
    what = request.POST.get("what", "")
    if what == "stop":
        actions.stop_sending(visit.actor, account_id, request.POST.get("reason", "").strip())
        return "Sending is stopped. Receiving and deleting continue."
    if what == "resume":
        lift_stop(visit.actor, account_id)
        return "The account may send again."
    return _set(request, visit, account_id)


def _set(request: HttpRequest, visit: Visit, holder: str) -> str:
    """Raises QuotaProblem."""
    name = request.POST.get("name", "")
    if request.POST.get("what") == "default":
        actions.set_quotas(visit.actor, holder, {name: None})
        return f"{name} has its default again."
    value = whole_number(request.POST.get("value", ""))
    if value is None:
        raise QuotaProblem(400, "invalid-request", f"{name} must be a whole number.")
    actions.set_quotas(visit.actor, holder, {name: value})
    return f"{name} is {value:,} now. Front ends follow within a second."


def _page(request: HttpRequest, shown: dict[str, object], refusal: ErrorNotice | None) -> HttpResponse:
    context = {**shown, "refusal": refusal}
    return render(request, "console/quotas/operator.html", context, status=refusal.status if refusal else 200)
