"""Message move tasks: a dead-letter queue is emptied into another queue, or back into the queues it was filled from.

The control plane keeps the tasks, a worker does the moving. These actions name queues by ARN, and never another
account's.
"""

from __future__ import annotations

from frontend.errors import RequestError, invalid, missing
from frontend.limits import MOVE_MESSAGES_PER_S_MAX, MOVE_TASKS_LISTED_MAX
from frontend.messages.admission import throttle_account
from frontend.queues.names import parse_arn
from frontend.sqs import requests
from frontend.sqs.call import SqsCall, ask_control, encode


async def start_message_move_task(call: SqsCall, request: requests.StartMessageMoveTask) -> bytes:
    params: dict[str, object] = {"SourceArn": _check_arn(request.source_arn, "SourceArn")}
    if request.destination_arn:
        params["DestinationArn"] = _check_arn(request.destination_arn, "DestinationArn")
    rate = request.max_number_of_messages_per_second
    if rate is not None:
        if not 1 <= rate <= MOVE_MESSAGES_PER_S_MAX:
            raise invalid(
                f"Value {rate} for parameter MaxNumberOfMessagesPerSecond is invalid. "
                f"Reason: Must be between 1 and {MOVE_MESSAGES_PER_S_MAX}, if provided."
            )
        params["MaxNumberOfMessagesPerSecond"] = rate
    return await _ask(call, "StartMessageMoveTask", params)


async def list_message_move_tasks(call: SqsCall, request: requests.ListMessageMoveTasks) -> bytes:
    params: dict[str, object] = {"SourceArn": _check_arn(request.source_arn, "SourceArn")}
    if request.max_results is not None:
        if not 1 <= request.max_results <= MOVE_TASKS_LISTED_MAX:
            raise invalid(
                f"Value {request.max_results} for parameter MaxResults is invalid. "
                f"Reason: Must be between 1 and {MOVE_TASKS_LISTED_MAX}, if provided."
            )
        params["MaxResults"] = request.max_results
    return await _ask(call, "ListMessageMoveTasks", params)


async def cancel_message_move_task(call: SqsCall, request: requests.CancelMessageMoveTask) -> bytes:
    if not request.task_handle:
        raise missing("TaskHandle")
    return await _ask(call, "CancelMessageMoveTask", {"TaskHandle": request.task_handle})


async def _ask(call: SqsCall, action: str, params: dict[str, object]) -> bytes:
    throttle_account(call.services, call.caller)
    return encode(await ask_control(call, action, params))


def _check_arn(text: str | None, parameter: str) -> str:
    """Only what a queue of ours can be called is asked for. Raises RequestError."""
    if not text:
        raise missing(parameter)
    if parse_arn(text) is None:
        raise RequestError(
            "ResourceNotFoundException", f"The resource that you specified for the {parameter} parameter doesn't exist."
        )
    return text
