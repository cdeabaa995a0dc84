"""What front ends see of the use of quotas: who comes near one, or over it.

    POST /internal/quotas   {"name", "level": "warning" | "exceeded", "percent", "subject"}   -> 200 {}

The account is that of the principal; `subject` names a queue or key of it (`queue:NAME`, `key:ID`). Told as often as it
is seen; the audit trail has it once in a while.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse

from api import limits
from api.internal.authentication import principal_of
from api.internal.sqs import json_answer, problem_answer
from api.outage import DATABASE_AWAY, outage_text
from api.quotas.notices import note_use
from frontend.authn.vouching import PrincipalError


class QuotaUse(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(max_length=64)]
    level: Literal["warning", "exceeded"]
    percent: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
    subject: Annotated[str, msgspec.Meta(max_length=limits.NOTICE_SUBJECT_CHARACTERS_MAX)] = ""


_decode = msgspec.json.Decoder(QuotaUse).decode


async def note_quota_use(request: HttpRequest) -> HttpResponse:
    if request.method != "POST":
        return problem_answer(404, "InvalidAction", "There is no such action here.")
    try:
        principal = principal_of(request)
        use = _decode(request.body)
    except PrincipalError as error:
        return problem_answer(401, "InvalidSecurity", str(error))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return problem_answer(400, "InvalidParameterValueException", "The entry does not parse.")
    try:
        await sync_to_async(note_use)(principal, principal.account_id, use.name, use.level, use.percent, use.subject)
    except DATABASE_AWAY as error:
        return problem_answer(503, "ServiceUnavailable", outage_text(error))
    return json_answer(200, {})
