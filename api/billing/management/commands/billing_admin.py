"""`manage.py billing_admin plan|assign|credit|correct|pay ...`: operators' work. Prints what was done.

plan --code C --name N --terms FILE [--from HOUR]           a plan's first or next version; FILE as docs/billing.md
assign --account NAME --code C [--from HOUR] [--tax NAME=PERCENT ...]
credit --account NAME --name N --currency USD --amount-minor N [--ends HOUR]
correct --account NAME --period 2026-11 --reason TEXT        a note, where the settled usage says something else
pay --account NAME --period 2026-11 --amount-minor N --received 2026-12-03 --reference TEXT     a payment that came
"""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from api.accounts.models import Account
from api.audit.actions import OPERATOR
from api.billing import selectors
from api.billing.actions.invoices import correct_invoice
from api.billing.actions.payments import record_payment
from api.billing.actions.plans import add_plan_version, assign_plan, ensure_standard_plan, grant_credit
from api.billing.errors import BillingError
from api.billing.models import Invoice
from api.billing.pricing.money import parse_percent
from api.billing.pricing.periods import parse_period
from api.written_times import parse_time


class Command(BaseCommand):
    help = "Plans, which account has which, credits, corrections, payments."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        plan = verbs.add_parser("plan")
        for name in ("--code", "--name", "--terms"):
            plan.add_argument(name, required=True)
        assign = verbs.add_parser("assign")
        assign.add_argument("--account", required=True)
        assign.add_argument("--code", required=True)
        assign.add_argument("--tax", action="append", default=[], metavar="NAME=PERCENT")
        credit = verbs.add_parser("credit")
        for name in ("--account", "--name", "--currency"):
            credit.add_argument(name, required=True)
        credit.add_argument("--amount-minor", type=int, required=True)
        credit.add_argument("--ends", type=parse_time)
        correct = verbs.add_parser("correct")
        for name in ("--account", "--period", "--reason"):
            correct.add_argument(name, required=True)
        pay = verbs.add_parser("pay")
        for name in ("--account", "--period", "--reference"):
            pay.add_argument(name, required=True)
        pay.add_argument("--amount-minor", type=int, required=True)
        pay.add_argument("--received", type=date.fromisoformat, required=True, metavar="DAY")
        for verb in (plan, assign):
            verb.add_argument("--from", dest="since", type=parse_time)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self.stdout.write(_VERBS[options["verb"]](options))
        except (BillingError, OSError, ValueError) as error:
            raise CommandError(str(error)) from None


def _plan(options: dict[str, Any]) -> str:
    document = json.loads(Path(options["terms"]).read_text())
    made = add_plan_version(OPERATOR, options["code"], options["name"], document, options["since"])
    return f"{made} from {made.effective_from}"


def _assign(options: dict[str, Any]) -> str:
    ensure_standard_plan()
    taxes = []
    for tax in options["tax"]:
        name, _, rate = tax.rpartition("=")
        taxes.append({"name": name, "rate_ppm": parse_percent(rate)})
    made = assign_plan(OPERATOR, _account(options), options["code"], options["since"], taxes)
    return f"{made.plan_id} from {made.effective_from}"


def _credit(options: dict[str, Any]) -> str:
    made = grant_credit(
        OPERATOR, _account(options), options["name"], options["currency"], options["amount_minor"], options["ends"]
    )
    return f"credit {made.pk}: {made.currency} {made.amount_minor} minor units"


def _correct(options: dict[str, Any]) -> str:
    invoice = _invoice(options)
    note = correct_invoice(OPERATOR, invoice.account_id, invoice.pk, options["reason"])
    return "nothing to correct" if note is None else f"{note.number}: {note.kind} note, {note.total_minor} minor units"


def _pay(options: dict[str, Any]) -> str:
    invoice = _invoice(options)
    account_id, amount_minor = invoice.account_id, options["amount_minor"]
    record_payment(OPERATOR, account_id, invoice.pk, amount_minor, options["received"], options["reference"])
    return f"{invoice.number}: {invoice.due_minor} minor units are due"


_VERBS = {"plan": _plan, "assign": _assign, "credit": _credit, "correct": _correct, "pay": _pay}


def _account(options: dict[str, Any]) -> str:
    account = Account.objects.filter(name=options["account"]).first()
    if account is None:
        raise CommandError(f"there is no account {options['account']!r}; see ./penstock accounts list")
    return account.pk


def _invoice(options: dict[str, Any]) -> Invoice:
    invoice = selectors.invoice_for(_account(options), parse_period(options["period"]))
    if invoice is None:
        raise CommandError("there is no invoice of this month")
    return invoice
