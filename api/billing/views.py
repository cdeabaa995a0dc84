"""REST: usage, invoices, budgets, plans and credits of the account that asks."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.exceptions import APIException, NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from api import clock
from api.accounts.models import Account
from api.accounts.views import PAGE_PARAMETERS
from api.billing import selectors
from api.billing.actions import budgets, parties
from api.billing.actions.plans import ensure_standard_plan
from api.billing.documents.content import invoice_content, streamed_content, tag_shares
from api.billing.documents.invoice_csv import invoice_csv, note_csv
from api.billing.documents.invoice_pdf import invoice_pdf, note_pdf
from api.billing.documents.note_content import note_document, note_file_name
from api.billing.errors import BillingError
from api.billing.meter import cost_meter
from api.billing.models import BudgetEffect, CreditNote, Invoice
from api.billing.parties import buyer_row
from api.billing.plan_reads import plans_of
from api.billing.pricing.money import CURRENCIES
from api.billing.pricing.periods import BillingPeriod, Interval, parse_period, period_of
from api.billing.serializers import (
    AccountPlansSerializer,
    BillingCreditsSerializer,
    BudgetEventsSerializer,
    BudgetRequestSerializer,
    BudgetSerializer,
    BudgetsSerializer,
    BuyerRequestSerializer,
    BuyerSerializer,
    CostMeterSerializer,
    InvoiceDocumentSerializer,
    InvoicePageSerializer,
    NoteDocumentSerializer,
    UsagePageSerializer,
)
from api.internal.rest import caller
from api.operation_view import OperationView, Tagged
from api.pages import page_asked, text_asked

PERIOD = OpenApiParameter("period", OpenApiTypes.STR, description="A month like 2026-11; the current one if not given.")
_CSV, _PDF = "text/csv; charset=utf-8", "application/pdf"
TAG = OpenApiParameter("tag", OpenApiTypes.STR, description="Also what each value of this queue tag costs.")


class _Refused(APIException):
    """A BillingError in the form that `api/problems.py` writes."""

    def __init__(self, error: BillingError) -> None:
        super().__init__(error.detail)
        self.status_code = error.status
        self.default_code = error.code


class BillingView(OperationView):
    def handle_exception(self, exc: Exception) -> Response:
        return super().handle_exception(_Refused(exc) if isinstance(exc, BillingError) else exc)


class UsageView(BillingView):
    @extend_schema(operation_id="usage.get", parameters=[PERIOD, *PAGE_PARAMETERS], responses=UsagePageSerializer)
    def get(self, request: Request) -> Response:
        """Settled usage of a month per queue and origin. A page ends between queues."""
        account_id, period, page = caller(request).account_id, _period(request), page_asked(request)
        interval = Interval(*period)
        # Before the rows: they may hold more than this says, never less.
        settled = selectors.settled_up_to()
        after = uuid.UUID(page.after) if page.after else None
        found = selectors.used_queues(account_id, interval, after, page.size + 1)
        shown = found[: page.size]
        content = {
            "period": period.name,
            "settled_up_to": settled,
            "usage": [
                {**line._asdict(), "queue": line.queue_name} for line in selectors.usage_of(account_id, interval, shown)
            ],
            "quarantined": [count._asdict() for count in selectors.quarantine_of(account_id, interval)],
            "next_page_token": page.token(shown[-1]) if len(found) > page.size else None,
        }
        return Response(UsagePageSerializer(content).data)


METER_BEHIND = "What was used since `as_of` may not be counted yet."


class MeterView(BillingView):
    @extend_schema(operation_id="meter.get", responses=CostMeterSerializer)
    def get(self, request: Request) -> Response:
        """What the current month costs so far: settled usage, and what was counted since."""
        ensure_standard_plan()
        account, now = Account.objects.get(pk=caller(request).account_id), clock.now()
        found = cost_meter(account, period_of(now), now, queues=())
        if found is None:
            raise NotFound
        content = {
            **found._asdict(),
            "period": found.period.name,
            "minor_digits": CURRENCIES[found.currency],
            # The reason names storage nodes: it is the operators' (`meter_incomplete` in the log, `report ... --now`).
            "missing": METER_BEHIND if found.missing else "",
        }
        return Response(CostMeterSerializer(content).data)


class InvoicesView(BillingView):
    @extend_schema(operation_id="invoices.list", parameters=PAGE_PARAMETERS, responses=InvoicePageSerializer)
    def get(self, request: Request) -> Response:
        """The account's invoices, the latest month first; that of the current month is a draft. Each has the notes that
        correct it; `document` says what is what."""
        page = page_asked(request)
        before = datetime.fromisoformat(page.after) if page.after else None
        found = selectors.invoices_of(caller(request).account_id, before, page.size + 1)
        shown = found[: page.size]
        token = page.token(shown[-1].period_start.isoformat()) if len(found) > page.size else None
        return Response(InvoicePageSerializer({"invoices": shown, "next_page_token": token}).data)


class InvoiceView(BillingView):
    @extend_schema(operation_id="invoices.get", parameters=[TAG], responses=InvoiceDocumentSerializer)
    def get(self, request: Request, invoice_id: uuid.UUID) -> Response:
        """An invoice with its lines, each queue's share and its corrections."""
        invoice = _invoice(request, invoice_id)
        content = _content(invoice)
        tag = text_asked(request, "tag")
        if tag:
            content["tags"] = tag_shares(invoice, tag)
        return Response(content)


class InvoiceCsvView(BillingView):
    @extend_schema(
        operation_id="invoices.csv", responses={(200, "text/csv"): OpenApiResponse(OpenApiTypes.STR, "The lines.")}
    )
    def get(self, request: Request, invoice_id: uuid.UUID) -> HttpResponse:
        """An invoice's lines and its queues' shares, a row each."""
        invoice = _invoice(request, invoice_id)
        return _file(f"{_name(invoice)}.csv", invoice_csv(_streamed(invoice)).encode(), _CSV)


class InvoicePdfView(BillingView):
    @extend_schema(
        operation_id="invoices.pdf",
        responses={(200, "application/pdf"): OpenApiResponse(OpenApiTypes.BINARY, "The document.")},
    )
    def get(self, request: Request, invoice_id: uuid.UUID) -> HttpResponse:
        """An invoice to be printed."""
        invoice = _invoice(request, invoice_id)
        return _file(f"{_name(invoice)}.pdf", invoice_pdf(_streamed(invoice)), _PDF)


class NoteView(BillingView):
    @extend_schema(operation_id="notes.get", responses=NoteDocumentSerializer)
    def get(self, request: Request, note_id: uuid.UUID) -> Response:
        """A credit or debit note: what it corrects of which invoice."""
        return Response(note_document(_note(request, note_id)))


class NoteCsvView(BillingView):
    @extend_schema(
        operation_id="notes.csv", responses={(200, "text/csv"): OpenApiResponse(OpenApiTypes.STR, "The lines.")}
    )
    def get(self, request: Request, note_id: uuid.UUID) -> HttpResponse:
        """A note's lines, and the quantities that were billed wrongly, a row each."""
        note = _note(request, note_id)
        return _file(f"{note_file_name(note)}.csv", note_csv(note_document(note)).encode(), _CSV)


class NotePdfView(BillingView):
    @extend_schema(
        operation_id="notes.pdf",
        responses={(200, "application/pdf"): OpenApiResponse(OpenApiTypes.BINARY, "The document.")},
    )
    def get(self, request: Request, note_id: uuid.UUID) -> HttpResponse:
        """A note to be printed."""
        note = _note(request, note_id)
        return _file(f"{note_file_name(note)}.pdf", note_pdf(note_document(note)), _PDF)


class BudgetsView(BillingView):
    @extend_schema(operation_id="budgets.list", responses=BudgetsSerializer)
    def get(self, request: Request) -> Response:
        """The account's budgets, and what those that are used up do to the account and its queues."""
        account_id = caller(request).account_id
        in_force = selectors.effects_in_force(account_id)
        found = {
            "sending_stopped": any(one.queue_uuid is None and one.effect == BudgetEffect.STOP for one in in_force),
            "in_force": in_force,
            "lifted": selectors.lifted_stop(account_id),
            "budgets": selectors.budgets_of(account_id),
        }
        return Response(BudgetsSerializer(found).data)


class BudgetView(BillingView):
    tagged = Tagged(creates=True)

    @extend_schema(operation_id="budgets.get", responses=BudgetSerializer)
    def get(self, request: Request, name: str) -> Response:
        budget = selectors.budget_of(caller(request).account_id, name)
        if budget is None:
            raise NotFound
        return Response(BudgetSerializer(budget).data)

    @extend_schema(
        operation_id="budgets.put",
        request=BudgetRequestSerializer,
        responses={200: BudgetSerializer, 201: BudgetSerializer},
    )
    def put(self, request: Request, name: str) -> Response:
        """Creates or replaces a budget of each month's charges. Its alerts come again after a change."""
        asked = BudgetRequestSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        who = caller(request)
        budget, is_new = budgets.put_budget(who, who.account_id, name, asked.spec())
        return Response(BudgetSerializer(budget).data, status=201 if is_new else 200)

    @extend_schema(operation_id="budgets.delete", responses={204: None})
    def delete(self, request: Request, name: str) -> Response:
        """Deletes a budget. What it stopped or throttled is free again."""
        who = caller(request)
        if not budgets.delete_budget(who, who.account_id, name):
            raise NotFound
        return Response(status=204)


class BudgetEventsView(BillingView):
    @extend_schema(operation_id="budgets.events", parameters=[PERIOD], responses=BudgetEventsSerializer)
    def get(self, request: Request) -> Response:
        """Levels that budgets reached in a month, the latest first."""
        period = _period(request)
        events = selectors.budget_events_of(caller(request).account_id, period)
        return Response(BudgetEventsSerializer({"period": period.name, "events": events}).data)


class BuyerView(BillingView):
    tagged = Tagged(creates=True)

    @extend_schema(operation_id="buyer.get", responses=BuyerSerializer)
    def get(self, request: Request) -> Response:
        """Who invoices say the account is. Without one they have the account's title and id alone."""
        found = buyer_row(caller(request).account_id)
        if found is None:
            raise NotFound
        return Response(BuyerSerializer(found).data)

    @extend_schema(
        operation_id="buyer.put",
        request=BuyerRequestSerializer,
        responses={200: BuyerSerializer, 201: BuyerSerializer},
    )
    def put(self, request: Request) -> Response:
        """Names the buyer on drafts, invoices and notes that are made from now on."""
        asked = BuyerRequestSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        who = caller(request)
        made, is_new = parties.name_buyer(who, who.account_id, asked.party())
        return Response(BuyerSerializer(made).data, status=201 if is_new else 200)

    @extend_schema(operation_id="buyer.delete", responses={204: None})
    def delete(self, request: Request) -> Response:
        """Names nobody from now on."""
        who = caller(request)
        if not parties.remove_party(who, who.account_id):
            raise NotFound
        return Response(status=204)


class PlansView(BillingView):
    @extend_schema(operation_id="plans.list", responses=AccountPlansSerializer)
    def get(self, request: Request) -> Response:
        """The account's plans since it was opened, with all versions of their terms and their taxes."""
        return Response(AccountPlansSerializer({"plans": plans_of(caller(request).account_id)}).data)


class CreditsView(BillingView):
    @extend_schema(operation_id="credits.list", responses=BillingCreditsSerializer)
    def get(self, request: Request) -> Response:
        """The account's credits, and what is left of each."""
        fields = ("name", "currency", "amount_minor", "granted_at", "ends_at")
        found = [
            {**{field: getattr(credit, field) for field in fields}, "left_minor": left}
            for credit, left in selectors.credits_of(caller(request).account_id)
        ]
        return Response(BillingCreditsSerializer({"credits": found}).data)


def _invoice(request: Request, invoice_id: uuid.UUID) -> Invoice:
    invoice = selectors.invoice_of(caller(request).account_id, invoice_id)
    if invoice is None:
        raise NotFound
    return invoice


def _note(request: Request, note_id: uuid.UUID) -> CreditNote:
    note = selectors.note_of(caller(request).account_id, note_id)
    if note is None:
        raise NotFound
    return note


def _content(invoice: Invoice) -> dict[str, Any]:
    return invoice_content(invoice, selectors.notes_of(invoice.account_id, invoice.pk))


def _streamed(invoice: Invoice) -> dict[str, Any]:
    return streamed_content(invoice, selectors.notes_of(invoice.account_id, invoice.pk))


def _name(invoice: Invoice) -> str:
    return f"invoice-{invoice.number or f'draft-{invoice.period_start:%Y-%m}'}"


def _file(name: str, content: bytes, content_type: str) -> HttpResponse:
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return HttpResponse(content, content_type=content_type, headers=headers)


def _period(request: Request) -> BillingPeriod:
    name = text_asked(request, "period")
    try:
        return parse_period(name) if name else period_of(clock.now())
    except ValueError as error:
        raise ValidationError({"period": str(error)}) from None
