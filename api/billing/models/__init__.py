"""Rows of billing, one module a noun: usage, how settlement went, plans, parties, invoices, budgets.

Written by `actions/` and by the modules that count and settle (`settling.py`, `quarantine.py`, `provisional.py`,
`usage_reports.py`, `work_notes.py`) only. The database itself refuses changes of what must not change: a plan's version
that is in effect, an issued invoice with its lines, a credit note (migrations 0002, 0016), a payment (0008).
"""

from __future__ import annotations

from api.billing.models.budgets import BudgetEffect, BudgetEvent, BudgetEventKind, SpendingBudget, SpendingEffect
from api.billing.models.invoices import (
    CreditNote,
    Invoice,
    InvoiceDifference,
    InvoiceKind,
    InvoiceLine,
    InvoicePayment,
    InvoiceQueueLine,
    InvoiceState,
    LateUsage,
    NoteKind,
)
from api.billing.models.parties import BillingParty
from api.billing.models.plans import AccountPlan, BillingCredit, PricePlan, PricePlanVersion
from api.billing.models.settlements import (
    FillLedger,
    MonthLook,
    QuarantinedUsage,
    UsageRun,
    UsageRunState,
    WorkFailure,
    WorkRound,
)
from api.billing.models.usage import (
    DailyUsage,
    HourlyUsage,
    KeyUsage,
    MeterReading,
    ProvisionalUsage,
    QueueTags,
    UsageCounters,
    UsageHours,
    UsageStreamPosition,
)

__all__ = [
    "AccountPlan",
    "BillingCredit",
    "BillingParty",
    "BudgetEffect",
    "BudgetEvent",
    "BudgetEventKind",
    "CreditNote",
    "DailyUsage",
    "FillLedger",
    "HourlyUsage",
    "Invoice",
    "InvoiceDifference",
    "InvoiceKind",
    "InvoiceLine",
    "InvoicePayment",
    "InvoiceQueueLine",
    "InvoiceState",
    "KeyUsage",
    "LateUsage",
    "MeterReading",
    "MonthLook",
    "NoteKind",
    "PricePlan",
    "PricePlanVersion",
    "ProvisionalUsage",
    "QuarantinedUsage",
    "QueueTags",
    "SpendingBudget",
    "SpendingEffect",
    "UsageCounters",
    "UsageHours",
    "UsageRun",
    "UsageRunState",
    "UsageStreamPosition",
    "WorkFailure",
    "WorkRound",
]
