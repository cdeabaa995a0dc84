"""Plans, their versions, which account has which, and credits. Operators' work."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from django.db import transaction

from api import clock
from api.accounts.models import Account
from api.accounts.selectors import locked_account
from api.audit.actions import OPERATOR, record
from api.billing import limits
from api.billing.errors import invalid, not_found
from api.billing.models import AccountPlan, BillingCredit, Invoice, InvoiceState, PricePlan, PricePlanVersion
from api.billing.pricing.money import CURRENCIES, format_percent
from api.billing.pricing.periods import floor_hour, period_of
from api.billing.pricing.terms import (
    AMOUNT_MINOR_MAX,
    STANDARD_CODE,
    STANDARD_NAME,
    STANDARD_TERMS,
    TermsError,
    check_complete,
    parse_terms,
    terms_document,
)
from frontend.authn.principal import Principal

# From then on a plan's first version holds: before any account.
BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)
# Hours and months are computed from a time that a caller gives: they must be times, too, in every time zone.
_END = datetime(9000, 1, 1, tzinfo=UTC)
_CODE = re.compile(rf"[a-z0-9][a-z0-9-]{{0,{limits.PLAN_CODE_CHARACTERS_MAX - 1}}}", re.ASCII)
_NO_ACCOUNT = ""


def ensure_standard_plan() -> None:
    """Makes it where it is not there. Two callers at once make it once. Where it is there nothing is locked: each draft
    begins here, in the transaction that goes on for as long as a large account takes."""
    if not PricePlanVersion.objects.filter(plan_id=STANDARD_CODE).exists():
        _make_standard_plan()


@transaction.atomic
def _make_standard_plan() -> None:
    now = clock.now()
    made = PricePlan(code=STANDARD_CODE, name=STANDARD_NAME, created_at=now)
    PricePlan.objects.bulk_create([made], ignore_conflicts=True)
    plan = PricePlan.objects.select_for_update().get(pk=STANDARD_CODE)
    if not plan.versions.exists():
        terms = terms_document(STANDARD_TERMS)
        plan.versions.create(number=1, effective_from=BEGINNING, terms=terms, created_at=now)
        record(OPERATOR, _NO_ACCOUNT, "plan.add_version", f"plan:{STANDARD_CODE}@1")


@transaction.atomic
def add_plan_version(
    actor: Principal, code: str, name: str, document: Any, effective_from: datetime | None
) -> PricePlanVersion:
    """The first version of a plan holds from ever on; a later one from a whole hour that is still to come. One that
    begins with the same hour is replaced, and keeps its number. Raises BillingError."""
    if _CODE.fullmatch(code) is None or not 1 <= len(name) <= limits.PLAN_NAME_CHARACTERS_MAX or not name.isprintable():
        raise invalid("a plan has a code of small letters, digits and hyphens, and a printable name")
    try:
        terms = parse_terms(document)
        check_complete(terms)
    except TermsError as error:
        raise invalid(str(error)) from None
    named = PricePlan(code=code, name=name, created_at=clock.now())
    PricePlan.objects.bulk_create([named], ignore_conflicts=True)
    plan = PricePlan.objects.select_for_update().get(pk=code)
    # Behind the lock, for which the caller may have waited: what has begun by now is not changed.
    now = clock.now()
    last = plan.versions.order_by("-effective_from").first()
    if last is None:
        effective_from = BEGINNING
    else:
        _check_time(effective_from)
        effective_from = _coming_hour(effective_from, now)
        if terms.currency != last.terms["currency"]:
            raise invalid(f"the plan is in {last.terms['currency']}; create another plan for another currency")
    replaced = plan.versions.filter(effective_from=effective_from).first()
    if replaced is not None:
        replaced.terms, replaced.created_at = terms_document(terms), now
        replaced.save(update_fields=["terms", "created_at"])
        _record_version(actor, "plan.replace_version", replaced)
        return replaced
    if last is not None and effective_from < last.effective_from:
        raise invalid(
            f"{last} begins later, on {_shown(last.effective_from)}: give that hour to replace it, or withdraw it "
            f"first (./penstock billing plan --code {code} --withdraw)"
        )
    number = 1 if last is None else last.number + 1
    made = plan.versions.create(
        number=number, effective_from=effective_from, terms=terms_document(terms), created_at=now
    )
    _record_version(actor, "plan.add_version", made)
    return made


@transaction.atomic
def withdraw_plan_version(actor: Principal, code: str) -> PricePlanVersion:
    """The last version, as it was, which must be still to come: nothing was priced by it. Raises BillingError."""
    plan = PricePlan.objects.select_for_update().filter(pk=code).first()
    last = None if plan is None else plan.versions.order_by("-effective_from").first()
    if last is None:
        raise invalid(f"there is no plan {code!r}")
    if last.effective_from <= clock.now():
        raise invalid(f"{last} has begun: only a version that is still to come is withdrawn")
    last.delete()
    _record_version(actor, "plan.withdraw_version", last)
    return last


def _record_version(actor: Principal, action: str, version: PricePlanVersion) -> None:
    record(actor, _NO_ACCOUNT, action, f"plan:{version}", effective_from=str(version.effective_from))


@transaction.atomic
def assign_plan(
    actor: Principal, account_id: str, code: str, effective_from: datetime | None, taxes: Sequence[dict[str, Any]]
) -> AccountPlan:
    """From a whole hour on that is still to come, or, for an account without an issued invoice, from any one. Another
    currency begins with a month. Raises BillingError."""
    account = locked_account(account_id, not_found)
    if _CODE.fullmatch(code) is None or not PricePlanVersion.objects.filter(plan_id=code).exists():
        raise invalid(f"there is no plan {code!r}")
    now = clock.now()
    is_billed = Invoice.objects.filter(account=account, state=InvoiceState.ISSUED).exists()
    _check_time(effective_from)
    if is_billed:
        since = _coming_hour(effective_from, now)
    else:
        since = _whole_hour(effective_from or floor_hour(account.created_at))
    currency = _of(code)
    if _cuts_month(account, since) and _currency_at(account_id, since) != currency:
        raise invalid("a plan in another currency begins with a month")
    later = AccountPlan.objects.filter(account=account, effective_from__gt=since)
    following = later.order_by("effective_from").first()
    if following is not None and _cuts_month(account, following.effective_from) and _of(following.plan_id) != currency:
        raise invalid(f"the plan that follows on {following.effective_from} has another currency within a month")
    row, _ = AccountPlan.objects.update_or_create(
        account=account, effective_from=since, defaults={"plan_id": code, "taxes": _taxes(taxes), "created_at": now}
    )
    record(actor, account_id, "plan.assign", f"plan:{code}", effective_from=str(since))
    return row


@transaction.atomic
def withdraw_assignment(actor: Principal, account_id: str) -> AccountPlan:
    """The account's last one, as it was, which must be still to come: what it had before goes on. Raises
    BillingError."""
    account = locked_account(account_id, not_found)
    last = AccountPlan.objects.filter(account=account).order_by("-effective_from").first()
    if last is None or last.effective_from <= clock.now():
        raise invalid("the account is given no plan that is still to come")
    last.delete()
    record(actor, account_id, "plan.withdraw", f"plan:{last.plan_id}", effective_from=str(last.effective_from))
    return last


@transaction.atomic
def grant_credit(
    actor: Principal, account_id: str, name: str, currency: str, amount_minor: int, ends_at: datetime | None
) -> BillingCredit:
    """Used by invoices that are issued from now on. Raises BillingError."""
    locked_account(account_id, not_found)
    if currency not in CURRENCIES or not 0 < amount_minor <= AMOUNT_MINOR_MAX:
        raise invalid("a credit has a currency and a positive amount in minor units")
    if not 1 <= len(name) <= limits.CREDIT_NAME_CHARACTERS_MAX or not name.isprintable():
        raise invalid("a credit has a printable name")
    _check_time(ends_at)
    now = clock.now()
    if ends_at is not None and ends_at <= now:
        raise invalid("a credit ends at an hour that is still to come")
    made = BillingCredit.objects.create(
        account_id=account_id, name=name, currency=currency, amount_minor=amount_minor, granted_at=now, ends_at=ends_at
    )
    record(actor, account_id, "credit.grant", f"credit:{made.pk}", currency=currency, amount_minor=amount_minor)
    return made


def _check_time(at: datetime | None) -> None:
    """Raises BillingError."""
    if at is not None and not BEGINNING <= at < _END:
        raise invalid("a time lies in the years 2000 to 8999")


def _coming_hour(at: datetime | None, now: datetime) -> datetime:
    if at is None or floor_hour(at) <= now:
        raise invalid("name the hour from which it holds; it must be still to come")
    return _whole_hour(at)


def _whole_hour(at: datetime) -> datetime:
    if floor_hour(at) != at:
        raise invalid(f"name a whole hour, like {floor_hour(at):%Y-%m-%dT%H:%M}: prices hold for hours")
    return at


def _shown(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _cuts_month(account: Account, at: datetime) -> bool:
    """The account has a plan before `at` in the same month."""
    return at != period_of(at).start and at > account.created_at


def _currency_at(account_id: str, at: datetime) -> str:
    row = AccountPlan.objects.filter(account_id=account_id, effective_from__lt=at).order_by("-effective_from").first()
    return _of(STANDARD_CODE if row is None else row.plan_id)


def _of(code: str) -> str:
    """The plan's currency; the standard plan may have been made by an operator, in another one."""
    version = PricePlanVersion.objects.filter(plan_id=code).order_by("number").first()
    return STANDARD_TERMS.currency if version is None else str(version.terms["currency"])


def _taxes(taxes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    if len(taxes) > limits.TAXES_PER_ACCOUNT_MAX:
        raise invalid(f"an account has at most {limits.TAXES_PER_ACCOUNT_MAX} taxes")
    for tax in taxes:
        if set(tax) != {"name", "rate_ppm"} or type(tax["rate_ppm"]) is not int or not isinstance(tax["name"], str):
            raise invalid("a tax is an object of name and rate_ppm")
        if not 0 <= tax["rate_ppm"] <= limits.TAX_PPM_MAX:
            raise invalid(
                f"a tax lies between 0 and {format_percent(limits.TAX_PPM_MAX)} percent (rate_ppm: millionths)"
            )
        if not 1 <= len(tax["name"]) <= limits.TAX_NAME_CHARACTERS_MAX or not tax["name"].isprintable():
            raise invalid("a tax has a printable name")
    names = [tax["name"] for tax in taxes]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise invalid(f"the tax {twice!r} is given twice")
    return list(taxes)
