"""What a page of usage is asked for: all of it stands in its address."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import urlencode
from uuid import UUID

from django.http import HttpRequest

from api.billing.pricing.meters import UsageMeter
from api.billing.pricing.periods import DAY, BillingPeriod, Interval
from api.billing.usage_reports import UsageAsked, UsageCut
from console.page_times import month_asked

BY_KEY = "key"
CUTS = (*(cut.value for cut in UsageCut), BY_KEY)
_TAG_CHARS_MAX = 128
_PAGES_MAX = 10_000


class UsageQuery(NamedTuple):
    """`by` is one of CUTS; `meter` empty: all together."""

    period: BillingPeriod
    by: str
    meter: str
    queue: UUID | None
    day: Interval | None
    tag: str
    page: int

    @property
    def asked(self) -> UsageAsked:
        return UsageAsked(UsageCut(self.by), self.queue, self.day, self.tag)

    def query(self, **changes: object) -> str:
        """As text of an address, with changes; what is not said is left out."""
        given: dict[str, object] = {
            "period": self.period.name, "by": self.by, "meter": self.meter, "queue": self.queue or "",
            "day": f"{self.day.start:%Y-%m-%d}" if self.day else "", "tag": self.tag, "page": 1, **changes,
        }  # fmt: skip
        return urlencode(
            {key: value for key, value in given.items() if value not in ("", None) and (key, value) != ("page", 1)}
        )


def usage_asked(request: HttpRequest) -> UsageQuery:
    """Anything that is not allowed counts as not given."""
    given = request.GET
    period = month_asked(request)
    day = _day(given.get("day", ""), period)
    by = given.get("by", "")
    if by not in CUTS or (by == UsageCut.HOUR and day is None):
        by = UsageCut.HOUR if day else UsageCut.DAY
    if by == UsageCut.DAY:
        day = None
    queue = _uuid(given.get("queue", ""))
    if by == BY_KEY:
        queue, day = None, None  # keys are known of whole months of the account alone
    meter = given.get("meter", "")
    page = given.get("page", "1")
    number = int(page) if page.isascii() and page.isdigit() and len(page) < 6 else 1
    return UsageQuery(
        period, str(by), meter if meter in set(UsageMeter) else "", queue, day,
        given.get("tag", "").strip().replace("\0", "")[:_TAG_CHARS_MAX], min(max(number, 1), _PAGES_MAX),
    )  # fmt: skip


def _day(text: str, period: BillingPeriod) -> Interval | None:
    try:
        start = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return None
    return Interval(start, start + DAY) if period.start <= start < period.end else None


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None
