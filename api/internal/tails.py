"""Live tails, as front ends ask about them.

    POST /internal/tails/open      {"ticket", "queue", "source_ip", "is_secure"}   -> 200 {"account_id", "person_id",
                                                                                       "session_id"}
    POST /internal/tails/confirm   {"tails": [{"account_id", "session_id", "queue", "source_ip", "is_secure"}]}
                                                                                   -> 200 {"ends": [why, ...]}

`open` uses the ticket up. `confirm` answers "" for a tail that goes on. A front end speaks for itself here: its
principal names no account.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse

from api import clock
from api.internal.authentication import principal_of
from api.internal.sqs import json_answer, problem_answer
from api.outage import DATABASE_AWAY, outage_text
from api.tails.actions import open_tail
from api.tails.models import QUEUE_CHARACTERS_MAX
from api.tails.selectors import TailClaim, TailEnd, end_of
from frontend.authn.vouching import PrincipalError
from frontend.limits import TAIL_TICKET_CHARS_MAX, TAILS_MAX


class _Ticket(msgspec.Struct, forbid_unknown_fields=True):
    ticket: Annotated[str, msgspec.Meta(max_length=TAIL_TICKET_CHARS_MAX)]
    queue: Annotated[str, msgspec.Meta(max_length=QUEUE_CHARACTERS_MAX)]
    source_ip: Annotated[str, msgspec.Meta(max_length=64)]
    is_secure: bool


class _Tails(msgspec.Struct, forbid_unknown_fields=True):
    tails: Annotated[list[TailClaim], msgspec.Meta(max_length=TAILS_MAX)]


_ticket = msgspec.json.Decoder(_Ticket).decode
_tails = msgspec.json.Decoder(_Tails).decode


async def start_tail(request: HttpRequest) -> HttpResponse:
    try:
        request_id = _front_end(request)
        asked = _ticket(request.body)
        start = await sync_to_async(open_tail)(asked.ticket, asked.queue, asked.source_ip, asked.is_secure, request_id)
    except PrincipalError as error:
        return problem_answer(401, "InvalidSecurity", str(error))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return problem_answer(400, "InvalidParameterValueException", "The request does not parse.")
    except DATABASE_AWAY as error:
        return problem_answer(503, "ServiceUnavailable", outage_text(error))
    if start is None or start.end is TailEnd.SESSION_ENDED:
        return problem_answer(401, "InvalidClientTokenId", "The ticket is not valid any more.")
    if start.end:
        return problem_answer(403, "AccessDeniedException", "Messages of this queue may not be read.")
    ids = {"account_id": start.account_id, "person_id": start.person_id, "session_id": start.session_id}
    return json_answer(200, {**ids})


async def confirm_tails(request: HttpRequest) -> HttpResponse:
    try:
        _front_end(request)
        ends = await sync_to_async(_ends)(_tails(request.body).tails)
    except PrincipalError as error:
        return problem_answer(401, "InvalidSecurity", str(error))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return problem_answer(400, "InvalidParameterValueException", "The tails do not parse.")
    except DATABASE_AWAY as error:
        return problem_answer(503, "ServiceUnavailable", outage_text(error))
    return json_answer(200, {"ends": ends})


def _front_end(request: HttpRequest) -> str:
    """The id of its request. Raises PrincipalError."""
    principal = principal_of(request)
    if request.method != "POST" or principal.account_id:
        raise PrincipalError("this is no account's to ask")
    return principal.request_id


def _ends(tails: list[TailClaim]) -> list[str]:
    now = clock.now()
    known: dict[TailClaim, str] = {}
    for claim in tails:
        if claim not in known:
            known[claim] = str(end_of(claim, now))
    return [known[claim] for claim in tails]
