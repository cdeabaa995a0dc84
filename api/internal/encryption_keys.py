"""How often front ends used encryption keys.

    POST /internal/encryption-keys/used   {"uses": {key id: [messages sealed, messages opened]}}   -> 200 {}

A front end speaks for itself here: its principal names no account.
"""

from __future__ import annotations

import uuid
from typing import Annotated

import msgspec
from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse

from api.encryption.actions import note_uses
from api.internal.authentication import principal_of
from api.internal.principal import PrincipalError
from api.internal.sqs import json_answer, problem_answer
from api.outage import DATABASE_AWAY, DATABASE_AWAY_TEXT
from frontend.limits import KEY_USES_TOLD_MAX

MessageCount = Annotated[int, msgspec.Meta(ge=0, le=2**48)]


class _UseCounts(msgspec.Struct, forbid_unknown_fields=True):
    uses: Annotated[dict[uuid.UUID, tuple[MessageCount, MessageCount]], msgspec.Meta(max_length=KEY_USES_TOLD_MAX)]


_decode = msgspec.json.Decoder(_UseCounts).decode


async def note_encryption_key_uses(request: HttpRequest) -> HttpResponse:
    if request.method != "POST":
        return problem_answer(404, "InvalidAction", "There is no such action here.")
    try:
        if principal_of(request).account_id:
            raise PrincipalError("this is no account's to say")
        uses = _decode(request.body).uses
    except PrincipalError as error:
        return problem_answer(401, "InvalidSecurity", str(error))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return problem_answer(400, "InvalidParameterValueException", "The uses do not parse.")
    try:
        await sync_to_async(note_uses)(uses)
    except DATABASE_AWAY:
        return problem_answer(503, "ServiceUnavailable", DATABASE_AWAY_TEXT)
    return json_answer(200, {})
