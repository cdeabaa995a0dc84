"""Usage by queue, day, hour, origin, tag and key, with what each part costs; each part leads to what lies behind it."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from api.accounts.models import Account
from api.accounts.selectors import keys_of
from api.billing import selectors
from api.billing.account_month import AccountMonth, month_of
from api.billing.actions.plans import ensure_standard_plan
from api.billing.pricing.meters import SHOWN, UsageMeter, shown_quantity
from api.billing.pricing.money import format_nanos
from api.billing.pricing.periods import DAY, HOUR, Interval
from api.billing.usage_reports import KeyRequests, UsageCut, UsagePart, queues_for, requests_by_key, usage_parts
from api.limits import KEYS_PER_ACCOUNT_MAX
from api.people.roles import Act
from api.people.selectors import member_addresses
from api.spreadsheets import plain
from console.bars import BarChart, BarValue, bar_chart
from console.page_times import months_since
from console.pages import account_page
from console.templatetags.money import nanos
from console.usage_asked import BY_KEY, UsageQuery, usage_asked
from console.visits import AccountVisit
from frontend.authn.principal import PERSON_PREFIX

PAGE_PARTS = 50
# What is shown of all meters together.
COLUMNS = (
    UsageMeter.MESSAGES_SENT, UsageMeter.MESSAGES_DELIVERED, UsageMeter.STORED_BYTE_MS, UsageMeter.REQUESTS,
)  # fmt: skip
CUTS_IN_WORDS = {
    "day": "By day", "hour": "By hour", "queue": "By queue", "origin": "By origin", "tag": "By tag", "key": "By key",
}  # fmt: skip
_ORIGINS = {
    "client": "Clients", "push": "Websockets", "desk": "Message browser", "redrive": "Redrive", "cron": "Schedules",
}  # fmt: skip
_NO_QUEUE = UUID(int=0)


class PartRow(NamedTuple):
    """`link` leads to what is behind the part; empty: nothing is."""

    label: str
    link: str
    part: UsagePart
    settled: str
    provisional: str
    cells: list[str]
    amount_nanos: int
    share: int


@account_page(Act.READ_USAGE, "GET")
def usage(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    query = usage_asked(request)
    account = Account.objects.get(pk=visit.account_id)
    shown = {
        "query": query,
        "tab": "usage",
        "months": months_since(account.created_at),
        "meters": [(meter.value, SHOWN[meter][0]) for meter in UsageMeter],
        "cuts": [(by, CUTS_IN_WORDS[by], query.query(by=by)) for by in _cuts_offered(query)],
        "filters": _filters(visit.account_id, query),
        "csv": query.query(),
        "settled_up_to": selectors.settled_up_to(),
        "quarantined": selectors.quarantine_of(visit.account_id, Interval(*query.period)),
    }
    if query.by == BY_KEY:
        return render(request, "console/billing/keys.html", shown | {"keys": _keys(visit, query)})
    month = _month(account, query)
    return render(request, "console/billing/usage.html", shown | _parts_shown(visit.account_id, query, month))


@account_page(Act.READ_USAGE, "GET")
def usage_csv(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    """The same as the page, all parts and meters; text that a spreadsheet would compute is marked."""
    query = usage_asked(request)
    out = io.StringIO()
    rows = csv.writer(out)
    if query.by == BY_KEY:
        rows.writerow(["period", "access_key_id", "name", "requests", "empty_receives"])
        for key, name in _keys(visit, query):
            rows.writerow([query.period.name, plain(key.access_key_id), plain(name), *key[1:]])
    else:
        _write_parts(rows.writerow, visit, query)
    headers = {"Content-Disposition": f'attachment; filename="usage-{query.period.name}-by-{query.by}.csv"'}
    return HttpResponse(out.getvalue(), content_type="text/csv; charset=utf-8", headers=headers)


def _write_parts(write: Callable[[Sequence[object]], object], visit: AccountVisit, query: UsageQuery) -> None:
    meters = [meter.value for meter in UsageMeter]
    write(
        [
            "period",
            query.by,
            "id",
            "currency",
            "amount",
            "amount_nanos",
            *meters,
            *(f"provisional_{name}" for name in meters),
        ]
    )
    month = _month(Account.objects.get(pk=visit.account_id), query)
    if month is None:
        return
    parts = _sorted(query, usage_parts(month, query.asked))
    labels = _labels(visit.account_id, query, parts)
    for part, label in zip(parts, labels, strict=True):
        figures = [part.quantity(meter) for meter in UsageMeter]
        open_ones = [part.provisional[meter] for meter in UsageMeter]
        amount = part.amount_nanos
        write(
            [
                query.period.name,
                plain(label),
                plain(str(part.key)),
                month.priced.currency,
                format_nanos(amount),
                amount,
                *figures,
                *open_ones,
            ]
        )


def _month(account: Account, query: UsageQuery) -> AccountMonth | None:
    ensure_standard_plan()
    return month_of(account, query.period, is_provisional=True, queues=queues_for(query.asked))


def _parts_shown(account_id: str, query: UsageQuery, month: AccountMonth | None) -> dict[str, object]:
    if month is None:
        return {"rows": [], "total": 0}
    parts = _sorted(query, usage_parts(month, query.asked))
    start = (query.page - 1) * PAGE_PARTS
    page = parts if query.by in (UsageCut.DAY, UsageCut.HOUR) else parts[start : start + PAGE_PARTS]
    labels = _labels(account_id, query, page)
    most = max((_weight(query, part) for part in parts), default=0)
    more = len(page) < len(parts) and start + PAGE_PARTS < len(parts)
    return {
        "currency": month.priced.currency,
        "rows": [_row(query, part, label, most) for part, label in zip(page, labels, strict=True)],
        "total": len(parts),
        "sum_nanos": sum(_amount(query, part) for part in parts),
        "open_nanos": sum(part.provisional_nanos for part in parts),
        "columns": [(meter.value, SHOWN[meter][0], SHOWN[meter][2]) for meter in COLUMNS],
        "chart": _chart(query, parts, month.priced.currency),
        "page_before": query.query(page=query.page - 1) if query.page > 1 else None,
        "page_after": query.query(page=query.page + 1) if more else None,
    }


def _amount(query: UsageQuery, part: UsagePart) -> int:
    return part.amounts.get(UsageMeter(query.meter), 0) if query.meter else part.amount_nanos


def _weight(query: UsageQuery, part: UsagePart) -> int:
    """What parts are compared by: the quantity of the meter, or the cost."""
    return part.quantity(UsageMeter(query.meter)) if query.meter else part.amount_nanos


def _sorted(query: UsageQuery, parts: list[UsagePart]) -> list[UsagePart]:
    """Times in their order, all else by what it costs."""
    if query.by in (UsageCut.DAY, UsageCut.HOUR):
        return sorted(parts, key=lambda part: str(part.key))
    sent = UsageMeter.MESSAGES_SENT
    return sorted(parts, key=lambda part: (-_weight(query, part), -part.quantity(sent), str(part.key)))


def _row(query: UsageQuery, part: UsagePart, label: str, most: int) -> PartRow:
    meter = UsageMeter(query.meter) if query.meter else None
    return PartRow(
        label,
        _link(query, part),
        part,
        shown_quantity(meter, part.settled[meter]) if meter else "",
        shown_quantity(meter, part.provisional[meter]) if meter else "",
        [shown_quantity(one, part.quantity(one)) for one in COLUMNS],
        _amount(query, part),
        _weight(query, part) * 100 // most if most else 0,
    )


def _link(query: UsageQuery, part: UsagePart) -> str:
    if isinstance(part.key, UUID):
        return (
            query.query(by=UsageCut.DAY.value, queue=part.key)
            if query.day is None
            else query.query(by="hour", queue=part.key)
        )
    if query.by == UsageCut.DAY and isinstance(part.key, datetime):
        return query.query(by=UsageCut.HOUR.value, day=f"{part.key:%Y-%m-%d}")
    return ""


def _labels(account_id: str, query: UsageQuery, parts: Sequence[UsagePart]) -> list[str]:
    if query.by == UsageCut.QUEUE:
        names = _queue_names(account_id, [part.key for part in parts if isinstance(part.key, UUID)])
        return [names[part.key] for part in parts if isinstance(part.key, UUID)]
    return [_label(query, part) for part in parts]


def _label(query: UsageQuery, part: UsagePart) -> str:
    if isinstance(part.key, datetime):
        return f"{part.key:%Y-%m-%d}" if query.by == UsageCut.DAY else f"{part.key:%Y-%m-%d %H:00}"
    if query.by == UsageCut.ORIGIN:
        return _ORIGINS.get(str(part.key), str(part.key))
    return str(part.key) or f"Without the tag {query.tag}"


def _queue_names(account_id: str, uuids: list[UUID]) -> dict[UUID, str]:
    names = {queue.uuid: queue.name for queue in selectors.queues_named(account_id, uuids)}
    return {one: names.get(one) or ("Requests of no queue" if one == _NO_QUEUE else f"Deleted: {one}") for one in uuids}


def _chart(query: UsageQuery, parts: list[UsagePart], currency: str) -> BarChart | None:
    """Of times only; what was not used is there as nothing."""
    if query.by == UsageCut.DAY:
        begins, ends, step, form = *query.period, DAY, "%-d %b"
    elif query.by == UsageCut.HOUR and query.day is not None:
        begins, ends, step, form = *query.day, HOUR, "%H:00"
    else:
        return None
    by_time = {part.key: part for part in parts}
    values = []
    while begins < ends:
        values.append(_bar_value(query, by_time.get(begins), begins.strftime(form), currency))
        begins += step
    return bar_chart(values)


def _bar_value(query: UsageQuery, part: UsagePart | None, label: str, currency: str) -> BarValue:
    if part is None:
        return BarValue(label, 0, 0, "nothing")
    if query.meter:
        meter = UsageMeter(query.meter)
        text = f"{shown_quantity(meter, part.quantity(meter))} {SHOWN[meter][2]}"
        return BarValue(label, part.settled[meter], part.provisional[meter], text)
    settled = part.amount_nanos - part.provisional_nanos
    return BarValue(label, settled, part.provisional_nanos, nanos(part.amount_nanos, currency))


def _cuts_offered(query: UsageQuery) -> list[str]:
    """Keys are known of whole months of the account alone."""
    found = ["day", *(["hour"] if query.day else []), *([] if query.queue else ["queue", "tag"]), "origin"]
    return found if query.queue or query.day else [*found, BY_KEY]


def _filters(account_id: str, query: UsageQuery) -> list[tuple[str, str]]:
    """What is left out, in words, each with the address without it."""
    found = []
    if query.queue:
        name = _queue_names(account_id, [query.queue])[query.queue]
        found.append((f"Queue: {name}", query.query(queue="")))
    if query.day:
        found.append((f"Day: {query.day.start:%Y-%m-%d}", query.query(day="", by=UsageCut.DAY.value)))
    return found


def _keys(visit: AccountVisit, query: UsageQuery) -> list[tuple[KeyRequests, str]]:
    """With their names, where the member sees keys, and addresses of people, where the member sees people; a key that
    was deleted has none."""
    keys = keys_of(visit.account_id, "", KEYS_PER_ACCOUNT_MAX) if visit.may(Act.READ_KEYS) else []
    names = {key.access_key_id: key.name for key in keys}
    found = requests_by_key(visit.account_id, Interval(*query.period))
    if visit.may(Act.READ_MEMBERS):
        people = [key.access_key_id for key in found if key.access_key_id.startswith(PERSON_PREFIX)]
        addresses = member_addresses(visit.account_id, [one.removeprefix(PERSON_PREFIX) for one in people])
        names |= {one: addresses.get(one.removeprefix(PERSON_PREFIX), "") for one in people}
    return [(key, names.get(key.access_key_id, "")) for key in found]
