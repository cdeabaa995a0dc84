"""REST: the audit trail of the account that asks."""

from __future__ import annotations

from django.db import transaction
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from api.audit.actions import record
from api.audit.selectors import entries_after, entries_of
from api.audit.serializers import AuditEntrySerializer, AuditPageSerializer, entries_as_csv, entries_as_lines
from api.internal.authentication import actor_of
from api.internal.rest import caller
from api.limits import AUDIT_EXPORT_ENTRIES_MAX
from api.operation_view import OperationView
from api.pages import make_page_token, page_asked, text_asked

_ID_DIGITS_MAX = 18
_FORMATS = {"jsonl": ("application/jsonl", entries_as_lines), "csv": ("text/csv; charset=utf-8", entries_as_csv)}


class AuditEntriesView(OperationView):
    @extend_schema(
        operation_id="audit.list",
        parameters=[
            OpenApiParameter("action", OpenApiTypes.STR, description="How the action begins, such as `refused.`."),
            OpenApiParameter("subject", OpenApiTypes.STR, description="How the subject begins."),
            OpenApiParameter("page_size", OpenApiTypes.INT, description="1 to 1000, 100 if not given."),
            OpenApiParameter("page_token", OpenApiTypes.STR, description="`next_page_token` of the page before."),
        ],
        responses=AuditPageSerializer,
    )
    def get(self, request: Request) -> Response:
        """Who changed what, and what was refused; the newest first."""
        page = page_asked(request)
        before = None if page.after == "" else _number(page.after, "page_token")
        asked = (text_asked(request, "action"), text_asked(request, "subject"))
        found = entries_of(caller(request).account_id, before, page.size + 1, *asked)
        shown = found[: page.size]
        token = make_page_token(str(shown[-1].pk)) if len(found) > page.size else None
        return Response({"entries": AuditEntrySerializer(shown, many=True).data, "next_page_token": token})


class AuditExportView(OperationView):
    @extend_schema(
        operation_id="audit.export",
        parameters=[
            OpenApiParameter("form", OpenApiTypes.STR, enum=list(_FORMATS), description="`jsonl` if not given."),
            OpenApiParameter("after", OpenApiTypes.INT, description="`id` of the last entry of the export before."),
        ],
        responses={(200, "application/jsonl"): OpenApiTypes.STR, (200, "text/csv"): OpenApiTypes.STR},
    )
    def get(self, request: Request) -> HttpResponse:
        """The trail as a file, the oldest first; at most 10,000 entries a call. The trail has the export, too."""
        form = text_asked(request, "form") or "jsonl"
        if form not in _FORMATS:
            raise ValidationError({"form": f"must be one of {', '.join(_FORMATS)}"})
        after = _number(text_asked(request, "after") or "0", "after")
        who = caller(request)
        entries = entries_after(who.account_id, after, AUDIT_EXPORT_ENTRIES_MAX)
        with transaction.atomic():
            subject = f"account:{who.account_id}"
            record(actor_of(who), who.account_id, "audit.export", subject, after=after, entries=len(entries), form=form)
        content_type, write = _FORMATS[form]
        disposition = f'attachment; filename="audit-{who.account_id}.{form}"'
        return HttpResponse(write(entries), content_type=content_type, headers={"Content-Disposition": disposition})


def _number(text: str, name: str) -> int:
    """Raises ValidationError."""
    if not (text.isascii() and text.isdigit() and len(text) <= _ID_DIGITS_MAX):
        raise ValidationError({name: "is not the id of an entry"})
    return int(text)
