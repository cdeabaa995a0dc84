"""What the SQS actions about queues do: checked here, decided and stored by the control plane.

Also the tags and permissions of a queue. Where the policy of another account's queue allows it, its URL, its attributes
and the sources of a dead-letter queue are told, and it is purged; all else is its owner's.
"""

from __future__ import annotations

from typing import Any

import structlog

from frontend.errors import RequestError, invalid, missing
from frontend.limits import LIST_RESULTS_MAX, QUEUE_NAME_CHARS_MAX
from frontend.message_browser.audit import PURGE, note
from frontend.messages.admission import NO_SENT_TAGS, SentTags, require_own, throttle_account
from frontend.queues.attributes import (
    check_asked,
    check_creatable,
    check_settable,
    check_tag_keys,
    check_tags,
    queue_attributes,
    wants_counts,
)
from frontend.queues.names import Address, check_queue_name
from frontend.sqs import requests
from frontend.sqs.call import EMPTY, SqsCall, ask_control, ask_storage, encode, find_own_queue, find_queue
from frontend.sqs.queue_url import check_account_id, make_queue_url, read_queue_url

_log = structlog.get_logger(__name__)

# Of another account's queue, be it there or not.
NOT_TO_BE_SEEN = "The specified queue does not exist or you do not have access to it."


async def get_queue_url(call: SqsCall, request: requests.GetQueueUrl) -> bytes:
    if not request.queue_name:
        raise missing("QueueName")
    account_id = check_account_id(request.queue_owner_account_id) or call.caller.account_id
    try:
        # A longer name names nothing: what is looked up, weighed and told is cut where that is certain.
        name = request.queue_name[: QUEUE_NAME_CHARS_MAX + 1]
        queue = await find_queue(call, "GetQueueUrl", Address(account_id, name))
    except RequestError as error:
        if error.code == "AccessDeniedException" and account_id != call.caller.account_id:
            raise RequestError("QueueDoesNotExist", NOT_TO_BE_SEEN) from None
        raise
    return encode({"QueueUrl": make_queue_url(call.request.base_url, queue.address)})


async def get_queue_attributes(call: SqsCall, request: requests.GetQueueAttributes) -> bytes:
    address = read_queue_url(request.queue_url, call.caller.account_id)
    asked = check_asked(request.attribute_names)
    queue = await find_queue(call, "GetQueueAttributes", address)
    if not asked:
        return EMPTY
    stats = []
    if wants_counts(asked):
        calls = [call.services.storage.stats(partition) for partition in queue.partitions]
        stats = await ask_storage(call, queue, calls)
    attributes = queue_attributes(queue.record, call.services.region, stats, asked)
    return encode({"Attributes": attributes}) if attributes else EMPTY


async def set_queue_attributes(call: SqsCall, request: requests.SetQueueAttributes) -> bytes:
    address = read_queue_url(request.queue_url, call.caller.account_id)
    if not request.attributes:
        raise missing("Attributes")
    check_settable(request.attributes, address.name)
    return await _change(call, "SetQueueAttributes", address, {"Attributes": request.attributes})


async def purge_queue(call: SqsCall, request: requests.QueueRequest) -> bytes:
    queue = await find_queue(call, "PurgeQueue", read_queue_url(request.queue_url, call.caller.account_id))
    await ask_storage(call, queue, [call.services.storage.purge(partition) for partition in queue.partitions])
    # Afterwards, and answered in any case: messages do not wait for the control plane (docs/outages.md).
    entry: dict[str, object] = {"action": PURGE, "queue": queue.record.name, "owner": queue.record.account_id}
    try:
        await note(call.services, call.caller, call.request.request_id, entry)
    except RequestError as error:
        _log.warning("purge_not_noted", queue=queue.record.name, account_id=queue.record.account_id, code=error.code)
    return EMPTY


async def create_queue(call: SqsCall, request: requests.CreateQueue) -> bytes:
    name = check_queue_name(request.queue_name)
    attributes = request.attributes or {}
    check_creatable(name, attributes)
    check_tags(request.tags, name)
    throttle_account(call.services, call.caller)
    params: dict[str, object] = {"QueueName": name, "Attributes": attributes}
    if request.tags:
        params["tags"] = request.tags
    result = await ask_control(call, "CreateQueue", params)
    address = Address(call.caller.account_id, str(result.get("name", name)))
    # Whoever made a queue may use it in the next instant: do not wait for the change feed.
    await call.services.metadata.refresh_queue(address.account_id, address.name)
    return encode({"QueueUrl": make_queue_url(call.request.base_url, address)})


async def delete_queue(call: SqsCall, request: requests.QueueRequest) -> bytes:
    address = read_queue_url(request.queue_url, call.caller.account_id)
    require_own(call.services, call.caller, "DeleteQueue", address)
    try:
        await find_queue(call, "DeleteQueue", address)
    except RequestError as error:
        # The control plane says what becomes of one that is not there yet, or not any more.
        if error.code != "QueueDoesNotExist":
            raise
    await ask_control(call, "DeleteQueue", {"QueueName": address.name})
    await call.services.metadata.refresh_queue(address.account_id, address.name)
    return EMPTY


async def list_queues(call: SqsCall, request: requests.ListQueues) -> bytes:
    params = _page(request)
    throttle_account(call.services, call.caller)
    if request.queue_name_prefix is not None:
        params["QueueNamePrefix"] = request.queue_name_prefix
    return _listed(call, call.caller.account_id, await ask_control(call, "ListQueues", params), "QueueUrls")


async def list_dead_letter_source_queues(call: SqsCall, request: requests.ListDeadLetterSourceQueues) -> bytes:
    address = read_queue_url(request.queue_url, call.caller.account_id)
    params = _page(request)
    await find_queue(call, "ListDeadLetterSourceQueues", address)
    params["QueueName"], params["QueueOwner"] = address.name, address.account_id
    # The member is lower case here, and present although nothing is found.
    result = await ask_control(call, "ListDeadLetterSourceQueues", params)
    return _listed(call, address.account_id, result, "queueUrls", present=True)


async def tag_queue(call: SqsCall, request: requests.TagQueueRequest) -> bytes:
    address = read_queue_url(request.queue_url, call.caller.account_id)
    if not request.tags:
        raise missing("Tags")
    check_tags(request.tags, address.name)
    sent = SentTags(request.tags, tuple(request.tags))
    return await _change(call, "TagQueue", address, {"Tags": request.tags}, sent)


async def untag_queue(call: SqsCall, request: requests.UntagQueue) -> bytes:
    address = read_queue_url(request.queue_url, call.caller.account_id)
    if request.tag_keys is None:
        raise missing("TagKeys")
    check_tag_keys(request.tag_keys)
    sent = SentTags(keys=tuple(request.tag_keys))
    return await _change(call, "UntagQueue", address, {"TagKeys": request.tag_keys}, sent)


async def list_queue_tags(call: SqsCall, request: requests.QueueRequest) -> bytes:
    queue = await find_own_queue(call, "ListQueueTags", read_queue_url(request.queue_url, call.caller.account_id))
    result = await ask_control(call, "ListQueueTags", {"QueueName": queue.record.name})
    return encode({"Tags": result["Tags"]}) if result.get("Tags") else EMPTY


async def add_permission(call: SqsCall, request: requests.AddPermission) -> bytes:
    address = read_queue_url(request.queue_url, call.caller.account_id)
    for name, value in (("Label", request.label), ("AWSAccountIds", request.account_ids), ("Actions", request.actions)):
        if value is None or (not value and name != "AWSAccountIds"):
            raise missing(name)
    params: dict[str, object] = {
        "Label": request.label,
        "AWSAccountIds": request.account_ids,
        "Actions": request.actions,
    }
    return await _change(call, "AddPermission", address, params)


async def remove_permission(call: SqsCall, request: requests.RemovePermission) -> bytes:
    address = read_queue_url(request.queue_url, call.caller.account_id)
    if not request.label:
        raise missing("Label")
    return await _change(call, "RemovePermission", address, {"Label": request.label})


# --- what several of them share ---


async def _change(
    call: SqsCall, action: str, address: Address, params: dict[str, object], sent_tags: SentTags = NO_SENT_TAGS
) -> bytes:
    """A change that is decided and stored by the control plane. Seen here at once, without the change feed."""
    queue = await find_own_queue(call, action, address, sent_tags)
    await ask_control(call, action, {"QueueName": address.name, **params})
    await call.services.queues.refresh(queue.address)
    return EMPTY


def _page(request: requests.ListQueues | requests.ListDeadLetterSourceQueues) -> dict[str, object]:
    """MaxResults and NextToken, where they are given. Raises RequestError."""
    if request.max_results is not None and not 1 <= request.max_results <= LIST_RESULTS_MAX:
        raise invalid(
            f"Value {request.max_results} for parameter MaxResults is invalid. "
            f"Reason: Must be between 1 and {LIST_RESULTS_MAX}."
        )
    asked: dict[str, object] = {"MaxResults": request.max_results, "NextToken": request.next_token}
    return {name: value for name, value in asked.items() if value is not None}


def _listed(call: SqsCall, owner_id: str, result: dict[str, Any], member: str, present: bool = False) -> bytes:
    """A page of queues of one account."""
    answer: dict[str, object] = {}
    if present or result.get("names"):
        addresses = [Address(owner_id, name) for name in result["names"]]
        answer[member] = [make_queue_url(call.request.base_url, address) for address in addresses]
    if result.get("NextToken"):
        answer["NextToken"] = result["NextToken"]
    return encode(answer)
