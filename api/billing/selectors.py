"""Reading usage, plans and invoices; all that is of an account always as one account."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection
from django.db.models import Case, Count, F, Min, Q, QuerySet, Sum, UUIDField, Value, When

from api.accounts.models import Account
from api.billing import limits
from api.billing.models import (
    AccountPlan,
    BillingCredit,
    BudgetEffect,
    BudgetEvent,
    BudgetEventKind,
    CreditNote,
    DailyUsage,
    FillLedger,
    HourlyUsage,
    Invoice,
    InvoiceLine,
    InvoiceQueueLine,
    InvoiceState,
    PricePlanVersion,
    QuarantinedUsage,
    SpendingBudget,
    SpendingEffect,
)
from api.billing.pricing.meters import UsageMeter
from api.billing.pricing.periods import DAY, BillingPeriod, Interval, floor_hour, period_of, whole_days
from api.billing.pricing.priced_month import ALL_QUEUES, OTHER_QUEUES, CreditLeft, QueueQuantities
from api.people.models import AccountLife, AccountState
from api.queues.models import Queue
from api.quotas.selectors import holder_of

# From an hour on.
_FIRST_NOT_DONE = """
SELECT min(hour) FROM (
    SELECT %s::timestamptz AS hour
     UNION ALL
    SELECT hour + interval '1 hour' FROM fill_ledger WHERE times_done > 0 AND hour >= %s) f
 WHERE NOT EXISTS (SELECT FROM fill_ledger l WHERE l.hour = f.hour AND l.times_done > 0)
"""
_TAG_KEYS = """
SELECT DISTINCT jsonb_object_keys(l.tags) FROM invoice_queue_line l JOIN invoice i ON i.id = l.invoice_id
 WHERE i.account_id = %s AND i.id = %s ORDER BY 1 LIMIT %s
"""


def settled_up_to() -> datetime | None:
    """The first hour that is not done, from the one on in which the first account was opened: nobody ever settles the
    hours before. Without an account, from the first one on that is done. None: nothing is settled."""
    first_done = FillLedger.objects.filter(times_done__gt=0).aggregate(hour=Min("hour"))["hour"]
    if first_done is None:
        return None
    opened = first_account_opened()
    begin = first_done if opened is None else floor_hour(opened)
    with connection.cursor() as cursor:
        cursor.execute(_FIRST_NOT_DONE, (begin, begin))
        found: datetime = cursor.fetchone()[0]
    return found


def merges_so_far() -> int:
    """Grows with every merge that is committed, also of hours that are counted again. No clock is asked: one merge may
    be committed after another began that says a later time."""
    found: int | None = FillLedger.objects.aggregate(merges=Sum("times_done"))["merges"]
    return found or 0


def first_account_opened() -> datetime | None:
    """Of all accounts."""
    return Account.objects.order_by("created_at").values_list("created_at", flat=True).first()


# --- usage ---

# None: each queue. Else the database sums up all but these, as one under OTHER_QUEUES, or, without any, ALL_QUEUES.
QueuesAsked = Sequence[UUID] | None


def quantities_of(account_id: str, interval: Interval, queues: QueuesAsked = None) -> list[QueueQuantities]:
    """Per queue, summed over its hours, partitions and origins."""
    return quantities_in(settled_sums(account_id, interval, queues))


def settled_sums(account_id: str, interval: Interval, queues: QueuesAsked) -> Any:
    """To be read by `quantities_in`: whole days from their sums, what is before and behind them from its hours."""
    days = whole_days(interval)
    if days is None:
        return queue_sums(settled_usage(account_id, interval), queues)
    edges = (Interval(interval.start, days.start), Interval(days.end, interval.end))
    hours = [queue_sums(settled_usage(account_id, edge), queues) for edge in edges if edge.hours]
    return queue_sums(settled_days(account_id, days), queues).union(*hours, all=True)


def queue_sums(rows: QuerySet[Any], queues: QueuesAsked) -> Any:
    """Of rows with a queue and counters; to be read by `quantities_in`."""
    of: Any = F("queue_uuid")
    if queues is not None:
        rest = Value(OTHER_QUEUES if queues else ALL_QUEUES, output_field=UUIDField())
        of = Case(When(queue_uuid__in=list(queues), then=F("queue_uuid")), default=rest) if queues else rest
    return rows.annotate(of=of).values("of").annotate(**_SUMS)


def quantities_in(sums: Any) -> list[QueueQuantities]:
    return [QueueQuantities(row["of"], _quantities(row)) for row in sums.order_by("of")]


class UsageLine(NamedTuple):
    """`queue_name` is empty for a queue that is gone without a trace."""

    queue_uuid: UUID
    queue_name: str
    origin: str
    quantities: dict[UsageMeter, int]


def used_queues(account_id: str, interval: Interval, after: UUID | None, limit: int) -> list[UUID]:
    """Queues with usage in an interval of whole days, by their UUIDs, from the first one behind `after` on."""
    rows = settled_days(account_id, interval)
    if after is not None:
        rows = rows.filter(queue_uuid__gt=after)
    return list(rows.values_list("queue_uuid", flat=True).distinct().order_by("queue_uuid")[:limit])


def usage_of(account_id: str, interval: Interval, queues: Sequence[UUID] | None = None) -> list[UsageLine]:
    """Per queue and origin, by name; of all queues, or of these, in an interval of whole days."""
    usage = settled_days(account_id, interval)
    if queues is not None:
        usage = usage.filter(queue_uuid__in=queues)
    rows = list(usage.values("queue_uuid", "origin").annotate(**_SUMS))
    names = {queue.uuid: queue.name for queue in queues_named(account_id, [row["queue_uuid"] for row in rows])}
    lines = [
        UsageLine(row["queue_uuid"], names.get(row["queue_uuid"], ""), row["origin"], _quantities(row)) for row in rows
    ]
    return sorted(lines, key=lambda line: (line.queue_name, line.queue_uuid, line.origin))


_SUMS = {f"sum_{meter}": Sum(meter.value) for meter in UsageMeter}


def settled_usage(account_id: str, interval: Interval) -> QuerySet[HourlyUsage]:
    days = HourlyUsage.objects.filter(account_id=account_id, day__gt=interval.start - DAY, day__lt=interval.end)
    return days.filter(hour__gte=interval.start, hour__lt=interval.end)


def settled_days(account_id: str, interval: Interval) -> QuerySet[DailyUsage]:
    """The sums of days that begin in the interval."""
    return DailyUsage.objects.filter(account_id=account_id, day__gte=interval.start, day__lt=interval.end)


def _quantities(row: Any) -> dict[UsageMeter, int]:
    """The sum of no rows is null."""
    return {meter: int(row[f"sum_{meter}"] or 0) for meter in UsageMeter}


def queues_named(account_id: str, uuids: Sequence[UUID]) -> Iterator[Queue]:
    """Those of the account; also deleted ones."""
    return Queue.objects.filter(account_id=account_id, uuid__in=uuids).only("uuid", "name", "tags").iterator()


class QuarantineCount(NamedTuple):
    reason: str
    records: int


def quarantine_of(account_id: str | None, interval: Interval) -> list[QuarantineCount]:
    """What is not billed and not resolved. Without an account: of all, and of no account that is known."""
    rows = QuarantinedUsage.objects.filter(
        Q(hour__gte=interval.start, hour__lt=interval.end) | Q(hour=None), resolved_at=None
    )
    if account_id is not None:
        rows = rows.filter(account_id=account_id)
    counts = rows.values("reason").annotate(records=Count("id")).order_by("reason")
    return [QuarantineCount(row["reason"], row["records"]) for row in counts]


def quarantined(interval: Interval, account_id: str | None = None) -> list[QuarantinedUsage]:
    """Of all accounts or of one, the latest first; with what is of no hour, and what lies ahead. For operators."""
    rows = QuarantinedUsage.objects.filter(resolved_at=None)
    if account_id is not None:
        rows = rows.filter(account_id=account_id)
    rows = rows.filter(Q(hour=None) | Q(hour__gte=interval.start, hour__lt=interval.end) | Q(reason="hour_in_future"))
    return list(rows.order_by("-seen_at", "id")[: limits.QUARANTINE_LISTED_MAX])


# --- plans ---


def account_plans(account_id: str) -> list[AccountPlan]:
    return list(AccountPlan.objects.filter(account_id=account_id).order_by("effective_from"))


def versions_of(plan_codes: Sequence[str]) -> list[PricePlanVersion]:
    return list(PricePlanVersion.objects.filter(plan_id__in=plan_codes).order_by("plan_id", "effective_from"))


# --- credits ---


def credits_of(account_id: str) -> list[tuple[BillingCredit, int]]:
    """With what issued invoices left of each, the latest first."""
    rows = BillingCredit.objects.filter(account_id=account_id)
    used = Sum("uses__amount_minor", filter=Q(uses__invoice__state=InvoiceState.ISSUED))
    return [(row, row.amount_minor + (row.used or 0)) for row in rows.annotate(used=used).order_by("-pk")]


def credits_left(account_id: str, currency: str, period: BillingPeriod, made_by: datetime | None) -> list[CreditLeft]:
    """What is left for the period: less what invoices of other periods used, those issued by `made_by` if given. A
    credit that was granted later is not there."""
    rows = BillingCredit.objects.filter(account_id=account_id, currency=currency).exclude(ends_at__lte=period.start)
    uses = InvoiceLine.objects.filter(credit__in=rows, invoice__state=InvoiceState.ISSUED)
    uses = uses.exclude(invoice__period_start=period.start)
    if made_by is not None:
        rows = rows.filter(granted_at__lte=made_by)
        uses = uses.filter(invoice__issued_at__lte=made_by)
    used = {use["credit_id"]: use["used"] for use in uses.values("credit_id").annotate(used=Sum("amount_minor"))}
    return [
        CreditLeft(row.pk, row.name, row.amount_minor + used.get(row.pk, 0), _ends_order(row.ends_at))
        for row in rows.order_by("pk")
    ]


def _ends_order(ends_at: datetime | None) -> tuple[int, int]:
    return (1, 0) if ends_at is None else (0, int(ends_at.timestamp()))


# --- invoices ---


def invoices_of(account_id: str, before: datetime | None, limit: int) -> list[Invoice]:
    """The latest month first."""
    rows = Invoice.objects.filter(account_id=account_id)
    if before is not None:
        rows = rows.filter(period_start__lt=before)
    return list(rows.order_by("-period_start").prefetch_related("notes", "payments")[:limit])


def invoice_of(account_id: str, invoice_id: UUID) -> Invoice | None:
    return Invoice.objects.filter(account_id=account_id, pk=invoice_id).first()


class QueueCost(NamedTuple):
    queue_uuid: UUID
    queue_name: str
    amount_nanos: int


def queue_costs(account_id: str, invoice_id: UUID, limit: int) -> list[QueueCost]:
    """What each queue costs over all meters of an invoice, the dearest first."""
    rows = InvoiceQueueLine.objects.filter(invoice__account_id=account_id, invoice_id=invoice_id)
    sums = rows.values("queue_uuid", "queue_name").annotate(nanos=Sum("amount_nanos")).order_by("-nanos", "queue_uuid")
    return [QueueCost(row["queue_uuid"], row["queue_name"], int(row["nanos"])) for row in sums[:limit]]


def tag_keys_of(account_id: str, invoice_id: UUID) -> list[str]:
    """Keys of tags that queues of an invoice had."""
    with connection.cursor() as cursor:
        cursor.execute(_TAG_KEYS, (account_id, invoice_id, limits.TAG_KEYS_OFFERED_MAX))
        return [key for (key,) in cursor.fetchall()]


def invoice_for(account_id: str, period: BillingPeriod) -> Invoice | None:
    return Invoice.objects.filter(account_id=account_id, period_start=period.start).first()


def notes_of(account_id: str, invoice_id: UUID) -> list[CreditNote]:
    rows = CreditNote.objects.filter(invoice__account_id=account_id, invoice_id=invoice_id)
    return list(rows.order_by("issued_at", "number"))


def note_of(account_id: str, note_id: UUID) -> CreditNote | None:
    """With the invoice that it corrects."""
    rows = CreditNote.objects.filter(invoice__account_id=account_id, pk=note_id)
    return rows.select_related("invoice__account").first()


def closed_at(account_id: str) -> datetime | None:
    """When the account was closed for good."""
    life = Account.objects.filter(pk=account_id, life__state=AccountState.CLOSED).values_list("life__state_since")
    return life[0][0] if life else None


def title_of(account: Account) -> str:
    """What people call it: accounts that were made by the command line have their name alone."""
    found = AccountLife.objects.filter(account=account).values_list("title", flat=True).first()
    return found or account.name


# --- budgets ---


def budget_of(account_id: str, name: str) -> SpendingBudget | None:
    return SpendingBudget.objects.filter(account_id=account_id, name=name).first()


def budgets_of(account_id: str) -> list[SpendingBudget]:
    return list(SpendingBudget.objects.filter(account_id=account_id).order_by("name"))


def effects_in_force(account_id: str) -> list[SpendingEffect]:
    """What budgets that are used up do now: that of the account first. An operator who lets the account send again has
    lifted the stop of its budget; what throttles it beside the stop is in force then."""
    rows = SpendingEffect.objects.filter(account_id=account_id).select_related("budget")
    found = list(rows.order_by(F("queue_uuid").asc(nulls_first=True)))
    of_account = {one.effect for one in found if one.queue_uuid is None}
    holder = holder_of(account_id)
    is_stopped = BudgetEffect.STOP in of_account and holder is not None and bool(holder.sending_stopped)
    silent = BudgetEffect.THROTTLE if is_stopped else BudgetEffect.STOP
    return [one for one in found if one.queue_uuid is not None or one.effect != silent]


class LiftedStop(NamedTuple):
    """A budget's stop of the account that an operator lifted. `at` None: by one of before, which noted none."""

    budget: SpendingBudget
    at: datetime | None
    until: datetime


def lifted_stop(account_id: str) -> LiftedStop | None:
    rows = SpendingEffect.objects.filter(account_id=account_id, queue_uuid=None, effect=BudgetEffect.STOP)
    found = rows.select_related("budget").first()
    holder = holder_of(account_id)
    if found is None or (holder is not None and holder.sending_stopped):
        return None
    period = period_of(found.period_start)
    events = BudgetEvent.objects.filter(
        budget=found.budget, generation=found.budget.generation, period_start=period.start, kind=BudgetEventKind.LIFT
    )
    return LiftedStop(found.budget, events.values_list("at", flat=True).first(), period.end)


def budget_named(account_id: str, name: str) -> SpendingBudget | None:
    return SpendingBudget.objects.filter(account_id=account_id, name=name).first()


def budget_events_of(account_id: str, period: BillingPeriod) -> list[BudgetEvent]:
    """The latest first."""
    rows = BudgetEvent.objects.filter(account_id=account_id, period_start=period.start)
    return list(rows.order_by("-id")[: limits.BUDGET_EVENTS_LISTED_MAX])
