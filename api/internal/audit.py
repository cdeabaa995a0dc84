"""The audit trail as the front end writes it: an action of the message browser, before it is taken.

    POST /internal/audit   {"action", "queue", "message_id", "partition", "offset", "reason", "target"}   -> 200 {}
                           {"action", "queue", "owner", "reason"}   of a whole queue
                           {"action", "queue", "groups", "reason"}   of parked groups; no groups: all of them

Anything but 200 means that nothing was written, and the front end does not act (a purge by an SQS client was done). The
account is that of the principal, or the owner of a queue that another one purged; a queue that it has not cannot be
written about. Contents of messages have no field here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import msgspec
from asgiref.sync import sync_to_async
from django.db import transaction
from django.http import HttpRequest, HttpResponse

from api.audit.actions import record
from api.internal.authentication import principal_of
from api.internal.sqs import json_answer, problem_answer
from api.limits import ACCOUNT_ID_DIGITS
from api.outage import DATABASE_AWAY, outage_text
from api.queues import selectors
from frontend.authn.principal import Principal
from frontend.authn.vouching import PrincipalError
from frontend.limits import BATCH_ENTRIES_MAX, BROWSER_REASON_CHARS_MAX, GROUP_ID_CHARS_MAX, QUEUE_NAME_CHARS_MAX
from frontend.message_browser.audit import FAILED, PURGE

_NAME_CHARS_MAX = QUEUE_NAME_CHARS_MAX + len(".fifo")

Name = Annotated[str, msgspec.Meta(max_length=_NAME_CHARS_MAX)]
Reason = Annotated[str, msgspec.Meta(max_length=BROWSER_REASON_CHARS_MAX)]
Group = Annotated[str, msgspec.Meta(min_length=1, max_length=GROUP_ID_CHARS_MAX)]
Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class DeskEntry(msgspec.Struct, forbid_unknown_fields=True):
    action: str
    queue: Name
    # "" of a message that cannot be read.
    message_id: Annotated[str, msgspec.Meta(max_length=36)]
    partition: Number
    offset: Number
    reason: Reason = ""
    target: Name = ""


class GroupsEntry(msgspec.Struct, forbid_unknown_fields=True):
    action: str
    queue: Name
    groups: Annotated[list[Group], msgspec.Meta(max_length=BATCH_ENTRIES_MAX)]
    reason: Reason = ""


class QueueEntry(msgspec.Struct, forbid_unknown_fields=True):
    """`owner`: the account whose queue it is, where its policy let another one act; empty: that of the principal."""

    action: str
    queue: Name
    owner: Annotated[str, msgspec.Meta(max_length=ACCOUNT_ID_DIGITS)] = ""
    reason: Reason = ""


class _Which(msgspec.Struct):
    action: str


def _decoders(
    entry: type[DeskEntry] | type[GroupsEntry] | type[QueueEntry], *actions: str
) -> dict[str, Callable[[bytes], Entry]]:
    decode: Callable[[bytes], Entry] = msgspec.json.Decoder(entry).decode
    return {name + outcome: decode for name in actions for outcome in ("", FAILED)}


Entry = DeskEntry | GroupsEntry | QueueEntry
_which = msgspec.json.Decoder(_Which).decode
_DECODERS = {
    **_decoders(DeskEntry, "message.delete", "message.dead_letter", "message.resend"),
    **_decoders(GroupsEntry, "parked_groups.release"),
    **_decoders(QueueEntry, PURGE),
}


async def note_action(request: HttpRequest) -> HttpResponse:
    if request.method != "POST":
        return problem_answer(404, "InvalidAction", "There is no such action here.")
    try:
        principal = principal_of(request)
        decode = _DECODERS.get(_which(request.body).action)
        entry = None if decode is None else decode(request.body)
    except PrincipalError as error:
        return problem_answer(401, "InvalidSecurity", str(error))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return problem_answer(400, "InvalidParameterValueException", "The entry does not parse.")
    if entry is None:
        return problem_answer(400, "InvalidParameterValueException", "There is no such action.")
    try:
        written = await sync_to_async(_write)(principal, entry)
    except DATABASE_AWAY as error:
        return problem_answer(503, "ServiceUnavailable", outage_text(error))
    if not written:
        return problem_answer(400, "QueueDoesNotExist", "The specified queue does not exist.")
    return json_answer(200, {})


@transaction.atomic
def _write(principal: Principal, entry: Entry) -> bool:
    details = msgspec.structs.asdict(entry)
    owner = details.pop("owner", "") or principal.account_id
    if selectors.queue_of(owner, entry.queue) is None:
        return False
    for name in ("action", "queue", *(name for name in ("reason", "target") if not details.get(name))):
        details.pop(name, None)
    record(principal, owner, entry.action, f"queue:{entry.queue}", **details)
    return True
