"""Pause and resume of a queue: a change of its attribute `Penstock.Paused` that is answered once storage follows it."""

from __future__ import annotations

from asgiref.sync import async_to_sync, sync_to_async
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from api import limits
from api.internal.rest import caller
from api.operation_view import OperationView, Repetition
from api.queues import actions, selectors
from api.queues.attributes import QueueProblem
from api.queues.models import Queue
from api.queues.readiness import wait_until
from api.queues.serializers import QueueSerializer
from api.queues.views import queue_answer
from frontend.authn.principal import Principal
from frontend.metadata.records import queue_change_key
from frontend.queues.extensions import PAUSED


class PauseView(OperationView):
    repetition = Repetition.WAITS

    @extend_schema(operation_id="queues.pause", request=None, responses=QueueSerializer)
    def post(self, request: Request, name: str) -> Response:
        """From the answer on nothing of the queue is handed out. Sends, and what is in flight, go on."""
        return _answer(request, name, True)


class ResumeView(OperationView):
    repetition = Repetition.WAITS

    @extend_schema(operation_id="queues.resume", request=None, responses=QueueSerializer)
    def post(self, request: Request, name: str) -> Response:
        """Receives are answered again, those that wait first."""
        return _answer(request, name, False)


async def set_paused_and_wait(actor: Principal, account_id: str, name: str, paused: bool) -> Queue:
    """When it returns the partitions of the queue have the new state. Raises QueueProblem."""
    change = {PAUSED: "true" if paused else "false"}
    queue = await sync_to_async(actions.set_queue_attributes)(actor, account_id, name, change)

    async def reconciled() -> bool:
        return await sync_to_async(selectors.is_reconciled)(account_id, queue.pk, queue.generation)

    if not await wait_until(queue_change_key(account_id, name), reconciled, limits.QUEUE_READY_WAIT_MS_MAX):
        raise QueueProblem("ServiceUnavailable", "The change is noted, storage lags behind. Repeat the request.")
    return queue


def _answer(request: Request, name: str, paused: bool) -> Response:
    who = caller(request)
    queue = async_to_sync(set_paused_and_wait)(who, who.account_id, name, paused)
    return queue_answer(queue)
