"""CreateQueue as callers see it: the desired state is written, then the answer waits until the queue is usable."""

from __future__ import annotations

from collections.abc import Mapping

from asgiref.sync import sync_to_async

from api import limits
from api.hints import Hint, send_hint
from api.queues import actions, selectors
from api.queues.attributes import QueueProblem
from api.queues.models import GONE, Queue, QueueStatus
from api.queues.readiness import wait_until
from frontend.authn.principal import Principal
from frontend.metadata.records import queue_change_key


async def create_and_wait(
    actor: Principal, account_id: str, name: str, asked: Mapping[str, str], tags: Mapping[str, str]
) -> Queue:
    """Raises QueueProblem; ServiceUnavailable means: it will exist, ask again."""
    outcome = await sync_to_async(actions.create_queue)(actor, account_id, name, asked, tags)
    return await wait_usable(account_id, name, outcome)


async def wait_usable(account_id: str, name: str, outcome: actions.CreateOutcome) -> Queue:
    """Raises QueueProblem; ServiceUnavailable means: it will exist, ask again."""
    queue = outcome.queue
    if queue.state == QueueStatus.ACTIVE:
        return queue
    if not outcome.created:
        await sync_to_async(send_hint)(Hint.PROVISION_QUEUE, queue.pk)

    async def usable() -> bool:
        state = await sync_to_async(selectors.queue_state)(account_id, queue.pk)
        if state is None or state in GONE:
            raise QueueProblem("QueueDeletedRecently", "The queue was deleted while it was being created.")
        return state == QueueStatus.ACTIVE

    if not await wait_until(queue_change_key(account_id, name), usable, limits.QUEUE_READY_WAIT_MS_MAX):
        raise QueueProblem("ServiceUnavailable", "The queue is still being created. Repeat the request.")
    queue.state = QueueStatus.ACTIVE
    return queue
