"""REST: the audit trail of the account that asks."""

from __future__ import annotations

from django.http import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from api.audit.asked import WrongQuery, query_of
from api.audit.exporting import FORMS, export_entries
from api.audit.selectors import OUTCOMES, AuditQuery, entries_of
from api.audit.serializers import AuditEntrySerializer, AuditPageSerializer
from api.internal.rest import caller
from api.operation_view import OperationView
from api.pages import page_asked, text_asked

_ID_DIGITS_MAX = 18
_REFUSED_IS = "`refused`: calls that were refused; `done`: all else."
_FILTERS = (
    OpenApiParameter("action", OpenApiTypes.STR, description="How the action begins, such as `refused.`."),
    OpenApiParameter("subject", OpenApiTypes.STR, description="How the subject begins."),
    OpenApiParameter("actor", OpenApiTypes.STR, description="The whole name of who acted, or as whom."),
    OpenApiParameter("outcome", OpenApiTypes.STR, enum=OUTCOMES, description=_REFUSED_IS),
    OpenApiParameter("since", OpenApiTypes.DATETIME, description="From this time on; UTC if it names no offset."),
    OpenApiParameter("until", OpenApiTypes.DATETIME, description="Before this time; UTC if it names no offset."),
)


class AuditEntriesView(OperationView):
    @extend_schema(
        operation_id="audit.list",
        parameters=[
            *_FILTERS,
            OpenApiParameter("page_size", OpenApiTypes.INT, description="1 to 1000, 100 if not given."),
            OpenApiParameter("page_token", OpenApiTypes.STR, description="`next_page_token` of the page before."),
        ],
        responses=AuditPageSerializer,
    )
    def get(self, request: Request) -> Response:
        """Who changed what, and what was refused; the newest first."""
        page = page_asked(request)
        before = int(page.after) if page.after else None
        found = entries_of(caller(request).account_id, before, page.size + 1, _asked(request))
        shown = found[: page.size]
        token = page.token(shown[-1].pk) if len(found) > page.size else None
        return Response({"entries": AuditEntrySerializer(shown, many=True).data, "next_page_token": token})


class AuditExportView(OperationView):
    @extend_schema(
        operation_id="audit.export",
        parameters=[
            *_FILTERS,
            OpenApiParameter("form", OpenApiTypes.STR, enum=list(FORMS), description="`jsonl` if not given."),
            OpenApiParameter("after", OpenApiTypes.INT, description="`id` of the last entry of the export before."),
        ],
        responses={(200, "application/jsonl"): OpenApiTypes.STR, (200, "text/csv"): OpenApiTypes.STR},
    )
    def get(self, request: Request) -> HttpResponseBase:
        """The trail as a file, the oldest first; at most 10,000 entries a call. The trail has the export, too."""
        form = text_asked(request, "form") or "jsonl"
        if form not in FORMS:
            raise ValidationError({"form": f"must be one of {', '.join(FORMS)}"})
        after = _number(text_asked(request, "after") or "0")
        who, asked = caller(request), _asked(request)
        return export_entries(request._request, who, who.account_id, asked, form, after)


def _asked(request: Request) -> AuditQuery:
    """Raises ValidationError."""
    try:
        return query_of(request.query_params)
    except WrongQuery as error:
        raise ValidationError({error.name: str(error)}) from None


def _number(text: str) -> int:
    """Raises ValidationError."""
    if not (text.isascii() and text.isdigit() and len(text) <= _ID_DIGITS_MAX):
        raise ValidationError({"after": "is not the id of an entry"})
    return int(text)
