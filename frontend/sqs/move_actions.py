"""Message move tasks: a dead-letter queue is emptied into another queue, or back into the queues it was filled from.

The control plane keeps the tasks, a worker does the moving. These actions name queues by ARN, and never another
account's.
"""

from __future__ import annotations

from frontend.errors import Refusal, invalid, missing
from frontend.limits import MOVE_MESSAGES_PER_S_MAX, MOVE_TASKS_LISTED_MAX
from frontend.send import throttle_account
from frontend.sqs import asks
from frontend.sqs.arns import parse_arn
from frontend.sqs.call import Call, ask_control, encode


async def start_message_move_task(call: Call, ask: asks.StartMessageMoveTask) -> bytes:
    params: dict[str, object] = {"SourceArn": _check_arn(ask.source_arn, "SourceArn")}
    if ask.destination_arn:
        params["DestinationArn"] = _check_arn(ask.destination_arn, "DestinationArn")
    rate = ask.max_number_of_messages_per_second
    if rate is not None:
        if not 1 <= rate <= MOVE_MESSAGES_PER_S_MAX:
            raise invalid(
                f"Value {rate} for parameter MaxNumberOfMessagesPerSecond is invalid. "
                f"Reason: Must be between 1 and {MOVE_MESSAGES_PER_S_MAX}, if provided."
            )
        params["MaxNumberOfMessagesPerSecond"] = rate
    return await _ask(call, "StartMessageMoveTask", params)


async def list_message_move_tasks(call: Call, ask: asks.ListMessageMoveTasks) -> bytes:
    params: dict[str, object] = {"SourceArn": _check_arn(ask.source_arn, "SourceArn")}
    if ask.max_results is not None:
        if not 1 <= ask.max_results <= MOVE_TASKS_LISTED_MAX:
            raise invalid(
                f"Value {ask.max_results} for parameter MaxResults is invalid. "
                f"Reason: Must be between 1 and {MOVE_TASKS_LISTED_MAX}, if provided."
            )
        params["MaxResults"] = ask.max_results
    return await _ask(call, "ListMessageMoveTasks", params)


async def cancel_message_move_task(call: Call, ask: asks.CancelMessageMoveTask) -> bytes:
    if not ask.task_handle:
        raise missing("TaskHandle")
    return await _ask(call, "CancelMessageMoveTask", {"TaskHandle": ask.task_handle})


async def _ask(call: Call, action: str, params: dict[str, object]) -> bytes:
    throttle_account(call.plane, call.caller)
    return encode(await ask_control(call, action, params))


def _check_arn(text: str | None, parameter: str) -> str:
    """Only what a queue of ours can be called is asked for. Raises Refusal."""
    if not text:
        raise missing(parameter)
    if parse_arn(text) is None:
        raise Refusal(
            "ResourceNotFoundException", f"The resource that you specified for the {parameter} parameter doesn't exist."
        )
    return text
