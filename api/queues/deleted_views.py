"""REST: deleted queues that can still be restored."""

from __future__ import annotations

from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from api.accounts.views import PAGE_PARAMETERS
from api.internal.rest import caller
from api.operation_view import OperationView
from api.pages import page_asked
from api.queues import attributes as rules
from api.queues import keeping, selectors
from api.queues.serializers import (
    DeletedQueuePageSerializer,
    DeletedQueueSerializer,
    QueueSerializer,
    RestorationSerializer,
)
from api.queues.views import queue_answer


class DeletedQueuesView(OperationView):
    @extend_schema(operation_id="deleted_queues.list", parameters=PAGE_PARAMETERS, responses=DeletedQueuePageSerializer)
    def get(self, request: Request) -> Response:
        """Deleted queues that can be restored, by when they were made."""
        page = page_asked(request)
        after = int(page.after or "0")
        queues = selectors.deleted_queues_of(caller(request).account_id, after, page.size + 1)
        shown = queues[: page.size]
        token = page.token(shown[-1].pk) if len(queues) > page.size else None
        return Response({"queues": DeletedQueueSerializer(shown, many=True).data, "next_page_token": token})


class DeletedQueueView(OperationView):
    @extend_schema(operation_id="deleted_queues.end", responses={202: QueueSerializer})
    def delete(self, request: Request, queue_id: UUID) -> Response:
        """The queue is not kept any longer. Its messages end now."""
        who = caller(request)
        return Response(QueueSerializer(keeping.let_go(who, who.account_id, queue_id)).data, status=202)


class RestorationView(OperationView):
    @extend_schema(operation_id="deleted_queues.restore", request=RestorationSerializer, responses=QueueSerializer)
    def post(self, request: Request, queue_id: UUID) -> Response:
        """The queue is there again, with the messages that it held."""
        asked = RestorationSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        name = asked.validated_data["name"]
        who = caller(request)
        checked = rules.check_name(name) if name else ""
        queue = keeping.restore_queue(who, who.account_id, queue_id, checked)
        return queue_answer(queue)
