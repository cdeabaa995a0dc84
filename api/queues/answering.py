"""How REST answers with a queue: shown, with its ETag. Changes look at the tag under the lock of the queue's row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rest_framework.response import Response

from api.etags import entity_tag
from api.iam.authorisation import allowed_queues
from api.operation_view import Tagged
from api.queues.models import Queue
from api.queues.serializers import QueueSerializer, listed_json
from frontend.authn.principal import Principal
from frontend.authz.actions import MANAGEMENT_OPERATIONS

# Follow what storage does, and the deletion.
_UNWRITTEN = frozenset(("state", "partitions_open", "partitions_draining", "kept_until"))
QUEUE_TAGGED = Tagged(_UNWRITTEN, lock=None, is_checked_below=True)


def queue_answer(queue: Queue, status: int = 200) -> Response:
    shown = QueueSerializer(queue).data
    return Response(shown, status=status, headers={"ETag": entity_tag(shown, _UNWRITTEN)})


def check_queue(check: Callable[[Mapping[str, Any]], None] | None) -> Callable[[Queue], None] | None:
    """For actions: the check of a view, of the queue as it is shown."""
    return None if check is None else lambda queue: check(QueueSerializer(queue).data)


def listed_queues(principal: Principal, queues: Sequence[Queue]) -> list[dict[str, object]]:
    """Settings and tags of those that the caller may read one by one: the right to list gives names."""
    readable = {queue.pk for queue in allowed_queues(principal, MANAGEMENT_OPERATIONS["queues.get"], queues)}
    return [listed_json(queue, queue.pk in readable) for queue in queues]
