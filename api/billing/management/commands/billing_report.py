"""`manage.py billing_report usage|invoice|quarantine --period 2026-11 [--account NAME] [--now]`: one JSON object;
`manage.py billing_report months`: the months that are open; `invoices --account NAME`: its invoices and notes. With
`--file pdf` or `csv` an invoice's document is in it, with `--note NUMBER` one of its notes, as `note`, and that one's
document; with `--by tag` and others the parts of usage, settled and not, as the console's page of usage has them.

What `./penstock report` shows. The quantities are the settled ones; `settled_up_to` says up to which hour. With `--now`
the hours that are not settled are there too, as `provisional`: as far as the live meter has read them, with the lines
that the invoice would have. Of usage the sums of both are there as `together`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection, transaction

from api import clock
from api.accounts.models import AccessKey, Account
from api.accounts.selectors import account_named
from api.billing import selectors
from api.billing.account_month import month_of, recomputed
from api.billing.actions.invoices import difference_of, draft_invoice, invoice_lines
from api.billing.actions.plans import ensure_standard_plan
from api.billing.documents.content import document_of, invoice_content, line_content, notes_in_order
from api.billing.documents.invoice_csv import invoice_csv, note_csv
from api.billing.documents.invoice_pdf import invoice_pdf, note_pdf
from api.billing.documents.note_content import note_document
from api.billing.due import is_billed
from api.billing.errors import BillingError
from api.billing.meter import cost_meter
from api.billing.models import InvoiceState
from api.billing.open_months import months_with_reasons
from api.billing.operator_selectors import invoice_differences
from api.billing.pricing.meters import UsageMeter
from api.billing.pricing.money import format_minor, format_nanos
from api.billing.pricing.periods import BillingPeriod, Interval, parse_period, period_of
from api.billing.provisional import answer_now, meter_reading, provisional_quantities_of
from api.billing.usage_reports import UsageAsked, UsageCut, queues_for, requests_by_key, usage_parts
from api.billing.work_notes import Work, work_failures, work_rounds
from api.clock import parse_time

BY_KEY = "key"
# Ten years of months.
INVOICES_LISTED_MAX = 120
_CUTS = (UsageCut.DAY.value, UsageCut.ORIGIN.value, UsageCut.TAG.value)
_FILES: dict[str, Callable[[dict[str, Any]], bytes]] = {
    "csv": lambda content: invoice_csv(content).encode(),
    "pdf": invoice_pdf,
}
_NOTE_FILES: dict[str, Callable[[dict[str, Any]], bytes]] = {
    "csv": lambda content: note_csv(content).encode(),
    "pdf": note_pdf,
}


class Command(BaseCommand):
    help = "Settled usage or the invoice of an account and month, what is not billed, which months are open."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("what", choices=["usage", "invoice", "invoices", "quarantine", "months"])
        parser.add_argument("--account", default="", help="name or id of the account; quarantine: of all without it")
        parser.add_argument(
            "--period", default="", help="a month like 2026-11; all but `months` and `invoices` need it"
        )
        parser.add_argument("--note", default="", metavar="NUMBER", help="one note of the invoice, with its document")
        parser.add_argument("--now", action="store_true", help="also what is not settled, as far as it was read")
        parser.add_argument("--by", choices=[*_CUTS, BY_KEY], help="usage in parts, with what each costs")
        parser.add_argument("--tag", default="", metavar="KEY", help="the key of the tag for `--by tag`")
        parser.add_argument("--file", choices=sorted(_FILES), help="the invoice as a document, in base64")
        parser.add_argument("--asked", metavar="TIME", help="what was acknowledged before is wanted (default: now)")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["what"] == "months":
            self.stdout.write(json.dumps(months_report()))
            return
        if options["what"] == "invoices":
            self.stdout.write(json.dumps(invoices_report(account_named(options["account"]))))
            return
        try:
            period = parse_period(options["period"])
            asked = parse_time(options["asked"]) if options["asked"] else clock.now()
        except ValueError as error:
            raise CommandError(str(error)) from None
        # Before the figures: they may hold more than this says, never less.
        settled, reading = selectors.settled_up_to(), meter_reading()
        if options["what"] == "quarantine":
            report = quarantine_report(period, account_named(options["account"]).pk if options["account"] else None)
        else:
            account = account_named(options["account"])
            ensure_standard_plan()
            if options["by"] == UsageCut.TAG and not options["tag"]:
                raise CommandError("name the key of the tag: --tag KEY")
            report = self.report_of(account, period, options["what"], options["now"])
            if options["by"] and options["what"] == "usage":
                report["by"] = options["by"]
                report["parts"] = parts_report(account, period, options["by"], options["tag"])
            document, files = report.get("invoice"), _FILES
            if options["note"] and document:
                document, files = note_named(account.pk, document, options["note"]), _NOTE_FILES
                report["note"] = document
            if options["file"] and document:
                report["file"] = base64.b64encode(files[options["file"]](document)).decode()
        report["settled_up_to"] = _text(settled)
        if options["now"]:
            answer = answer_now(Interval(*period), settled, reading, asked)
            times = {"as_of": _text(answer.as_of), "missing_from": _text(answer.missing_from)}
            report["now"] = {**answer._asdict(), **times}
        self.stdout.write(json.dumps(report))

    def report_of(self, account: Account, period: BillingPeriod, what: str, is_now: bool) -> dict[str, Any]:
        try:
            report = {} if what == "usage" else invoice_report(account, period)
        except BillingError as error:
            raise CommandError(error.detail) from None
        with one_moment():
            if what == "usage":
                report = usage_report(account, period)
            if is_now:
                report["provisional"] = provisional_report(account, period)
                if what == "usage":
                    report["together"] = together(report)
        return report


@contextmanager
def one_moment() -> Iterator[None]:
    """All that is read within is of one moment: an hour that is settled meanwhile is in it once. Nothing is written."""
    is_outermost = not connection.in_atomic_block
    with transaction.atomic():
        if is_outermost:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield


def together(report: dict[str, Any]) -> dict[str, Any]:
    """Settled and provisional quantities, summed per queue and in all."""
    queues: dict[str, dict[str, Any]] = {}
    parts = [report, *([report["provisional"]] if report["provisional"] else [])]
    for row in (row for part in parts for row in part["queues"]):
        queue = queues.setdefault(
            row["queue_uuid"],
            {"queue": row["queue"], "queue_uuid": row["queue_uuid"], "quantities": dict.fromkeys(UsageMeter, 0)},
        )
        for meter in UsageMeter:
            queue["quantities"][meter] += row["quantities"][meter]
    totals = {meter: sum(part["totals"][meter] for part in parts) for meter in UsageMeter}
    return {"queues": list(queues.values()), "totals": totals}


def usage_report(account: Account, period: BillingPeriod) -> dict[str, Any]:
    """Per queue: the sum, and each origin's."""
    interval = Interval(*period)
    queues: dict[str, dict[str, Any]] = {}
    totals = dict.fromkeys(UsageMeter, 0)
    for line in selectors.usage_of(account.pk, interval):
        queue = queues.setdefault(
            str(line.queue_uuid),
            {
                "queue": line.queue_name,
                "queue_uuid": str(line.queue_uuid),
                "quantities": dict.fromkeys(UsageMeter, 0),
                "by_origin": {},
            },
        )
        queue["by_origin"][line.origin] = line.quantities
        for meter, quantity in line.quantities.items():
            queue["quantities"][meter] += quantity
            totals[meter] += quantity
    return {
        **_head(account, period),
        "queues": list(queues.values()),
        "totals": totals,
        "quarantined": [count._asdict() for count in selectors.quarantine_of(account.pk, interval)],
    }


def parts_report(account: Account, period: BillingPeriod, by: str, tag: str) -> list[dict[str, Any]]:
    """Settled usage and what the live meter has read of the rest. Of keys requests alone are counted."""
    if by == BY_KEY:
        keys = requests_by_key(account.pk, Interval(*period))
        rows = AccessKey.objects.filter(account=account, access_key_id__in=[one.access_key_id for one in keys])
        names = dict(rows.values_list("access_key_id", "name"))
        return [{"part": one.access_key_id, "name": names.get(one.access_key_id, ""), **one._asdict()} for one in keys]
    asked = UsageAsked(UsageCut(by), tag=tag)
    with one_moment():
        month = month_of(account, period, is_provisional=True, queues=queues_for(asked))
        parts = [] if month is None else usage_parts(month, asked)
    return [
        {
            "part": f"{part.key:%Y-%m-%d}" if isinstance(part.key, datetime) else str(part.key),
            "quantities": {meter: part.quantity(meter) for meter in UsageMeter},
            "provisional": dict(part.provisional),
            "currency": month.priced.currency if month else "",
            "amount_nanos": part.amount_nanos,
            "amount": format_nanos(part.amount_nanos),
        }
        for part in sorted(parts, key=lambda one: (0 if by == UsageCut.DAY else -one.amount_nanos, str(one.key)))
    ]


def invoice_report(account: Account, period: BillingPeriod) -> dict[str, Any]:
    """The issued invoice, priced again beside it; else the draft, made from what is settled now. Of a month that is not
    billed no draft stays: nobody would ever issue it, and the customer would see it for ever."""
    was_there = selectors.invoice_for(account.pk, period) is not None
    invoice = draft_invoice(account.pk, period)
    head = _head(account, period)
    head["quarantined"] = [count._asdict() for count in selectors.quarantine_of(account.pk, Interval(*period))]
    if invoice is None:
        return {**head, "invoice": None}
    head["invoice"] = invoice_content(invoice, selectors.notes_of(account.pk, invoice.pk))
    if invoice.state == InvoiceState.ISSUED:
        again = recomputed(invoice).priced.total_minor
        # Once it was corrected, the invoice and its notes together are what the usage must say.
        is_same = again == invoice.total_minor or invoice.notes.exists()
        is_right = is_same and not difference_of(invoice).is_any
        head["recomputed"] = {"total_minor": again, "equal": is_right}
    elif not was_there and not is_billed(account.pk, period):
        invoice.delete()
    return head


def note_named(account_id: str, invoice: dict[str, Any], number: str) -> dict[str, Any]:
    """Raises CommandError."""
    found = next((one for one in selectors.notes_of(account_id, UUID(invoice["id"])) if one.number == number), None)
    if found is None:
        has = ", ".join(one["number"] for one in invoice["notes"]) or "none"
        raise CommandError(f"{invoice['number'] or 'the draft'} has no note {number}; its notes: {has}")
    return note_document(found)


def invoices_report(account: Account) -> dict[str, Any]:
    """Each invoice, the latest month first, and behind it the notes that correct it: `document` says what is what."""
    rows: list[dict[str, Any]] = []
    for invoice in selectors.invoices_of(account.pk, None, INVOICES_LISTED_MAX):
        common = {"period": period_of(invoice.period_start).name, "currency": invoice.currency}
        rows.append(
            {
                **common, "document": "invoice", "number": invoice.number, "state": invoice.state, "corrects": None,
                "total_minor": invoice.total_minor, "total": format_minor(invoice.total_minor, invoice.currency),
                "due_minor": invoice.due_minor, "due": format_minor(invoice.due_minor, invoice.currency),
                "issued_at": _text(invoice.issued_at),
            }
        )  # fmt: skip
        rows += [
            {
                **common, "document": document_of(note), "number": note.number, "state": invoice.state,
                "corrects": invoice.number, "total_minor": note.owed_minor,
                "total": format_minor(note.owed_minor, invoice.currency), "due_minor": None, "due": "",
                "issued_at": _text(note.issued_at),
            }
            for note in notes_in_order(invoice)
        ]  # fmt: skip
    return {"account_id": account.pk, "account": account.name, "documents": rows}


def provisional_report(account: Account, period: BillingPeriod) -> dict[str, Any] | None:
    """What is not settled, per queue, and what the month costs with it."""
    meter = cost_meter(account, period, clock.now(), queues=())
    if meter is None:
        return None
    queues = provisional_quantities_of(account.pk, Interval(*period))
    names = {queue.uuid: queue.name for queue in selectors.queues_named(account.pk, [one.queue_uuid for one in queues])}
    amounts = {
        name: {"minor": minor, "text": format_minor(minor, meter.currency)}
        for name, minor in (
            ("settled", meter.settled_minor),
            ("provisional", meter.provisional_minor),
            ("charges", meter.charges_minor),
            ("total", meter.total_minor),
        )
    }
    return {
        "queues": [
            {
                "queue": names.get(one.queue_uuid, ""),
                "queue_uuid": str(one.queue_uuid),
                "quantities": dict(one.quantities),
            }
            for one in queues
        ],
        "totals": meter.provisional,
        "lines": [line_content(line, meter.currency) for line in invoice_lines(meter.month.priced)],
        "currency": meter.currency,
        **amounts,
    }


def quarantine_report(period: BillingPeriod, account_id: str | None = None) -> dict[str, Any]:
    """Of one account; without it of all accounts, and of none that is known."""
    interval = Interval(*period)
    records = [
        {
            "reason": one.reason,
            "detail": one.detail,
            "account_id": one.account_id,
            "hour": _text(one.hour),
            "record": one.record,
            "seen_at": _text(one.seen_at),
        }
        for one in selectors.quarantined(interval, account_id)
    ]
    counts = [count._asdict() for count in selectors.quarantine_of(account_id, interval)]
    return {"period": period.name, "counts": counts, "records": records}


def months_report() -> dict[str, Any]:
    """The months that are open, and why; invoices that usage, which came later, disagrees with. Of all accounts."""
    now, settled = clock.now(), selectors.settled_up_to()
    months = [
        {
            "period": month.period.name,
            "to_issue": month.to_issue,
            "failing": month.failing,
            "reasons": month.reasons,
            "overdue": month.is_overdue,
        }
        for month in months_with_reasons(now)
        if month.reasons
    ]
    differences = [
        {
            "invoice": one.invoice.number,
            "account_id": one.invoice.account_id,
            "account": one.invoice.account.name,
            "period": period_of(one.invoice.period_start).name,
            "currency": one.invoice.currency,
            "charges_minor": one.charges_minor,
            "total_minor": one.total_minor,
            "total": format_minor(one.total_minor, one.invoice.currency),
            "found_at": _text(one.found_at),
        }
        for one in invoice_differences()
    ]
    failed = [
        {"account_id": one.account_id, "period": _month(one.period_start), "error": one.error, "at": _text(one.last_at)}
        for one in work_failures()
        if one.work == Work.INVOICES
    ]
    last_round = next((one for one in work_rounds() if one.work == Work.USAGE), None)
    return {
        "months": months,
        "differences": differences,
        "failed": failed,
        "last_round": _text(last_round.ended_at) if last_round else None,
        "not_settled": last_round.trouble if last_round else "",
        "settled_up_to": _text(settled),
    }


def _head(account: Account, period: BillingPeriod) -> dict[str, Any]:
    return {"account_id": account.pk, "account": account.name, "period": period.name}


def _month(start: datetime | None) -> str | None:
    return None if start is None else period_of(start).name


def _text(at: Any) -> str | None:
    return None if at is None else at.isoformat().replace("+00:00", "Z")
