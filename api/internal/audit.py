"""The audit trail as the front end writes it: an action of the message desk, before it is taken.

    POST /internal/audit   {"action", "queue", "message_id", "partition", "offset", "reason", "target"}   -> 200 {}

Anything but 200 means that nothing was written, and the front end does not act. The account is that of the principal;
a queue that it has not cannot be written about. Contents of messages have no field here.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from asgiref.sync import sync_to_async
from django.db import transaction
from django.http import HttpRequest, HttpResponse

from api.audit.actions import record
from api.internal.authentication import actor_of, principal_of
from api.internal.principal import Principal, PrincipalError
from api.internal.sqs import json_answer, problem_answer
from api.queues import selectors
from frontend.limits import DESK_REASON_CHARS_MAX, QUEUE_NAME_CHARS_MAX

_ACTIONS = ("message.delete", "message.dead_letter", "message.resend")
_KNOWN = frozenset((*_ACTIONS, *(action + ".failed" for action in _ACTIONS)))
_NAME_CHARS_MAX = QUEUE_NAME_CHARS_MAX + len(".fifo")

Name = Annotated[str, msgspec.Meta(max_length=_NAME_CHARS_MAX)]
Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class DeskEntry(msgspec.Struct, forbid_unknown_fields=True):
    action: str
    queue: Name
    # "" of a message that cannot be read.
    message_id: Annotated[str, msgspec.Meta(max_length=36)]
    partition: Number
    offset: Number
    reason: Annotated[str, msgspec.Meta(max_length=DESK_REASON_CHARS_MAX)] = ""
    target: Name = ""


_decode = msgspec.json.Decoder(DeskEntry).decode


async def note_action(request: HttpRequest) -> HttpResponse:
    if request.method != "POST":
        return problem_answer(404, "InvalidAction", "There is no such action here.")
    try:
        principal = principal_of(request)
        entry = _decode(request.body)
    except PrincipalError as error:
        return problem_answer(401, "InvalidSecurity", str(error))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return problem_answer(400, "InvalidParameterValueException", "The entry does not parse.")
    if entry.action not in _KNOWN:
        return problem_answer(400, "InvalidParameterValueException", "There is no such action.")
    if not await sync_to_async(_write)(principal, entry):
        return problem_answer(400, "QueueDoesNotExist", "The specified queue does not exist.")
    return json_answer(200, {})


@transaction.atomic
def _write(principal: Principal, entry: DeskEntry) -> bool:
    if selectors.queue_of(principal.account_id, entry.queue) is None:
        return False
    details: dict[str, object] = {"partition": entry.partition, "offset": entry.offset}
    if entry.reason:
        details["reason"] = entry.reason
    if entry.target:
        details["target"] = entry.target
    subject = f"queue:{entry.queue}"
    record(
        actor_of(principal), principal.account_id, entry.action, subject, message_id=entry.message_id, **details
    )
    return True
