"""Billing as operators see it: months and their closing, accounts, what settled usage, prices."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import date, datetime
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from api import clock
from api.billing import operator_selectors, selectors
from api.billing.actions.invoices import correct_invoice
from api.billing.actions.payments import record_payment
from api.billing.actions.plans import (
    add_plan_version,
    assign_plan,
    ensure_standard_plan,
    grant_credit,
    withdraw_assignment,
    withdraw_plan_version,
)
from api.billing.errors import BillingError, invalid, not_found
from api.billing.plan_reads import plans_of, why_unused
from api.billing.preview import MonthPreview, preview_month, terms_given
from api.billing.price_words import plan_words
from api.billing.pricing.money import format_minor, format_percent, parse_minor, parse_percent
from api.billing.pricing.periods import BillingPeriod, Interval
from api.billing.pricing.terms import STANDARD_TERMS, terms_document
from api.billing.provisional import meter_reading
from api.clock import parse_time
from api.people.operator_selectors import account_row
from console.error_notices import notice_of
from console.page_times import before_asked, month_asked, months_since
from console.pages import operator_page, require_recent_sign_in, told
from console.templatetags.money import minor
from console.views.invoices import with_notes
from console.visits import Visit

PREVIEWED_MAX = 10
INVOICES_SHOWN = 24
_BASE = "/console/operators/billing"


@operator_page("GET")
def months(request: HttpRequest, visit: Visit) -> HttpResponse:
    now = clock.now()
    shown = {
        "tab": "months",
        "months": operator_selectors.month_states(now),
        "differences": operator_selectors.invoice_differences(),
        "differences_max": operator_selectors.DIFFERENCES_LISTED_MAX,
        "unpaid": operator_selectors.unpaid_invoices(),
        "unpaid_max": operator_selectors.UNPAID_LISTED_MAX,
        "settled_up_to": selectors.settled_up_to(),
        "reading": meter_reading(),
        "provisional": operator_selectors.provisional_rows(),
        "provisional_max": operator_selectors.COUNTED_MAX,
    }
    return render(request, "console/operators/billing/months.html", shown)


@operator_page("GET")
def accounts(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Those that are charged most, and those whose last day was unusual."""
    period = month_asked(request)
    shown = {
        "tab": "accounts",
        "period": period,
        "months": _months(),
        "top": operator_selectors.top_accounts(period),
        "unusual": operator_selectors.unusual_accounts(selectors.settled_up_to()),
    }
    return render(request, "console/operators/billing/accounts.html", shown)


@operator_page("GET")
def settling(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Runs of Spark and their settlements, and the records that are not billed."""
    period = month_asked(request)
    shown = {
        "tab": "settling",
        "period": period,
        "months": _months(),
        "runs": operator_selectors.usage_runs(before_asked(request)),
        "settled_up_to": selectors.settled_up_to(),
        "counts": selectors.quarantine_of(None, Interval(*period)),
        "records": selectors.quarantined(Interval(*period)),
    }
    return render(request, "console/operators/billing/settling.html", shown)


@operator_page("GET", "POST")
def one_account(request: HttpRequest, visit: Visit, account_id: str) -> HttpResponse:
    row = account_row(account_id)
    if row is None:
        raise Http404
    refusal = None
    if request.method == "POST":
        require_recent_sign_in(visit)
        try:
            return told(
                f"{_BASE}/accounts/{account_id}", _CHANGES[request.POST.get("what", "")](request, visit, account_id)
            )
        except KeyError:
            raise Http404 from None
        except BillingError as error:
            refusal = notice_of(error)
    plans = plans_of(account_id)
    shown = {
        "tab": "accounts",
        "row": row,
        "refusal": refusal,
        "plans": plans,
        "codes": [plan.plan.pk for plan in operator_selectors.price_plans()],
        "credits": selectors.credits_of(account_id),
        "invoices": (found := selectors.invoices_of(account_id, None, INVOICES_SHOWN)),
        "listed": with_notes(found),
        "given": request.POST,
        "today": clock.now(),
    }
    status = refusal.status if refusal else 200
    return render(request, "console/operators/billing/account.html", shown, status=status)


@operator_page("GET")
def plans(request: HttpRequest, visit: Visit) -> HttpResponse:
    ensure_standard_plan()
    return render(
        request, "console/operators/billing/plans.html", {"tab": "prices", "plans": operator_selectors.price_plans()}
    )


@operator_page("GET", "POST")
def new_plan(request: HttpRequest, visit: Visit) -> HttpResponse:
    return _plan_page(request, visit, None)


@operator_page("GET", "POST")
def one_plan(request: HttpRequest, visit: Visit, code: str) -> HttpResponse:
    found = operator_selectors.price_plan(code)
    if found is None:
        raise Http404
    return _plan_page(request, visit, found)


def _plan_page(request: HttpRequest, visit: Visit, found: operator_selectors.PlanRow | None) -> HttpResponse:
    """A version is looked at before it is added: the same form does both."""
    previews: list[MonthPreview] = []
    refusal = None
    given = {
        name: request.POST.get(name, "").replace("\0", "").strip()
        for name in ("code", "name", "terms", "since", "account", "period")
    }
    if request.method == "POST":
        try:
            if request.POST.get("what") == "withdraw" and found is not None:
                return _withdraw_version(visit, found)
            if request.POST.get("what") != "preview":
                return _add_version(visit, found, given)
            previews = _previews(given)
        except BillingError as error:
            refusal = notice_of(error)
    else:
        document = found.versions[-1].terms if found else terms_document(STANDARD_TERMS)
        given["terms"] = json.dumps(document, indent=2)
    shown = {
        "tab": "prices",
        "plan": found,
        "versions": [plan_words(version) for version in reversed(found.versions)] if found else [],
        "now": clock.now(),
        "given": given,
        "refusal": refusal,
        "previews": previews,
        "months": _months(),
    }
    return render(request, "console/operators/billing/plan.html", shown, status=refusal.status if refusal else 200)


def _add_version(visit: Visit, found: operator_selectors.PlanRow | None, given: dict[str, str]) -> HttpResponse:
    """Raises BillingError."""
    require_recent_sign_in(visit)
    code, name = (found.plan.pk, found.plan.name) if found else (given["code"], given["name"])
    if found is None and operator_selectors.price_plan(code) is not None:
        raise BillingError("already-there", f"A plan {code} exists already.")
    since = None if found is None else _hour(given["since"])
    made = add_plan_version(visit.actor, code, name, _document(given["terms"]), since)
    if found is None:
        return told(f"{_BASE}/plans/{code}", f"The plan {code} is created.")
    replaced = "is replaced: it " if found.had(made) else ""
    since_text = f"{made.effective_from:%Y-%m-%d %H:%M} UTC"
    return told(f"{_BASE}/plans/{code}", f"{made} {replaced}applies from {since_text} on.")


def _withdraw_version(visit: Visit, found: operator_selectors.PlanRow) -> HttpResponse:
    """Raises BillingError."""
    require_recent_sign_in(visit)
    withdrawn = withdraw_plan_version(visit.actor, found.plan.pk)
    return told(f"{_BASE}/plans/{found.plan.pk}", f"{withdrawn} is withdrawn.")


def _previews(given: dict[str, str]) -> list[MonthPreview]:
    """Of the account that is named, or of those that are charged most. Raises BillingError."""
    ensure_standard_plan()
    terms = terms_given(_document(given["terms"]))
    found = operator_selectors.accounts_billed_most(_period(given["period"]), given["account"], PREVIEWED_MAX)
    if not found:
        raise invalid("no such account has an invoice or a draft of this month")
    made = [preview_month(account, _period(given["period"]), terms) for account, _ in found]
    return [one for one in made if one is not None]


# --- changes of one account: what the page says when it is done. They raise BillingError. ---


def _assign(request: HttpRequest, visit: Visit, account_id: str) -> str:
    taxes: list[dict[str, Any]] = []
    for line in request.POST.get("taxes", "").splitlines():
        name, _, rate = line.strip().rpartition("=")
        if line.strip():
            taxes.append({"name": name.strip(), "rate_ppm": _rate_ppm(rate)})
    since = request.POST.get("since", "").strip()
    made = assign_plan(visit.actor, account_id, request.POST.get("code", ""), _hour(since) if since else None, taxes)
    rates = ", ".join(f"{tax['name']} {format_percent(tax['rate_ppm'])} %" for tax in taxes) or "without a tax"
    return f"The account has the plan {made.plan_id} from {made.effective_from:%Y-%m-%d %H:%M} UTC on, {rates}."


def _withdraw(request: HttpRequest, visit: Visit, account_id: str) -> str:
    withdrawn = withdraw_assignment(visit.actor, account_id)
    return f"The account will not have the plan {withdrawn.plan_id}: what it had before goes on."


def _rate_ppm(text: str) -> int:
    try:
        return parse_percent(text)
    except ValueError:
        raise invalid("a tax is written in percent, like VAT=19") from None


def _credit(request: HttpRequest, visit: Visit, account_id: str) -> str:
    amount = _whole(request.POST.get("amount_minor", "").strip(), "the amount is a whole number of minor units")
    ends = request.POST.get("ends", "").strip()
    name, currency = request.POST.get("name", "").strip(), request.POST.get("currency", "").strip()
    grant_credit(visit.actor, account_id, name, currency, amount, _hour(ends) if ends else None)
    return f"The credit {name} is granted. {why_unused(account_id, currency)}".strip()


def _correct(request: HttpRequest, visit: Visit, account_id: str) -> str:
    reason = request.POST.get("reason", "").strip()
    note = correct_invoice(visit.actor, account_id, _invoice_id(request), reason)
    if note is None:
        return "There is nothing to correct: the usage says what was billed."
    return f"{note.number} is issued, a {note.kind} note."


def _pay(request: HttpRequest, visit: Visit, account_id: str) -> str:
    found = selectors.invoice_of(account_id, _invoice_id(request))
    if found is None:
        raise not_found()
    text = request.POST.get("amount", "").replace("\0", "").strip()
    if not text and found.due_minor <= 0:
        # A credit note may have left less than nothing: what goes back is written with its minus.
        raise BillingError("over-limit", f"Nothing of {found.number or 'a draft'} is due.")
    is_back = text.startswith("-")
    try:
        amount = parse_minor(text.removeprefix("-"), found.currency) if text else found.due_minor
        received = date.fromisoformat(request.POST.get("received", ""))
    except ValueError:
        says = f"an amount is written like {format_minor(5000, found.currency)}, a day like 2026-12-03"
        raise invalid(says) from None
    reference = request.POST.get("reference", "").strip()
    made = record_payment(visit.actor, account_id, found.pk, -amount if is_back else amount, received, reference)
    state = "is paid" if made.invoice.is_paid else f"has {minor(made.invoice.due_minor, found.currency)} due"
    return f"The payment is recorded: {found.number} {state}."


_CHANGES: dict[str, Callable[[HttpRequest, Visit, str], str]] = {
    "assign": _assign,
    "withdraw": _withdraw,
    "credit": _credit,
    "correct": _correct,
    "pay": _pay,
}


def _invoice_id(request: HttpRequest) -> uuid.UUID:
    try:
        return uuid.UUID(request.POST.get("invoice", ""))
    except ValueError:
        raise invalid("choose an invoice") from None


def _document(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise invalid(f"the terms are no JSON: {error}") from None


def _hour(text: str) -> datetime:
    try:
        return parse_time(text)
    except ValueError:
        raise invalid("a time is written like 2026-12-01T00:00, in UTC") from None


def _whole(text: str, says: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise invalid(says)
    return int(text)


def _period(text: str) -> BillingPeriod:
    found = next((one for one in _months() if one.name == text), None)
    if found is None:
        raise invalid("choose a month")
    return found


def _months() -> list[BillingPeriod]:
    opened = selectors.first_account_opened()
    return months_since(opened or clock.now())
