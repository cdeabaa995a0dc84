"""REST: the quotas of the account, and requests for more."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from api.accounts.views import PAGE_PARAMETERS
from api.internal.rest import caller
from api.operation_view import OperationView, Tagged
from api.pages import page_asked
from api.quotas import actions, selectors
from api.quotas.serializers import (
    AskQuotaSerializer,
    QuotaRequestPageSerializer,
    QuotaRequestSerializer,
    QuotasSerializer,
)


class QuotasView(OperationView):
    @extend_schema(operation_id="quotas.list", responses=QuotasSerializer)
    def get(self, request: Request) -> Response:
        """Every quota of the account: its value, its default, and what is in use of it."""
        account_id = caller(request).account_id
        row = selectors.holder_of(account_id)
        shown = {
            "quotas": selectors.quotas_in_use(account_id),
            "sending_stopped": None if row is None else row.sending_stopped or None,
            "sends_per_s": None if row is None else row.sends_per_s or None,
        }
        return Response(QuotasSerializer(shown).data)


class QuotaRequestsView(OperationView):
    @extend_schema(operation_id="quotas.requests", parameters=PAGE_PARAMETERS, responses=QuotaRequestPageSerializer)
    def get(self, request: Request) -> Response:
        """The account's requests for other quotas, the newest first."""
        page = page_asked(request)
        before = int(page.after) if page.after else None
        found = selectors.requests_of(caller(request).account_id, before, page.size + 1)
        shown = found[: page.size]
        token = page.token(shown[-1].pk) if len(found) > page.size else None
        return Response({"requests": QuotaRequestSerializer(shown, many=True).data, "next_page_token": token})

    @extend_schema(operation_id="quotas.ask", request=AskQuotaSerializer, responses={201: QuotaRequestSerializer})
    def post(self, request: Request) -> Response:
        """Asks the operator for another value of a quota."""
        asked = AskQuotaSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        who, given = caller(request), asked.validated_data
        made = actions.request_quota(who, who.account_id, given["name"], given["value"], given["reason"])
        return Response(QuotaRequestSerializer(made).data, status=201)


class QuotaRequestView(OperationView):
    tagged = Tagged(lock=None)

    @extend_schema(operation_id="quotas.request", responses=QuotaRequestSerializer)
    def get(self, request: Request, request_id: str) -> Response:
        known = request_id.isascii() and request_id.isdigit() and len(request_id) < 19
        found = selectors.request_of(caller(request).account_id, int(request_id)) if known else None
        if found is None:
            raise NotFound
        return Response(QuotaRequestSerializer(found).data)
