"""The SQS management actions, as the front end asks for them: plain views, JSON in and out.

200 with the action's result, or an error as {"code", "message"}: 400-family as SQS has it, 503 where asking again
helps.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse

from api import limits
from api.iam.errors import AccessDenied
from api.internal.authentication import principal_of
from api.internal.sqs_targets import authorise, queue_name_of, queue_owner_of
from api.outage import DATABASE_AWAY, outage_text
from api.pages import PagedList
from api.queues import actions, moves, selectors
from api.queues import attributes as rules
from api.queues.attributes import QueueProblem
from api.queues.auto_creation import auto_create_and_wait
from api.queues.models import MessageMoveTask, MoveStatus, Queue
from api.queues.permissions import check_label, check_permission
from api.queues.provisioning import create_and_wait
from api.queues.spreading import change_attributes
from frontend.authn.principal import Principal
from frontend.authn.vouching import PrincipalError

_STATUS = {"OverLimit": 403, "AccessDeniedException": 403, "ResourceNotFoundException": 404, "ServiceUnavailable": 503}


class ActionRequest(msgspec.Struct):
    account_id: str
    name: str
    params: dict[str, object]


_decode = msgspec.json.Decoder(ActionRequest).decode
Action = Callable[[Principal, dict[str, object]], Awaitable[dict[str, object]]]


async def run_action(request: HttpRequest, action: str) -> HttpResponse:
    handler = _ACTIONS.get(action)
    if handler is None or request.method != "POST":
        return problem_answer(404, "InvalidAction", "There is no such action here.")
    try:
        principal = principal_of(request)
        asked = _decode(request.body)
        if (asked.account_id, asked.name) != (principal.account_id, principal.name):
            raise PrincipalError("the request names another caller than its principal")
        await sync_to_async(authorise)(principal, action, asked.params)
        return json_answer(200, await _run(handler, principal, asked.params))
    except PrincipalError as error:
        return problem_answer(401, "InvalidSecurity", str(error))
    except msgspec.DecodeError:
        return problem_answer(400, "InvalidParameterValueException", "The request does not parse.")
    except AccessDenied as denied:
        return problem_answer(403, "AccessDeniedException", str(denied))
    except QueueProblem as problem:
        return problem_answer(_STATUS.get(problem.code, 400), problem.code, problem.message)
    except DATABASE_AWAY as error:
        return problem_answer(503, "ServiceUnavailable", outage_text(error))


async def _run(handler: Action, principal: Principal, params: dict[str, object]) -> dict[str, object]:
    try:
        return await handler(principal, params)
    except rules.RedriveRefused as problem:
        raise problem.showing(params.get("Attributes")) from None


async def _create_queue(principal: Principal, params: dict[str, object]) -> dict[str, object]:
    name = rules.check_name(params.get("QueueName"))
    asked = rules.check_new(params.get("Attributes"), name)
    tags = rules.check_tags(params.get("tags"))
    queue = await create_and_wait(principal, principal.account_id, name, asked, tags)
    return {"name": queue.name}


async def _auto_create_queue(principal: Principal, params: dict[str, object]) -> dict[str, object]:
    """For a send to a queue that does not exist; no action of SQS."""
    name = rules.check_name(params.get("QueueName"))
    return {"name": (await auto_create_and_wait(principal, principal.account_id, name)).name}


async def _delete_queue(principal: Principal, params: dict[str, object]) -> dict[str, object]:
    name = queue_name_of(principal.account_id, params)
    await sync_to_async(actions.delete_queue)(principal, principal.account_id, name)
    return {}


async def _set_queue_attributes(principal: Principal, params: dict[str, object]) -> dict[str, object]:
    name = queue_name_of(principal.account_id, params)
    change = rules.check_change(params.get("Attributes"), name)
    await change_attributes(principal, principal.account_id, name, change)
    return {}


async def _list_queues(principal: Principal, params: dict[str, object]) -> dict[str, object]:
    prefix = params.get("QueueNamePrefix") or ""
    if not isinstance(prefix, str) or "\0" in prefix:
        raise QueueProblem("InvalidParameterValueException", "QueueNamePrefix must be the beginning of a queue name.")
    of = PagedList(principal.account_id, "ListQueues", (prefix,))
    return await _page(of, params, lambda after, limit: selectors.queues_of(principal.account_id, prefix, after, limit))


async def _tag_queue(principal: Principal, params: dict[str, object]) -> dict[str, object]:
    name = queue_name_of(principal.account_id, params)
    tags = rules.check_tags(params.get("Tags"))
    if not tags:
        raise QueueProblem("MissingRequiredParameterException", "The request must contain the parameter Tags.")
    await sync_to_async(actions.tag_queue)(principal, principal.account_id, name, tags)
    return {}


async def _untag_queue(principal: Principal, params: dict[str, object]) -> dict[str, object]:
    name = queue_name_of(principal.account_id, params)
    keys = rules.check_tag_keys(params.get("TagKeys"))
    await sync_to_async(actions.untag_queue)(principal, principal.account_id, name, keys)
    return {}


async def _list_queue_tags(principal: Principal, params: dict[str, object]) -> dict[str, object]:
    return {"Tags": (await _live_queue(principal.account_id, params)).tags}


async def _add_permission(principal: Principal, params: dict[str, object]) -> dict[str, object]:
    name = queue_name_of(principal.account_id, params)
    permission = check_permission(params.get("Label"), params.get("AWSAccountIds"), params.get("Actions"))
    await sync_to_async(actions.add_permission)(principal, principal.account_id, name, permission)
    return {}


async def _remove_permission(principal: Principal, params: dict[str, object]) -> dict[str, object]:
    name = queue_name_of(principal.account_id, params)
    label = check_label(params.get("Label"))
    await sync_to_async(actions.remove_permission)(principal, principal.account_id, name, label)
    return {}


async def _list_dead_letter_source_queues(principal: Principal, params: dict[str, object]) -> dict[str, object]:
    owner_id = queue_owner_of(principal.account_id, params)
    queue = await _live_queue(owner_id, params)
    return await _page(
        PagedList(owner_id, "ListDeadLetterSourceQueues", (str(queue.uuid),)),
        params,
        lambda after, limit: selectors.dead_letter_sources_of(owner_id, queue.name, after, limit),
    )


async def _start_message_move_task(principal: Principal, params: dict[str, object]) -> dict[str, object]:
    asked = (params.get("SourceArn"), params.get("DestinationArn"), params.get("MaxNumberOfMessagesPerSecond"))
    task = await sync_to_async(moves.start_move)(principal, principal.account_id, *asked)
    return {"TaskHandle": moves.handle_of(task)}


async def _cancel_message_move_task(principal: Principal, params: dict[str, object]) -> dict[str, object]:
    task_uuid = await sync_to_async(moves.task_of_handle)(principal.account_id, params.get("TaskHandle"))
    task = await sync_to_async(moves.cancel_move)(principal, principal.account_id, task_uuid)
    return {"ApproximateNumberOfMessagesMoved": task.moved}


async def _list_message_move_tasks(principal: Principal, params: dict[str, object]) -> dict[str, object]:
    limit = moves.check_limit(params.get("MaxResults"))
    tasks = await sync_to_async(moves.moves_of)(principal.account_id, params.get("SourceArn"), limit)
    return {"Results": [_move_json(task) for task in tasks]}


_ACTIONS: dict[str, Action] = {
    "AddPermission": _add_permission,
    "AutoCreateQueue": _auto_create_queue,
    "CancelMessageMoveTask": _cancel_message_move_task,
    "CreateQueue": _create_queue,
    "DeleteQueue": _delete_queue,
    "ListDeadLetterSourceQueues": _list_dead_letter_source_queues,
    "ListMessageMoveTasks": _list_message_move_tasks,
    "ListQueueTags": _list_queue_tags,
    "ListQueues": _list_queues,
    "RemovePermission": _remove_permission,
    "SetQueueAttributes": _set_queue_attributes,
    "StartMessageMoveTask": _start_message_move_task,
    "TagQueue": _tag_queue,
    "UntagQueue": _untag_queue,
}


async def _page(
    of: PagedList, params: dict[str, object], queues_after: Callable[[str, int], Sequence[Queue]]
) -> dict[str, object]:
    """The names of a page. SQS gives a token only to those who said how much they want."""
    most = params.get("MaxResults")
    token = params.get("NextToken")
    if most is not None and (type(most) is not int or not 1 <= most <= limits.PAGE_SIZE_MAX):
        raise QueueProblem(
            "InvalidParameterValueException",
            f"Value for parameter MaxResults is invalid. Reason: Must be between 1 and {limits.PAGE_SIZE_MAX}.",
        )
    if token is not None and most is None:
        raise QueueProblem("InvalidParameterValueException", "NextToken is only valid together with MaxResults.")
    after = "" if token is None else _after(of, token)
    limit = most if type(most) is int else limits.PAGE_SIZE_MAX
    queues = await sync_to_async(queues_after)(after, limit + 1)
    names = [queue.name for queue in queues[:limit]]
    result: dict[str, object] = {"names": names}
    if most is not None and len(queues) > limit:
        result["NextToken"] = of.token(names[-1])
    return result


def _move_json(task: MessageMoveTask) -> dict[str, object]:
    """Members that do not apply are left out: a handle is of use only while the task runs."""
    answer: dict[str, object] = {
        "Status": task.status,
        "SourceArn": task.source_arn,
        "ApproximateNumberOfMessagesMoved": task.moved,
        "StartedTimestamp": int(task.started_at.timestamp() * 1000),
    }
    if task.status == MoveStatus.RUNNING:
        answer["TaskHandle"] = moves.handle_of(task)
    if task.destination_arn:
        answer["DestinationArn"] = task.destination_arn
    if task.messages_per_s is not None:
        answer["MaxNumberOfMessagesPerSecond"] = task.messages_per_s
    if task.to_move is not None:
        answer["ApproximateNumberOfMessagesToMove"] = task.to_move
    if task.failure_reason:
        answer["FailureReason"] = task.failure_reason
    return answer


async def _live_queue(owner_id: str, params: dict[str, object]) -> Queue:
    name = queue_name_of(owner_id, params)
    queue = await sync_to_async(selectors.queue_of)(owner_id, name)
    if queue is None:
        raise QueueProblem("QueueDoesNotExist", "The specified queue does not exist.")
    return queue


def _after(of: PagedList, token: object) -> str:
    try:
        return of.after(token if isinstance(token, str) else "")
    except ValueError:
        raise QueueProblem("InvalidParameterValueException", "Invalid or expired next token.") from None


def problem_answer(status: int, code: str, message: str) -> HttpResponse:
    return json_answer(status, {"code": code, "message": message})


def json_answer(status: int, content: dict[str, object]) -> HttpResponse:
    try:
        encoded = msgspec.json.encode(content)
    except UnicodeEncodeError:
        # Half of a surrogate pair, which JSON of a caller escaped: `?` takes its place.
        encoded = json.dumps(content, ensure_ascii=False).encode(errors="replace")
    return HttpResponse(encoded, status=status, content_type="application/json")
