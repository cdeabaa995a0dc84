"""The audit trail as a file: what is asked for, the oldest first, written as it is read. The export is in the trail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import NamedTuple

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import transaction
from django.http import HttpRequest, StreamingHttpResponse

from api.audit.actions import record
from api.audit.models import AuditEntry
from api.audit.selectors import AuditQuery, entries_with, ids_after
from api.audit.serializers import csv_header, entries_as_csv, entries_as_lines
from api.limits import AUDIT_EXPORT_ENTRIES_MAX
from frontend.authn.principal import Principal


class AuditForm(NamedTuple):
    content_type: str
    header: str
    write: Callable[[list[AuditEntry]], str]


FORMS = {
    "jsonl": AuditForm("application/jsonl", "", entries_as_lines),
    "csv": AuditForm("text/csv; charset=utf-8", csv_header(), entries_as_csv),
}


def export_entries(
    request: HttpRequest, actor: Principal, account_id: str, asked: AuditQuery, form: str, after: int = 0
) -> StreamingHttpResponse:
    """At most AUDIT_EXPORT_ENTRIES_MAX, behind the entry `after`. Which these are is known before the first is sent."""
    ids = ids_after(account_id, after, AUDIT_EXPORT_ENTRIES_MAX, asked)
    with transaction.atomic():
        details = {"after": after, "entries": len(ids), "form": form, "asked": asked.in_words()}
        record(actor, account_id, "audit.export", f"account:{account_id}", **details)
    chunks = _chunks(account_id, ids, FORMS[form])
    return StreamingHttpResponse(
        in_threads(chunks) if isinstance(request, ASGIRequest) else chunks,
        content_type=FORMS[form].content_type,
        headers={"Content-Disposition": f'attachment; filename="audit-{account_id}.{form}"'},
    )


def _chunks(account_id: str, ids: list[int], form: AuditForm) -> Iterator[str]:
    if form.header:
        yield form.header
    for entries in entries_with(account_id, ids):
        yield form.write(entries)


async def in_threads(chunks: Iterator[str]) -> AsyncIterator[str]:
    """A piece at a time: given the iterator itself, Django would read all of it before it sends the first piece."""
    read = sync_to_async(_next_of)
    while (chunk := await read(chunks)) is not None:
        yield chunk


def _next_of(chunks: Iterator[str]) -> str | None:
    return next(chunks, None)
