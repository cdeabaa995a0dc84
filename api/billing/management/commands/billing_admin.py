"""`manage.py billing_admin VERB ...`: operators' work, as `./penstock billing`
calls it. Prints what was done.

plans [--account NAME]                                      price plans, or those of an account with its taxes: JSON
terms --code C                                              the terms of a plan's last version: JSON, as `plan` takes it
plan --code C --terms FILE --name N                         a plan's first version; FILE as docs/billing.md
plan --code C --terms FILE --from HOUR                      its next one, or in place of the one that begins then
plan --code C --withdraw                                    takes its last version back, which is still to come
assign --account NAME --code C [--from HOUR] [--tax NAME=PERCENT ...]
assign --account NAME --withdraw                            takes its last plan back, which is still to come
credit --account NAME --name N --currency USD --amount-minor N [--ends HOUR]
seller [--name N --address LINE ... --tax-id T --payment LINE ... --payment-days N | --remove]
buyer --account NAME [--name N --address LINE ... --tax-id T | --remove]    who invoices name; JSON
correct --account NAME --period 2026-11 --reason TEXT        a note, where the settled usage says something else
pay --account NAME --period 2026-11 --received 2026-12-03 --reference TEXT [--amount-minor N]    a payment that came
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from api.accounts.selectors import account_named
from api.audit.actions import OPERATOR
from api.billing import limits, operator_selectors, selectors
from api.billing.actions.invoices import correct_invoice
from api.billing.actions.parties import Party, name_buyer, name_seller, remove_party
from api.billing.actions.payments import record_payment
from api.billing.actions.plans import (
    add_plan_version,
    assign_plan,
    ensure_standard_plan,
    grant_credit,
    withdraw_assignment,
    withdraw_plan_version,
)
from api.billing.errors import BillingError
from api.billing.models import AccountPlan, Invoice, InvoiceState
from api.billing.parties import buyer_of, seller
from api.billing.plan_reads import plans_of, why_unused
from api.billing.price_words import terms_lines
from api.billing.pricing.money import format_minor, format_percent, parse_percent
from api.billing.pricing.periods import parse_period
from api.clock import WRITTEN_TIME, parse_time


class Command(BaseCommand):
    help = "Plans, which account has which, credits, who sells and buys, corrections, payments."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        verbs.add_parser("plans").add_argument("--account", default="", help="name or id")
        verbs.add_parser("terms").add_argument("--code", required=True)
        plan = verbs.add_parser("plan")
        plan.add_argument("--code", required=True)
        for name in ("--name", "--terms"):
            plan.add_argument(name, default="")
        plan.add_argument("--withdraw", action="store_true")
        assign = verbs.add_parser("assign")
        assign.add_argument("--account", required=True, help="name or id")
        assign.add_argument("--code", default="")
        assign.add_argument("--withdraw", action="store_true")
        assign.add_argument("--tax", action="append", default=[], metavar="NAME=PERCENT")
        credit = verbs.add_parser("credit")
        for name in ("--account", "--name", "--currency"):
            credit.add_argument(name, required=True)
        credit.add_argument("--amount-minor", type=int, required=True)
        credit.add_argument("--ends", default="", metavar="HOUR")
        seller, buyer = verbs.add_parser("seller"), verbs.add_parser("buyer")
        buyer.add_argument("--account", required=True, help="name or id")
        for verb in (seller, buyer):
            verb.add_argument("--remove", action="store_true")
            for name in ("--name", "--tax-id"):
                verb.add_argument(name, default="")
            verb.add_argument("--address", action="append", default=[], metavar="LINE")
        seller.add_argument("--payment", action="append", default=[], metavar="LINE")
        seller.add_argument("--payment-days", type=int, default=None)
        correct = verbs.add_parser("correct")
        for name in ("--account", "--period", "--reason"):
            correct.add_argument(name, required=True)
        pay = verbs.add_parser("pay")
        for name in ("--account", "--period", "--reference"):
            pay.add_argument(name, required=True)
        pay.add_argument("--amount-minor", type=int, default=None, help="default: all that is due")
        pay.add_argument("--received", required=True, metavar="DAY")
        for verb in (plan, assign):
            verb.add_argument("--from", dest="since", default="", metavar="HOUR")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self.stdout.write(_VERBS[options["verb"]](options))
        except (BillingError, OSError, ValueError) as error:
            raise CommandError(str(error)) from None


def _plans(options: dict[str, Any]) -> str:
    if options["account"]:
        return json.dumps([_plan_of_account(one) for one in plans_of(account_named(options["account"]).pk)])
    ensure_standard_plan()
    return json.dumps(
        [
            {
                "code": row.plan.pk,
                "name": row.plan.name,
                "currency": row.versions[-1].terms["currency"],
                "accounts": row.accounts,
                "versions": [
                    {"number": version.number, "effective_from": _written(version.effective_from)}
                    for version in row.versions
                ],
            }
            for row in operator_selectors.price_plans()
        ]
    )


def _plan_of_account(one: dict[str, Any]) -> dict[str, Any]:
    taxes = [{"name": tax["name"], "percent": format_percent(tax["rate_ppm"])} for tax in one["taxes"]]
    return {"code": one["plan"], "effective_from": _written(one["effective_from"]), "taxes": taxes}


def _terms(options: dict[str, Any]) -> str:
    ensure_standard_plan()
    return json.dumps(_known_plan(options["code"]).versions[-1].terms)


def _plan(options: dict[str, Any]) -> str:
    if options["withdraw"]:
        withdrawn = withdraw_plan_version(OPERATOR, options["code"])
        return f"{withdrawn} is withdrawn: it would have held from {_shown(withdrawn.effective_from)}"
    if not options["terms"]:
        raise CommandError("name the file with the terms (--terms), or take the last version back (--withdraw)")
    try:
        document = json.loads(Path(options["terms"]).read_text())
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CommandError(f"{options['terms']} is no JSON: {error}") from None
    ensure_standard_plan()
    since, last = _time(options["since"]), operator_selectors.price_plan(options["code"])
    if since is not None and last is None:
        raise CommandError(
            f"{options['code']!r} is a new plan: its first version holds from the beginning, so leave out --from; "
            "`assign --from` says from when on an account has it"
        )
    if since is None and last is not None:
        raise CommandError(
            f"there is a plan {options['code']!r} already: name the hour from which its next version holds (--from)"
        )
    made = add_plan_version(OPERATOR, options["code"], _name_of(options, last), document, since)
    is_replaced = last is not None and last.had(made)
    begins = "the beginning" if last is None else _shown(made.effective_from)
    return "\n  ".join([f"{made} {'is replaced: it ' if is_replaced else ''}holds from {begins}", *terms_lines(made)])


def _name_of(options: dict[str, Any], last: operator_selectors.PlanRow | None) -> str:
    if last is None and not options["name"]:
        raise CommandError(f"{options['code']!r} is a new plan: say what customers call it (--name)")
    if last is not None and options["name"] not in ("", last.plan.name):
        raise CommandError(
            f"the plan {options['code']!r} is called {last.plan.name!r} already: leave out --name, or make another plan"
        )
    return str(options["name"]) if last is None else last.plan.name


def _assign(options: dict[str, Any]) -> str:
    ensure_standard_plan()
    account = account_named(options["account"])
    if options["withdraw"]:
        withdrawn = withdraw_assignment(OPERATOR, account.pk)
        left = plans_of(account.pk)[-1]
        taken = f"{account.name} will not have {withdrawn.plan_id} from {_shown(withdrawn.effective_from)}"
        return f"{taken}: {left['plan']} goes on, {_rates(left['taxes'])}"
    taxes_given = [_tax(tax) for tax in options["tax"]]
    _known_plan(options["code"])
    made = assign_plan(OPERATOR, account.pk, options["code"], _time(options["since"]), taxes_given)
    said = f"{account.name} has {made.plan_id} from {_shown(made.effective_from)}, {_rates(made.taxes)}"
    later = AccountPlan.objects.filter(account=account, effective_from__gt=made.effective_from)
    following = later.order_by("effective_from").first()
    if following is None:
        return said
    then = f"{following.plan_id} follows from {_shown(following.effective_from)}, {_rates(following.taxes)}"
    return f"{said}; {then}"


def _tax(text: str) -> dict[str, Any]:
    name, _, rate = text.rpartition("=")
    if not name:
        raise CommandError(f"a tax is written as its name and percents, like VAT=19, and not {text!r}")
    return {"name": name, "rate_ppm": parse_percent(rate)}


def _rates(taxes: Sequence[dict[str, Any]]) -> str:
    return ", ".join(f"{tax['name']} {format_percent(tax['rate_ppm'])} %" for tax in taxes) or "without a tax"


def _credit(options: dict[str, Any]) -> str:
    account_id, currency = account_named(options["account"]).pk, options["currency"]
    made = grant_credit(
        OPERATOR, account_id, options["name"], currency, options["amount_minor"], _time(options["ends"])
    )
    said = f"credit {made.pk}: {currency} {format_minor(made.amount_minor, currency)}"
    why = why_unused(account_id, currency)
    return f"{said}. {why}" if why else said


def _party(options: dict[str, Any]) -> str:
    """Of the seller, or of the buyer that an account is: as it is now, whether or not it was changed."""
    account_id = account_named(options["account"]).pk if options.get("account") else None
    given = Party(
        options["name"], options["address"], options["tax_id"], options.get("payment", []), options.get("payment_days")
    )
    if options["remove"]:
        remove_party(OPERATOR, account_id)
    elif given != Party("", [], "", []):
        if account_id is None:
            name_seller(OPERATOR, given)
        else:
            name_buyer(OPERATOR, account_id, given)
    return json.dumps(seller() if account_id is None else buyer_of(account_id))


def _correct(options: dict[str, Any]) -> str:
    reason = options["reason"]
    if not reason or not reason.isprintable() or len(reason) > limits.INVOICE_TEXT_CHARACTERS_MAX:
        most = limits.INVOICE_TEXT_CHARACTERS_MAX
        raise CommandError(f"a reason has 1 to {most} printable characters: it is printed on the note")
    invoice = _issued(options)
    note = correct_invoice(OPERATOR, invoice.account_id, invoice.pk, reason)
    if note is None:
        return f"nothing to correct: the usage says what {invoice.number} and its notes have"
    return f"{note.number}: {note.kind} note, {invoice.currency} {format_minor(note.total_minor, invoice.currency)}"


def _pay(options: dict[str, Any]) -> str:
    received = _day(options["received"])
    invoice = _issued(options)
    account_id, amount_minor = invoice.account_id, options["amount_minor"]
    if amount_minor is None:
        amount_minor = max(0, invoice.due_minor)
    if amount_minor == 0:
        raise CommandError(f"nothing of {invoice.number} is due")
    record_payment(OPERATOR, account_id, invoice.pk, amount_minor, received, options["reference"])
    return f"{invoice.number}: {invoice.currency} {format_minor(invoice.due_minor, invoice.currency)} is due"


_VERBS = {
    "plans": _plans,
    "terms": _terms,
    "plan": _plan,
    "assign": _assign,
    "credit": _credit,
    "seller": _party,
    "buyer": _party,
    "correct": _correct,
    "pay": _pay,
}


def _known_plan(code: str) -> operator_selectors.PlanRow:
    found = operator_selectors.price_plan(code)
    if found is None:
        raise CommandError(f"there is no plan {code!r}; see ./penstock billing plans")
    return found


def _issued(options: dict[str, Any]) -> Invoice:
    period = parse_period(options["period"])
    invoice = selectors.invoice_for(account_named(options["account"]).pk, period)
    if invoice is None:
        raise CommandError(f"the account has no invoice of {period.name}; see ./penstock report invoice")
    if invoice.state != InvoiceState.ISSUED:
        raise CommandError(
            f"the invoice of {period.name} is a draft: it is issued by itself once the month is over and settled; "
            "./penstock report months says what it waits for"
        )
    return invoice


def _time(text: str) -> datetime | None:
    if not text:
        return None
    try:
        return parse_time(text)
    except ValueError:
        raise CommandError(f"{text!r} is not {WRITTEN_TIME}") from None


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise CommandError(f"a day is written like 2026-12-03, and not {text!r}") from None


def _shown(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC on"


def _written(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
