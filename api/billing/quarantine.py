"""Usage that is not billed for a reason that is not in its row: what the pipeline could not read, and meters that the
account's plan has no price for. Each once, however often it is found; `settling.py` has the others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db import transaction

from api import clock
from api.billing import limits
from api.billing.models import QuarantinedUsage

NO_PRICE = "no_price"


class Quarantined(NamedTuple):
    """`record` says what it was, in JSON; `reason` is a short stable word."""

    reason: str
    detail: str
    record: dict[str, Any]
    account_id: str = ""
    hour: datetime | None = None


@transaction.atomic
def note_quarantined(run: UUID | None, found: Iterable[Quarantined]) -> int:
    """How many different ones were given. The reason and the record say which are the same."""
    now = clock.now()
    rows: dict[str, QuarantinedUsage] = {}
    for one in found:
        text = json.dumps([one.reason, one.account_id, one.record], sort_keys=True, default=str)
        fingerprint = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
        rows[fingerprint] = QuarantinedUsage(
            fingerprint=fingerprint, run=run, reason=one.reason[: limits.REASON_CHARACTERS_MAX],
            detail=one.detail[: limits.DETAIL_CHARACTERS_MAX], account_id=one.account_id[:64], hour=one.hour,
            record=one.record, seen_at=now,
        )  # fmt: skip
    QuarantinedUsage.objects.bulk_create(
        rows.values(),
        update_conflicts=True,
        unique_fields=["fingerprint"],
        update_fields=["run", "detail", "seen_at", "resolved_at"],
    )
    return len(rows)


def resolve_files(is_read_again: Callable[[str], bool]) -> int:
    """Whole files that were refused once and count since. How many."""
    rows = QuarantinedUsage.objects.filter(resolved_at=None, record__has_key="file")
    again = [row.pk for row in rows.only("record") if is_read_again(str(row.record["file"]))]
    return rows.filter(pk__in=again).update(resolved_at=clock.now())


@transaction.atomic
def replace_unpriced(account_id: str, period_start: datetime, found: Iterable[Quarantined]) -> None:
    """The meters of an account's month that have no price now. Those that were noted before have one since."""
    rows = QuarantinedUsage.objects.filter(account_id=account_id, hour=period_start, reason=NO_PRICE)
    rows.filter(resolved_at=None).update(resolved_at=clock.now())
    note_quarantined(None, found)
