"""Invoices with their lines, and the notes that correct issued ones."""

from __future__ import annotations

import uuid
from datetime import date, timedelta

from django.db import models
from django.db.models import Q

from api.accounts.models import Account
from api.billing import limits
from api.billing.models.plans import BillingCredit
from api.billing.models.usage import quantity_field
from api.limits import ACCOUNT_ID_DIGITS, QUEUE_NAME_CHARACTERS_MAX
from api.people.limits import ACCOUNT_TITLE_CHARACTERS_MAX

_CODE_CHARACTERS = 24


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
    # What people called it when the invoice was made; empty: made before that was noted.
    account_title = models.CharField(max_length=ACCOUNT_TITLE_CHARACTERS_MAX, default="")
    # Who sells and who buys (`parties.written_party`), as it was when the invoice was made; empty: nobody was named.
    seller = models.JSONField(default=dict)
    buyer = models.JSONField(default=dict)
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

    @property
    def account_shown(self) -> str:
        """Whose it is, as people read it. The name of an account of people is a random one."""
        return self.account_title or self.account.name

    @property
    def paid_minor(self) -> int:
        return sum(payment.amount_minor for payment in self.payments.all())

    @property
    def due_minor(self) -> int:
        """What is left to pay, with corrections. Of a draft nothing is due; negative: more was paid."""
        if self.state != InvoiceState.ISSUED:
            return 0
        notes = sum(note.owed_minor for note in self.notes.all())
        return self.total_minor + notes - self.paid_minor

    @property
    def pay_by(self) -> date | None:
        """The last day by which to pay; None of a draft, and where the seller named no number of days."""
        days = self.seller.get("payment_days")
        return None if days is None or self.issued_at is None else self.issued_at.date() + timedelta(days=days)

    @property
    def is_paid(self) -> bool:
        """An issued invoice of which nothing is due."""
        return self.state == InvoiceState.ISSUED and self.due_minor <= 0


class InvoiceLine(models.Model):
    """As `pricing.priced_month.PricedLine`. The amounts sum to the invoice's total."""

    invoice = models.ForeignKey(Invoice, on_delete=models.CASCADE, related_name="lines", db_index=False)
    position = models.IntegerField()
    kind = models.CharField(max_length=8)
    plan = models.CharField(max_length=limits.PLAN_CODE_CHARACTERS_MAX + 12)
    text = models.CharField(max_length=limits.INVOICE_TEXT_CHARACTERS_MAX)
    meter = models.CharField(max_length=_CODE_CHARACTERS, default="")
    tier = models.IntegerField(default=0)
    quantity = quantity_field()
    price_nanos = models.BigIntegerField(default=0)
    per = quantity_field()
    amount_minor = models.BigIntegerField()
    credit = models.ForeignKey(BillingCredit, on_delete=models.PROTECT, null=True, related_name="uses")

    class Meta:
        db_table = "invoice_line"
        constraints = (models.UniqueConstraint(fields=["invoice", "position"], name="invoice_line_position"),)

    def __str__(self) -> str:
        return f"{self.invoice_id} {self.position}"


class InvoiceQueueLine(models.Model):
    """A queue's share of a meter's charges, with the queue's name when it was made, and the tags that it had. A queue
    whose tags changed within the month has a `part` for each set of them."""

    invoice = models.ForeignKey(Invoice, on_delete=models.CASCADE, related_name="queue_lines", db_index=False)
    queue_uuid = models.UUIDField()
    queue_name = models.CharField(max_length=QUEUE_NAME_CHARACTERS_MAX, default="")
    tags = models.JSONField(default=dict)
    meter = models.CharField(max_length=_CODE_CHARACTERS)
    part = models.IntegerField(default=0)
    quantity = quantity_field()
    amount_nanos = models.DecimalField(max_digits=limits.QUANTITY_DIGITS, decimal_places=0)

    class Meta:
        db_table = "invoice_queue_line"
        constraints = (
            models.UniqueConstraint(fields=["invoice", "queue_uuid", "meter", "part"], name="invoice_queue_meter"),
        )

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
    # As of an invoice; of the time of this note.
    seller = models.JSONField(default=dict)
    buyer = models.JSONField(default=dict)
    issued_at = models.DateTimeField()

    class Meta:
        db_table = "credit_note"

    def __str__(self) -> str:
        return f"{self.number} {self.kind}"

    @property
    def owed_minor(self) -> int:
        """By how much the customer owes more; negative: less."""
        return self.total_minor if self.kind == NoteKind.DEBIT else -self.total_minor


class LateUsage(models.Model):
    """An account's month whose usage changed when it was over, or the account closed: noted by the database itself with
    the change (migration 0013). Goes when the month is issued, or the difference to its invoice was looked at. No
    foreign key: a merge waits for no account."""

    pk = models.CompositePrimaryKey("account_id", "period_start")
    account_id = models.CharField(max_length=ACCOUNT_ID_DIGITS)
    period_start = models.DateTimeField()
    changed_at = models.DateTimeField()

    class Meta:
        db_table = "late_usage"

    def __str__(self) -> str:
        return f"{self.account_id} {self.period_start:%Y-%m}"


class InvoiceDifference(models.Model):
    """What the settled usage says now, less what an issued invoice and its notes billed: until a note corrects it."""

    invoice = models.OneToOneField(Invoice, on_delete=models.PROTECT, primary_key=True, related_name="difference")
    charges_minor = models.BigIntegerField()
    tax_minor = models.BigIntegerField()
    total_minor = models.BigIntegerField()
    found_at = models.DateTimeField()

    class Meta:
        db_table = "invoice_difference"
        indexes = (models.Index(fields=["found_at"], name="invoice_difference_found"),)

    def __str__(self) -> str:
        return f"{self.invoice_id} {self.total_minor}"


class InvoicePayment(models.Model):
    """Money that came for an issued invoice. A negative amount went back, or had been recorded by mistake: rows never
    change."""

    invoice = models.ForeignKey(Invoice, on_delete=models.PROTECT, related_name="payments", db_index=False)
    amount_minor = models.BigIntegerField()
    received_on = models.DateField()
    # As the transfer says it. One is recorded once.
    reference = models.CharField(max_length=limits.PAYMENT_REFERENCE_CHARACTERS_MAX)
    recorded_at = models.DateTimeField()

    class Meta:
        db_table = "invoice_payment"
        constraints = (
            models.UniqueConstraint(fields=["invoice", "reference"], name="invoice_payment_once"),
            models.CheckConstraint(condition=~Q(amount_minor=0), name="invoice_payment_amount"),
        )

    def __str__(self) -> str:
        return f"{self.invoice_id} {self.amount_minor}"
