"""REST: queues. Each is shown with its ETag; changes look at the tag under the lock of the queue's row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from api import limits
from api.accounts.views import PAGE_PARAMETERS
from api.encryption.selectors import named_key
from api.etags import entity_tag
from api.iam.authorisation import allowed_queues
from api.internal.rest import caller
from api.operation_view import OperationView, Repetition, Tagged
from api.pages import page_asked, text_asked
from api.queues import actions, moves, selectors
from api.queues import attributes as rules
from api.queues.models import MessageMoveTask, Queue
from api.queues.provisioning import create_and_wait
from api.queues.serializers import (
    MoveListSerializer,
    MoveRequestSerializer,
    MoveSerializer,
    QueuePageSerializer,
    QueueRequestSerializer,
    QueueSerializer,
    QueueSettingsSerializer,
    listed_json,
)
from api.queues.spreading import change_attributes
from api.settings.environment import environment
from frontend.authn.principal import Principal
from frontend.authz.actions import MANAGEMENT_OPERATIONS
from frontend.queues.encryption import names_customer_key

SHRED = OpenApiParameter(
    "shred",
    OpenApiTypes.BOOL,
    description="Dead letters of this queue in other queues cannot be read any more, either.",
)
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


class QueuesView(OperationView):
    repetition = Repetition.WAITS

    @extend_schema(
        operation_id="queues.list",
        parameters=[OpenApiParameter("prefix", OpenApiTypes.STR), *PAGE_PARAMETERS],
        responses=QueuePageSerializer,
    )
    def get(self, request: Request) -> Response:
        """Queues by name."""
        page = page_asked(request)
        prefix = text_asked(request, "prefix")
        queues = selectors.queues_of(caller(request).account_id, prefix, page.after, page.size + 1)
        shown = queues[: page.size]
        token = page.token(shown[-1].name) if len(queues) > page.size else None
        return Response({"queues": listed_queues(caller(request), shown), "next_page_token": token})

    @extend_schema(operation_id="queues.create", request=QueueRequestSerializer, responses={201: QueueSerializer})
    def post(self, request: Request) -> Response:
        """A new queue, usable when this answers. The same request again answers with the queue that is there."""
        asked = QueueRequestSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        _require_key(request, asked.validated_data)
        name = rules.check_name(asked.validated_data["name"])
        attributes = rules.check_new(asked.attributes(caller(request).account_id), name)
        tags = rules.check_tags(asked.validated_data["tags"])
        actor = caller(request)
        queue = async_to_sync(create_and_wait)(actor, caller(request).account_id, name, attributes, tags)
        return queue_answer(queue, 201)


class QueueView(OperationView):
    repetition = Repetition.WAITS
    tagged = QUEUE_TAGGED

    @extend_schema(operation_id="queues.get", responses=QueueSerializer)
    def get(self, request: Request, name: str) -> Response:
        queue = selectors.queue_of(caller(request).account_id, name)
        if queue is None:
            raise NotFound
        return queue_answer(queue)

    @extend_schema(
        operation_id="queues.update",
        request=QueueSettingsSerializer,
        responses=QueueSerializer,
    )
    def patch(self, request: Request, name: str) -> Response:
        """Changes the settings that are given."""
        asked = QueueSettingsSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        if not asked.validated_data:
            raise ValidationError("names no setting to change")
        _require_key(request, asked.validated_data)
        change = rules.check_change(asked.attributes(caller(request).account_id), name)
        check, who = check_queue(self.check_of(request)), caller(request)
        return queue_answer(async_to_sync(change_attributes)(who, who.account_id, name, change, check))

    @extend_schema(operation_id="queues.delete", parameters=[SHRED], responses={202: QueueSerializer})
    def delete(self, request: Request, name: str) -> Response:
        """The queue and its messages; in an account with a period of grace when that is over. Its name can be used
        again after a minute."""
        shred = _shred_asked(request)
        check, who = check_queue(self.check_of(request)), caller(request)
        return queue_answer(actions.delete_queue(who, who.account_id, name, shred, check=check), 202)


def _require_key(request: Request, given: Mapping[str, Any]) -> None:
    """SQS stores any text, and refuses messages afterwards; here a misspelt key is refused at once."""
    named, account_id = given.get("encryption_key"), caller(request).account_id
    if not named or not names_customer_key(named) or named_key(account_id, named) is not None:
        return
    meant = f": is alias/{named} meant? It" if named_key(account_id, f"alias/{named}") else ": it"
    text = f"names no encryption key of this account{meant} is alias/ and a name, an id, or an ARN of either"
    raise ValidationError({"encryption_key": text})


class DeadLetterSourcesView(OperationView):
    @extend_schema(operation_id="queues.sources", parameters=PAGE_PARAMETERS, responses=QueuePageSerializer)
    def get(self, request: Request, name: str) -> Response:
        """The queues that have this one as their dead-letter queue, by name."""
        page = page_asked(request)
        account_id = caller(request).account_id
        if selectors.queue_of(account_id, name) is None:
            raise NotFound
        queues = selectors.dead_letter_sources_of(account_id, name, page.after, page.size + 1)
        shown = queues[: page.size]
        token = page.token(shown[-1].name) if len(queues) > page.size else None
        return Response({"queues": listed_queues(caller(request), shown), "next_page_token": token})


class MovesView(OperationView):
    @extend_schema(operation_id="moves.list", responses=MoveListSerializer)
    def get(self, request: Request, name: str) -> Response:
        """The newest ten tasks that move messages out of this dead-letter queue."""
        found = moves.moves_of(caller(request).account_id, _arn(request, name), limits.MOVE_TASKS_LISTED_MAX)
        return Response({"moves": MoveSerializer(found, many=True).data})

    @extend_schema(operation_id="moves.start", request=MoveRequestSerializer, responses={201: MoveSerializer})
    def post(self, request: Request, name: str) -> Response:
        """Moves the messages of this dead-letter queue elsewhere, in the background. One task at a time."""
        asked = MoveRequestSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        given = asked.validated_data
        destination = _arn(request, given["destination"]) if given["destination"] else None
        who = caller(request)
        source = _arn(request, name)
        choice = moves.Choice(**{name: given[name] for name in moves.Choice._fields})
        rate = given["messages_per_second"]
        task = moves.start_move(who, who.account_id, source, destination, rate, choice)
        return Response(MoveSerializer(task).data, status=201)


class MoveView(OperationView):
    tagged = Tagged(lock=None)

    @extend_schema(operation_id="moves.get", responses=MoveSerializer)
    def get(self, request: Request, name: str, move_id: UUID) -> Response:
        """One task, and how far it has come."""
        return Response(MoveSerializer(_move(request, name, move_id)).data)

    @extend_schema(operation_id="moves.cancel", responses={202: MoveSerializer})
    def delete(self, request: Request, name: str, move_id: UUID) -> Response:
        """Stops the task. What was moved stays moved."""
        return _ordered(request, name, move_id, moves.cancel_move)


class MovePauseView(OperationView):
    @extend_schema(operation_id="moves.pause", request=None, responses={202: MoveSerializer})
    def post(self, request: Request, name: str, move_id: UUID) -> Response:
        """The task stops until it is resumed or cancelled."""
        return _ordered(request, name, move_id, moves.pause_move)


class MoveResumeView(OperationView):
    @extend_schema(operation_id="moves.resume", request=None, responses={202: MoveSerializer})
    def post(self, request: Request, name: str, move_id: UUID) -> Response:
        """A paused task goes on where it was."""
        return _ordered(request, name, move_id, moves.resume_move)


def _ordered(
    request: Request, name: str, move_id: UUID, order: Callable[[Principal, str, UUID], MessageMoveTask]
) -> Response:
    task = _move(request, name, move_id)
    who = caller(request)
    return Response(MoveSerializer(order(who, who.account_id, task.uuid)).data, status=202)


def _move(request: Request, name: str, move_id: UUID) -> MessageMoveTask:
    task = moves.move_of(caller(request).account_id, name, move_id)
    if task is None:
        raise NotFound
    return task


def _arn(request: Request, name: str) -> str:
    return rules.format_arn(environment().region, caller(request).account_id, name)


def _shred_asked(request: Request) -> bool:
    given = request.query_params.get("shred", "false")
    if given not in ("true", "false"):
        raise ValidationError({"shred": "must be true or false"})
    return given == "true"
