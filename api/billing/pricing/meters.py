"""What is counted of a queue, by the names that rollups, plans and invoices have. Pure."""

from __future__ import annotations

import enum


class UsageMeter(enum.StrEnum):
    """The value is the column of `hourly_usage`, and the key in a plan."""

    MESSAGES_SENT = "messages_sent"
    MESSAGES_DELIVERED = "messages_delivered"
    MESSAGES_DELETED = "messages_deleted"
    MESSAGES_MOVED = "messages_moved"
    MESSAGES_DEAD_LETTERED = "messages_dead_lettered"
    MESSAGES_SCHEDULED = "messages_scheduled"
    # Of the customer's plaintext; a unit is 64 KiB begun of one message.
    SENT_BYTES = "sent_bytes"
    DELIVERED_BYTES = "delivered_bytes"
    SENT_UNITS = "sent_units"
    DELIVERED_UNITS = "delivered_units"
    STORED_BYTE_MS = "stored_byte_ms"
    REQUESTS = "requests"
    EMPTY_RECEIVES = "empty_receives"


COUNTER_NAMES = tuple(meter.value for meter in UsageMeter)

# Counted by front ends, which may lose the last counts of a crash: shown, never priced.
SHOWN_ONLY = frozenset((UsageMeter.REQUESTS, UsageMeter.EMPTY_RECEIVES))
PRICED_METERS = tuple(meter for meter in UsageMeter if meter not in SHOWN_ONLY)


class UsageOrigin(enum.StrEnum):
    """Who caused the operation."""

    CLIENT = "client"
    PUSH = "push"
    DESK = "desk"
    REDRIVE = "redrive"
    CRON = "cron"


# What people read on a document: (name, quantities of one shown unit, name of the unit).
BYTE_MS_PER_GIB_HOUR = 2**30 * 3_600_000
SHOWN: dict[UsageMeter, tuple[str, int, str]] = {
    UsageMeter.MESSAGES_SENT: ("Messages sent", 1, "messages"),
    UsageMeter.MESSAGES_DELIVERED: ("Messages delivered", 1, "messages"),
    UsageMeter.MESSAGES_DELETED: ("Messages deleted", 1, "messages"),
    UsageMeter.MESSAGES_MOVED: ("Messages moved", 1, "messages"),
    UsageMeter.MESSAGES_DEAD_LETTERED: ("Messages dead-lettered", 1, "messages"),
    UsageMeter.MESSAGES_SCHEDULED: ("Messages scheduled", 1, "messages"),
    UsageMeter.SENT_BYTES: ("Payload sent", 1, "bytes"),
    UsageMeter.DELIVERED_BYTES: ("Payload delivered", 1, "bytes"),
    UsageMeter.SENT_UNITS: ("Sent, in units of 64 KiB", 1, "units"),
    UsageMeter.DELIVERED_UNITS: ("Delivered, in units of 64 KiB", 1, "units"),
    UsageMeter.STORED_BYTE_MS: ("Storage", BYTE_MS_PER_GIB_HOUR, "GiB-hours"),
    UsageMeter.REQUESTS: ("Requests", 1, "requests"),
    UsageMeter.EMPTY_RECEIVES: ("Empty receives", 1, "receives"),
}


def shown_quantity(meter: UsageMeter, quantity: int) -> str:
    """With thousands separated; of fractions three digits, cut."""
    per_unit = SHOWN[meter][1]
    if per_unit == 1:
        return f"{quantity:,}"
    thousandths = quantity * 1000 // per_unit
    return f"{thousandths // 1000:,}.{thousandths % 1000:03}"
