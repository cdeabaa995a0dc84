"""Settled usage, plans, invoices, budgets. Written by `settling.py`, `quarantine.py` and `actions/` only.

The database itself refuses changes of what must not change: a plan's version that is in effect, an issued invoice with
its lines, a credit note (migration 0002).
"""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q

from api.accounts.models import Account
from api.billing import limits
from api.limits import ACCOUNT_ID_DIGITS, QUEUE_NAME_CHARACTERS_MAX

_CODE_CHARACTERS = 24


def _quantity() -> models.DecimalField:
    return models.DecimalField(max_digits=limits.QUANTITY_DIGITS, decimal_places=0, default=0)


# --- usage ---


class UsageCounters(models.Model):
    """The counters of a row of usage, in the order of `UsageMeter`."""

    messages_sent = models.BigIntegerField(default=0)
    messages_delivered = models.BigIntegerField(default=0)
    messages_deleted = models.BigIntegerField(default=0)
    messages_moved = models.BigIntegerField(default=0)
    messages_dead_lettered = models.BigIntegerField(default=0)
    messages_scheduled = models.BigIntegerField(default=0)
    sent_bytes = models.BigIntegerField(default=0)
    delivered_bytes = models.BigIntegerField(default=0)
    sent_units = models.BigIntegerField(default=0)
    delivered_units = models.BigIntegerField(default=0)
    stored_byte_ms = _quantity()
    requests = models.BigIntegerField(default=0)
    empty_receives = models.BigIntegerField(default=0)

    class Meta:
        abstract = True


class HourlyUsage(UsageCounters):
    """What was counted of a queue in one hour, for one origin. A merge replaces the row of its key and never adds.

    `partition_id`: a partition, or 0 for all of the queue's together, or -1 for what front ends counted (`requests`,
    `empty_receives`; the nil UUID where a request is of no queue). No foreign keys: usage outlives its queue.
    """

    pk = models.CompositePrimaryKey("account_id", "hour", "queue_uuid", "partition_id", "origin")
    account_id = models.CharField(max_length=ACCOUNT_ID_DIGITS)
    hour = models.DateTimeField(db_index=True)
    queue_uuid = models.UUIDField()
    partition_id = models.BigIntegerField()
    origin = models.CharField(max_length=8)
    run = models.UUIDField()

    class Meta:
        db_table = "hourly_usage"

    def __str__(self) -> str:
        return f"{self.account_id} {self.hour:%Y-%m-%dT%H} {self.queue_uuid}/{self.partition_id} {self.origin}"


def _sum() -> models.DecimalField:
    return models.DecimalField(max_digits=limits.SUM_DIGITS, decimal_places=0, default=0)


class DailyUsage(models.Model):
    """The sums of `hourly_usage` by day: kept by the database itself (migration 0004), written by nothing else.

    `rows`: how many hourly rows are in it. The counters are wider than those of an hour, so that no sum overflows.
    """

    pk = models.CompositePrimaryKey("account_id", "day", "queue_uuid", "origin")
    account_id = models.CharField(max_length=ACCOUNT_ID_DIGITS)
    day = models.DateTimeField()
    queue_uuid = models.UUIDField()
    origin = models.CharField(max_length=8)
    rows = models.BigIntegerField()
    messages_sent = _sum()
    messages_delivered = _sum()
    messages_deleted = _sum()
    messages_moved = _sum()
    messages_dead_lettered = _sum()
    messages_scheduled = _sum()
    sent_bytes = _sum()
    delivered_bytes = _sum()
    sent_units = _sum()
    delivered_units = _sum()
    stored_byte_ms = _sum()
    requests = _sum()
    empty_receives = _sum()

    class Meta:
        db_table = "daily_usage"
        indexes = (models.Index(fields=["day"], name="daily_usage_day"),)

    def __str__(self) -> str:
        return f"{self.account_id} {self.day:%Y-%m-%d} {self.queue_uuid} {self.origin}"


class FillLedger(models.Model):
    """Which run filled which hour. A row that stays `started` is of a run that crashed: the hour is counted again."""

    hour = models.DateTimeField(primary_key=True)
    run = models.UUIDField()
    state = models.CharField(max_length=7, choices=[("started", "started"), ("done", "done")])
    times_done = models.IntegerField(default=0)
    rows = models.BigIntegerField(default=0)
    quarantined = models.BigIntegerField(default=0)
    started_at = models.DateTimeField()
    done_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "fill_ledger"

    def __str__(self) -> str:
        return f"{self.hour:%Y-%m-%dT%H} {self.state}"


class UsageRunState(models.TextChoices):
    STARTED = "started"
    DONE = "done"
    FAILED = "failed"
    # A later run began hours of this one before it was merged: it may not be merged.
    OVERTAKEN = "overtaken"


class UsageRun(models.Model):
    """A run that settles hours, for operators. The fill ledger names the last run of each hour."""

    id = models.UUIDField(primary_key=True)
    hour_from = models.DateTimeField()
    hour_to = models.DateTimeField()
    state = models.CharField(max_length=9, choices=UsageRunState.choices)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    merged = models.BigIntegerField(default=0)
    removed = models.BigIntegerField(default=0)
    quarantined = models.BigIntegerField(default=0)
    # What was left out, or why it failed; empty: nothing.
    note = models.CharField(max_length=limits.DETAIL_CHARACTERS_MAX, default="")

    class Meta:
        db_table = "usage_run"
        indexes = (models.Index(fields=["-started_at"], name="usage_run_latest"),)

    def __str__(self) -> str:
        return f"{self.hour_from:%Y-%m-%dT%H} {self.state}"

    @property
    def took_s(self) -> float | None:
        return None if self.ended_at is None else (self.ended_at - self.started_at).total_seconds()


class WorkRound(models.Model):
    """The last round of each work on the schedule, for operators. `trouble`: why it did not do all; empty: it did."""

    work = models.CharField(primary_key=True, max_length=limits.WORK_CHARACTERS_MAX)
    ended_at = models.DateTimeField()
    took_ms = models.BigIntegerField()
    done = models.BigIntegerField()
    # One after the other, up to the last one.
    troubled_rounds = models.BigIntegerField(default=0)
    trouble = models.CharField(max_length=limits.DETAIL_CHARACTERS_MAX, default="")

    class Meta:
        db_table = "work_round"

    def __str__(self) -> str:
        return self.work


class WorkFailure(models.Model):
    """One piece of a work that failed when it was tried last: an account's draft, a mail. Goes when it is done."""

    work = models.CharField(max_length=limits.WORK_CHARACTERS_MAX)
    subject = models.CharField(max_length=limits.WORK_CHARACTERS_MAX)
    account_id = models.CharField(max_length=ACCOUNT_ID_DIGITS, default="")
    period_start = models.DateTimeField(null=True)
    failures = models.BigIntegerField()
    error = models.CharField(max_length=limits.DETAIL_CHARACTERS_MAX)
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()

    class Meta:
        db_table = "work_failure"
        constraints = (models.UniqueConstraint(fields=["work", "subject"], name="work_failure_once"),)

    def __str__(self) -> str:
        return f"{self.work} {self.subject}"


class QuarantinedUsage(models.Model):
    """A record that is not billed, and why. The same record with the same reason is one row, however often it comes."""

    fingerprint = models.CharField(max_length=32, unique=True)
    run = models.UUIDField(null=True)
    reason = models.CharField(max_length=limits.REASON_CHARACTERS_MAX)
    detail = models.CharField(max_length=limits.DETAIL_CHARACTERS_MAX, default="")
    account_id = models.CharField(max_length=64, default="")
    hour = models.DateTimeField(null=True)
    record = models.JSONField()
    seen_at = models.DateTimeField()
    # A record of the same key was merged later, or a price came.
    resolved_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "quarantined_usage"
        indexes = (models.Index(fields=["account_id", "hour"], name="quarantined_by_account"),)

    def __str__(self) -> str:
        return f"{self.account_id} {self.reason}"


class ProvisionalUsage(UsageCounters):
    """What the usage stream says of an hour that is not settled. A later record of its key replaces it.

    `source`: the partition that metered it (`cluster/partition`), or the front end with the access key.
    """

    pk = models.CompositePrimaryKey("hour", "account_id", "queue_uuid", "source", "origin")
    hour = models.DateTimeField()
    account_id = models.CharField(max_length=ACCOUNT_ID_DIGITS)
    queue_uuid = models.UUIDField()
    source = models.CharField(max_length=limits.USAGE_SOURCE_CHARACTERS_MAX)
    origin = models.CharField(max_length=8)
    # Requests that were throttled, and that failed or were refused for another reason: for the series of metrics.
    throttled = models.BigIntegerField(default=0)
    errors = models.BigIntegerField(default=0)

    class Meta:
        db_table = "provisional_usage"
        indexes = (models.Index(fields=["account_id", "hour"], name="provisional_by_account"),)

    def __str__(self) -> str:
        return f"{self.account_id} {self.hour:%Y-%m-%dT%H} {self.queue_uuid} {self.source} {self.origin}"


class KeyUsage(models.Model):
    """Requests by access key and day, of hours that are settled: kept when the live meter drops such an hour. Shown,
    never priced: what a front end told after its hour was settled is not in it."""

    pk = models.CompositePrimaryKey("account_id", "day", "access_key_id")
    account_id = models.CharField(max_length=ACCOUNT_ID_DIGITS)
    day = models.DateTimeField()
    access_key_id = models.CharField(max_length=limits.USAGE_SOURCE_CHARACTERS_MAX)
    requests = models.DecimalField(max_digits=limits.SUM_DIGITS, decimal_places=0)
    empty_receives = models.DecimalField(max_digits=limits.SUM_DIGITS, decimal_places=0)

    class Meta:
        db_table = "key_usage"

    def __str__(self) -> str:
        return f"{self.account_id} {self.day:%Y-%m-%d} {self.access_key_id}"


class UsageStreamPosition(models.Model):
    """Up to where a partition of the usage stream was read into `provisional_usage`."""

    partition = models.CharField(primary_key=True, max_length=limits.USAGE_SOURCE_CHARACTERS_MAX)
    next_offset = models.BigIntegerField(default=0)

    class Meta:
        db_table = "usage_stream_position"

    def __str__(self) -> str:
        return f"{self.partition} at {self.next_offset}"


class MeterReading(models.Model):
    """One row: how far the provisional usage goes. `as_of`: all that was acknowledged before is in it."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    as_of = models.DateTimeField(null=True)
    # How long the last look took, and when it ended: the next one leaves the nodes a multiple of that.
    took_ms = models.BigIntegerField(default=0)
    ended_at = models.DateTimeField(null=True)
    # Why it is not the whole; empty: it is.
    missing = models.CharField(max_length=limits.DETAIL_CHARACTERS_MAX, default="")

    class Meta:
        db_table = "meter_reading"
        constraints = (models.CheckConstraint(condition=Q(id=1), name="meter_reading_once"),)

    def __str__(self) -> str:
        return f"as of {self.as_of}"


# --- plans ---


class PricePlan(models.Model):
    code = models.CharField(primary_key=True, max_length=limits.PLAN_CODE_CHARACTERS_MAX)
    name = models.CharField(max_length=limits.PLAN_NAME_CHARACTERS_MAX)
    created_at = models.DateTimeField()

    class Meta:
        db_table = "price_plan"

    def __str__(self) -> str:
        return self.code


class PricePlanVersion(models.Model):
    """Terms, from an hour on. Before that hour the version may be withdrawn; from then on nothing changes it."""

    plan = models.ForeignKey(PricePlan, on_delete=models.PROTECT, related_name="versions", db_index=False)
    number = models.IntegerField()
    effective_from = models.DateTimeField()
    terms = models.JSONField()
    created_at = models.DateTimeField()

    class Meta:
        db_table = "price_plan_version"
        constraints = (
            models.UniqueConstraint(fields=["plan", "number"], name="plan_version_number"),
            models.UniqueConstraint(fields=["plan", "effective_from"], name="plan_version_since"),
        )

    def __str__(self) -> str:
        return f"{self.plan_id}@{self.number}"


class AccountPlan(models.Model):
    """The plan and the taxes of an account, from an hour on. Taxes: `[{"name", "rate_ppm"}]`."""

    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="plans", db_index=False)
    plan = models.ForeignKey(PricePlan, on_delete=models.PROTECT, related_name="+")
    effective_from = models.DateTimeField()
    taxes = models.JSONField(default=list)
    created_at = models.DateTimeField()

    class Meta:
        db_table = "account_plan"
        constraints = (models.UniqueConstraint(fields=["account", "effective_from"], name="account_plan_since"),)

    def __str__(self) -> str:
        return f"{self.account_id} {self.plan_id} {self.effective_from}"


class BillingCredit(models.Model):
    """What is left of it: `amount_minor` less the credit lines of issued invoices that name it."""

    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="billing_credits")
    name = models.CharField(max_length=limits.CREDIT_NAME_CHARACTERS_MAX)
    currency = models.CharField(max_length=3)
    amount_minor = models.BigIntegerField()
    granted_at = models.DateTimeField()
    # Months that begin at or after this get nothing of it.
    ends_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "credit"
        constraints = (models.CheckConstraint(condition=Q(amount_minor__gt=0), name="credit_positive"),)

    def __str__(self) -> str:
        return f"{self.account_id} {self.name}"


# --- invoices ---


class InvoiceKind(models.TextChoices):
    MONTHLY = "monthly"
    # Of the month in which the account was closed, up to that hour.
    CLOSING = "closing"


class InvoiceState(models.TextChoices):
    DRAFT = "draft"
    ISSUED = "issued"


class Invoice(models.Model):
    """One of an account and month. A draft is made again whenever usage is settled; an issued one never changes."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="invoices", db_index=False)
    period_start = models.DateTimeField()
    period_end = models.DateTimeField()
    # The part of the month in which the account was open.
    open_start = models.DateTimeField()
    open_end = models.DateTimeField()
    kind = models.CharField(max_length=8, choices=InvoiceKind.choices)
    state = models.CharField(max_length=6, choices=InvoiceState.choices, default=InvoiceState.DRAFT)
    number = models.CharField(max_length=_CODE_CHARACTERS, null=True, unique=True)
    currency = models.CharField(max_length=3)
    charges_minor = models.BigIntegerField()
    credits_minor = models.BigIntegerField()
    tax_minor = models.BigIntegerField()
    total_minor = models.BigIntegerField()
    # Usage of the hours before this was settled when the lines were made.
    settled_up_to = models.DateTimeField(null=True)
    made_at = models.DateTimeField()
    # How many hours had been merged (`selectors.merges_so_far`) when the lines were made; null: before that was noted.
    merges = models.BigIntegerField(null=True)
    issued_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "invoice"
        constraints = (
            models.UniqueConstraint(fields=["account", "period_start"], name="invoice_once"),
            models.CheckConstraint(
                condition=Q(state="draft", number=None, issued_at=None)
                | Q(state="issued", number__isnull=False, issued_at__isnull=False),
                name="invoice_issued_with_number",
            ),
        )
        indexes = (models.Index(fields=["period_start"], condition=Q(state="draft"), name="invoice_drafts"),)

    def __str__(self) -> str:
        return f"{self.account_id} {self.period_start:%Y-%m} {self.state}"


class InvoiceLine(models.Model):
    """As `pricing.priced_month.PricedLine`. The amounts sum to the invoice's total."""

    invoice = models.ForeignKey(Invoice, on_delete=models.CASCADE, related_name="lines", db_index=False)
    position = models.IntegerField()
    kind = models.CharField(max_length=8)
    plan = models.CharField(max_length=limits.PLAN_CODE_CHARACTERS_MAX + 12)
    text = models.CharField(max_length=limits.INVOICE_TEXT_CHARACTERS_MAX)
    meter = models.CharField(max_length=_CODE_CHARACTERS, default="")
    tier = models.IntegerField(default=0)
    quantity = _quantity()
    price_nanos = models.BigIntegerField(default=0)
    per = _quantity()
    amount_minor = models.BigIntegerField()
    credit = models.ForeignKey(BillingCredit, on_delete=models.PROTECT, null=True, related_name="uses")

    class Meta:
        db_table = "invoice_line"
        constraints = (models.UniqueConstraint(fields=["invoice", "position"], name="invoice_line_position"),)

    def __str__(self) -> str:
        return f"{self.invoice_id} {self.position}"


class InvoiceQueueLine(models.Model):
    """A queue's share of a meter's charges, with the queue's name and tags as they were when it was made."""

    invoice = models.ForeignKey(Invoice, on_delete=models.CASCADE, related_name="queue_lines", db_index=False)
    queue_uuid = models.UUIDField()
    queue_name = models.CharField(max_length=QUEUE_NAME_CHARACTERS_MAX, default="")
    tags = models.JSONField(default=dict)
    meter = models.CharField(max_length=_CODE_CHARACTERS)
    quantity = _quantity()
    amount_nanos = models.DecimalField(max_digits=limits.QUANTITY_DIGITS, decimal_places=0)

    class Meta:
        db_table = "invoice_queue_line"
        constraints = (models.UniqueConstraint(fields=["invoice", "queue_uuid", "meter"], name="invoice_queue_meter"),)

    def __str__(self) -> str:
        return f"{self.invoice_id} {self.queue_uuid} {self.meter}"


class NoteKind(models.TextChoices):
    CREDIT = "credit"
    # Usage that came after the close: the customer owes more.
    DEBIT = "debit"


class CreditNote(models.Model):
    """A correction of an issued invoice: the difference to what it should have been. Amounts are positive."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    invoice = models.ForeignKey(Invoice, on_delete=models.PROTECT, related_name="notes")
    number = models.CharField(max_length=_CODE_CHARACTERS, unique=True)
    kind = models.CharField(max_length=6, choices=NoteKind.choices)
    charges_minor = models.BigIntegerField()
    # What the invoice had used of credits and need not: granted again as a credit of its own.
    credits_minor = models.BigIntegerField()
    tax_minor = models.BigIntegerField()
    total_minor = models.BigIntegerField()
    # `[{"meter", "quantity"}]`: by how much the billed quantities were wrong, negative where too much was billed.
    differences = models.JSONField(default=list)
    reason = models.CharField(max_length=limits.INVOICE_TEXT_CHARACTERS_MAX)
    issued_at = models.DateTimeField()

    class Meta:
        db_table = "credit_note"

    def __str__(self) -> str:
        return f"{self.number} {self.kind}"


# --- budgets ---


class SpendingBudget(models.Model):
    """A sum for each month's charges (before credits and tax) of an account, or of one of its queues."""

    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="budgets", db_index=False)
    name = models.CharField(max_length=limits.BUDGET_NAME_CHARACTERS_MAX)
    queue_uuid = models.UUIDField(null=True)
    limit_minor = models.BigIntegerField()
    alert_percents = models.JSONField(default=list)
    # At 100 % the account sends no more until the month ends or the budget is changed. Of the whole account only.
    stops_sending = models.BooleanField(default=False)
    mail_to = models.JSONField(default=list)
    # Raised by each change: its alerts come again.
    generation = models.IntegerField(default=1)
    created_at = models.DateTimeField()
    modified_at = models.DateTimeField()

    class Meta:
        db_table = "spending_budget"
        constraints = (
            models.UniqueConstraint(fields=["account", "name"], name="spending_budget_name"),
            models.CheckConstraint(
                condition=Q(stops_sending=False) | Q(queue_uuid=None), name="spending_budget_stops_accounts"
            ),
        )

    def __str__(self) -> str:
        return f"{self.account_id} {self.name}"


class BudgetEventKind(models.TextChoices):
    ALERT = "alert"
    STOP = "stop"
    RESUME = "resume"


class BudgetEvent(models.Model):
    """A level that was reached. `mailed_at` is null until its mail was handed over."""

    budget = models.ForeignKey(SpendingBudget, on_delete=models.SET_NULL, null=True, related_name="events")
    account_id = models.CharField(max_length=ACCOUNT_ID_DIGITS)
    budget_name = models.CharField(max_length=limits.BUDGET_NAME_CHARACTERS_MAX)
    generation = models.IntegerField()
    period_start = models.DateTimeField()
    kind = models.CharField(max_length=6, choices=BudgetEventKind.choices)
    percent = models.IntegerField()
    spent_minor = models.BigIntegerField()
    limit_minor = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    mail_to = models.JSONField(default=list)
    at = models.DateTimeField()
    mailed_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "budget_event"
        constraints = (
            models.UniqueConstraint(
                fields=["budget", "period_start", "generation", "kind", "percent"], name="budget_event_once"
            ),
        )
        indexes = (
            models.Index(fields=["account_id", "-id"], name="budget_event_by_account"),
            models.Index(fields=["id"], condition=Q(mailed_at=None), name="budget_event_unmailed"),
        )

    def __str__(self) -> str:
        return f"{self.budget_name} {self.kind} {self.percent}"


class SpendingStop(models.Model):
    """The account sends no more. Its record in the change feed says so as `sending_stopped`."""

    account = models.OneToOneField(Account, on_delete=models.CASCADE, primary_key=True, related_name="spending_stop")
    budget = models.ForeignKey(SpendingBudget, on_delete=models.CASCADE, related_name="+")
    period_start = models.DateTimeField()
    since = models.DateTimeField()

    class Meta:
        db_table = "spending_stop"

    def __str__(self) -> str:
        return self.account_id
