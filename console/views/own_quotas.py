"""Quotas of one queue, and the form of quotas that the pages of queues and keys have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from api.quotas import selectors, single
from api.quotas.errors import QuotaProblem
from api.quotas.selectors import OwnQuotas
from console.error_notices import notice_of
from console.pages import operation_page, told
from console.views.queue import tab_of
from console.views.queue_forms import queue_or_404, queue_url
from console.views.quotas import whole_number
from console.visits import AccountVisit
from frontend.limits.quotas import SINGLE_QUOTAS, QuotaKind


class RateField(NamedTuple):
    """`given`: as it is written in the form; `in_force`: with what the account has."""

    kind: QuotaKind
    given: str
    in_force: int | None


@operation_page("queues.get_quotas", "GET", "POST")
def queue_quotas(request: HttpRequest, visit: AccountVisit, name: str) -> HttpResponse:
    queue = queue_or_404(visit, name)
    refusal, written = None, None
    if request.method == "POST":
        visit.require("queues.put_quotas")
        written = request.POST
        try:
            single.set_queue_quotas(visit.actor, visit.account_id, name, quotas_given(request.POST))
            return told(queue_url(visit, name, "/quotas"), CHANGED)
        except QuotaProblem as error:
            refusal = notice_of(error)
    shown = {
        **tab_of(visit, queue, "quotas"),
        "rates": rate_fields(selectors.queue_quotas(visit.account_id, name), written),
        "sets": visit.may_change_with("queues.put_quotas"),
        "refusal": refusal,
    }
    return render(request, "console/quotas/queue.html", shown, status=refusal.status if refusal else 200)


CHANGED = "The quotas are changed. Front ends follow within a second."


def rate_fields(own: OwnQuotas | None, written: Mapping[str, str] | None = None) -> list[RateField]:
    """`written`: what stands in a form that was refused. None: what the queue or key has."""
    if own is None:
        return []
    fields = []
    for name, kind in SINGLE_QUOTAS.items():
        given, in_force = (getattr(rates, name) for rates in own)
        text = written.get(name, "") if written is not None else "" if given is None else str(int(given))
        fields.append(RateField(kind, text, in_force))
    return fields


def quotas_given(form: Mapping[str, str]) -> dict[str, int | None]:
    """What a form says; a field that is empty: none. Raises QuotaProblem."""
    given: dict[str, int | None] = {}
    for name in SINGLE_QUOTAS:
        text = form.get(name, "").strip()
        given[name] = whole_number(text)
        if text and given[name] is None:
            raise QuotaProblem(400, "invalid-request", f"{name} must be a whole number.")
    return given
