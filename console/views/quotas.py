"""The quotas of an account: what is in use, and requests for more."""

from __future__ import annotations

from typing import NamedTuple

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from api.quotas import actions, selectors
from api.quotas.errors import QuotaProblem
from api.quotas.models import QuotaNotice
from api.quotas.selectors import Quota
from console.error_notices import notice_of
from console.pages import operation_page, told
from console.visits import AccountVisit
from frontend.limits.quotas import (
    ACCOUNT_RATES,
    COUNTS,
    KEY_RATES,
    QUEUE_RATES,
    SOFT_LEVEL_PERCENT,
    QuotaUnit,
    Rates,
    given_rates,
)

REQUESTS_SHOWN = 20
# Of queues, and of keys.
SINGLE_SHOWN_MAX = 200
_DIGITS_MAX = 18
_SECTIONS = (
    ("Account", ACCOUNT_RATES),
    ("Shared resources", COUNTS),
    ("Each key", KEY_RATES),
    ("Each queue", QUEUE_RATES),
)


class QuotaRow(NamedTuple):
    """`percent` None: its use is not counted here."""

    quota: Quota
    notice: QuotaNotice | None
    percent: int | None

    @property
    def is_bytes(self) -> bool:
        return self.quota.kind.unit in (QuotaUnit.BYTES, QuotaUnit.BYTES_PER_S)

    @property
    def is_rate(self) -> bool:
        return self.quota.kind.unit.value.endswith("/s")

    @property
    def level(self) -> str:
        """As a badge has it."""
        if self.percent is None or self.percent < SOFT_LEVEL_PERCENT:
            return ""
        return "bad" if self.percent >= 100 else "warn"


class SingleRow(NamedTuple):
    """A queue or key that has quotas of its own."""

    what: str
    name: str
    address: str
    rates: Rates


@operation_page("quotas.list", "GET", "POST")
def quotas(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    refusal = None
    if request.method == "POST":
        visit.require("quotas.ask")
        form = request.POST
        value, reason = whole_number(form.get("value", "")), form.get("reason", "").strip()
        try:
            asked = actions.request_quota(visit.actor, visit.account_id, form.get("name", ""), value, reason)
            return told(f"/console/a/{visit.account_id}/quotas", f"Your request for {asked.name} is with the operator.")
        except QuotaProblem as error:
            refusal = notice_of(error)
    holder = selectors.holder_of(visit.account_id)
    shown = {
        "sections": sections_of(visit.account_id),
        "stopped": "" if holder is None else holder.sending_stopped,
        "sends_per_s": 0 if holder is None else holder.sends_per_s,
        "single": _single_rows(visit),
        "asks": visit.may_change_with("quotas.ask"),
        "requests": selectors.requests_of(visit.account_id, None, REQUESTS_SHOWN),
        "form": request.POST or request.GET,
        "refusal": refusal,
    }
    return render(request, "console/quotas/index.html", shown, status=refusal.status if refusal else 200)


def sections_of(account_id: str) -> list[tuple[str, list[QuotaRow]]]:
    """All quotas of an account, under titles."""
    found = {quota.kind.name: quota for quota in selectors.quotas_in_use(account_id)}
    notices = selectors.notices_of(account_id)
    return [(title, [_row(found[kind.name], notices.get(kind.name)) for kind in kinds]) for title, kinds in _SECTIONS]


def _single_rows(visit: AccountVisit) -> list[SingleRow]:
    """Queues and keys with quotas of their own that the visitor may see: not those that a policy hides."""
    base = f"/console/a/{visit.account_id}"
    rows = []
    for of_queue in selectors.queues_with_quotas(visit.account_id, SINGLE_SHOWN_MAX):
        name = of_queue.queue.name
        if visit.allows_on_queue("queues.get_quotas", name):
            rows.append(SingleRow("queue", name, f"{base}/queues/{name}/quotas", given_rates(of_queue.given)))
    for of_key in selectors.keys_with_quotas(visit.account_id, SINGLE_SHOWN_MAX):
        if visit.allows("keys.get_quotas", of_key.key_id):
            address = f"{base}/keys/{of_key.key_id}"
            rows.append(SingleRow("key", of_key.key.name, address, given_rates(of_key.given)))
    return rows


def whole_number(text: str) -> int | None:
    """None for anything else: the action says what may stand there."""
    plain = text.strip().replace(",", "")
    return int(plain) if plain.isascii() and plain.isdigit() and len(plain) <= _DIGITS_MAX else None


def _row(quota: Quota, notice: QuotaNotice | None) -> QuotaRow:
    percent = None if quota.in_use is None or not quota.value else quota.in_use * 100 // quota.value
    return QuotaRow(quota, notice, percent)
