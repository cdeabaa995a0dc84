"""`manage.py billing_report usage|invoice|quarantine --period 2026-11 [--account NAME] [--now]`: one JSON object.

What `./penstock report` shows. The quantities are the settled ones; `settled_up_to` says up to which hour. With `--now`
the hours that are not settled are there too, as `provisional`: as far as the live meter has read them.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from api import clock
from api.accounts.models import Account
from api.billing import selectors
from api.billing.account_month import recomputed
from api.billing.actions.invoices import draft_invoice
from api.billing.actions.plans import ensure_standard_plan
from api.billing.documents.content import invoice_content
from api.billing.meter import cost_meter
from api.billing.models import InvoiceState
from api.billing.pricing.meters import UsageMeter
from api.billing.pricing.money import format_minor
from api.billing.pricing.periods import BillingPeriod, Interval, parse_period
from api.billing.provisional import answer_now, meter_reading, provisional_quantities_of


class Command(BaseCommand):
    help = "Settled usage or the invoice of an account and month, or what is not billed."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("what", choices=["usage", "invoice", "quarantine"])
        parser.add_argument("--account", default="", help="name of the account")
        parser.add_argument("--period", required=True, help="a month like 2026-11")
        parser.add_argument("--now", action="store_true", help="also what is not settled, as far as it was read")
        parser.add_argument("--asked", metavar="TIME", help="what was acknowledged before is wanted (default: now)")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            period = parse_period(options["period"])
            asked = datetime.fromisoformat(options["asked"]) if options["asked"] else clock.now()
        except ValueError as error:
            raise CommandError(str(error)) from None
        # Before the figures: they may hold more than this says, never less.
        settled, reading = selectors.settled_up_to(), meter_reading()
        if options["what"] == "quarantine":
            report = quarantine_report(period)
        else:
            account = Account.objects.filter(name=options["account"]).first()
            if account is None:
                raise CommandError(f"there is no account {options['account']!r}; see ./penstock accounts list")
            ensure_standard_plan()
            make = usage_report if options["what"] == "usage" else invoice_report
            report = make(account, period)
            if options["now"]:
                report["provisional"] = provisional_report(account, period)
        report["settled_up_to"] = _text(settled)
        if options["now"]:
            answer = answer_now(Interval(*period), settled, reading, asked)
            times = {"as_of": _text(answer.as_of), "missing_from": _text(answer.missing_from)}
            report["now"] = {**answer._asdict(), **times}
        self.stdout.write(json.dumps(report))


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


def invoice_report(account: Account, period: BillingPeriod) -> dict[str, Any]:
    """The issued invoice, priced again beside it; else the draft, made from what is settled now."""
    invoice = draft_invoice(account.pk, period)
    head = _head(account, period)
    head["quarantined"] = [count._asdict() for count in selectors.quarantine_of(account.pk, Interval(*period))]
    if invoice is None:
        return {**head, "invoice": None}
    head["invoice"] = invoice_content(invoice, selectors.notes_of(account.pk, invoice.pk))
    if invoice.state == InvoiceState.ISSUED:
        again = recomputed(invoice).priced
        head["recomputed"] = {"total_minor": again.total_minor, "equal": again.total_minor == invoice.total_minor}
    return head


def provisional_report(account: Account, period: BillingPeriod) -> dict[str, Any] | None:
    """What is not settled, per queue, and what the month costs with it."""
    meter = cost_meter(account, period, clock.now(), by_queue=False)
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
        "currency": meter.currency,
        **amounts,
    }


def quarantine_report(period: BillingPeriod) -> dict[str, Any]:
    """Of all accounts, and of none that is known."""
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
        for one in selectors.quarantined(interval)
    ]
    counts = [count._asdict() for count in selectors.quarantine_of(None, interval)]
    return {"period": period.name, "counts": counts, "records": records}


def _head(account: Account, period: BillingPeriod) -> dict[str, Any]:
    return {"account_id": account.pk, "account": account.name, "period": period.name}


def _text(at: Any) -> str | None:
    return None if at is None else at.isoformat().replace("+00:00", "Z")
