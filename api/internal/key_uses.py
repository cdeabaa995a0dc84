"""What front ends tell of the keys that they use: API keys, encryption keys, and data keys of queues.

    POST /internal/keys/used              {"uses": {access key id: Unix ms}}                       -> 200 {}
    POST /internal/encryption-keys/used   {"uses": {key id: [messages sealed, messages opened]}}   -> 200 {}
    POST /internal/data-keys/used         {"uses": [[queue uuid, version, messages sealed], ...]}     -> 200 {}

A front end speaks for itself here: its principal names no account.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Annotated, Protocol

import msgspec
from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse

from api.accounts.actions import note_key_uses
from api.encryption import actions as encryption_actions
from api.internal.authentication import principal_of
from api.internal.sqs import json_answer, problem_answer
from api.outage import DATABASE_AWAY, outage_text
from api.queues.data_keys import DataKeyUse, note_data_key_uses
from frontend.authn.vouching import PrincipalError
from frontend.limits import KEY_USES_TOLD_MAX

KeyId = Annotated[str, msgspec.Meta(max_length=64)]
Moment = Annotated[int, msgspec.Meta(ge=0, le=2**48)]
KeyVersion = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
MessageCount = Annotated[int, msgspec.Meta(ge=0, le=2**48)]


class _LastUses(msgspec.Struct, forbid_unknown_fields=True):
    uses: Annotated[dict[KeyId, Moment], msgspec.Meta(max_length=KEY_USES_TOLD_MAX)]


class _UseCounts(msgspec.Struct, forbid_unknown_fields=True):
    uses: Annotated[dict[uuid.UUID, tuple[MessageCount, MessageCount]], msgspec.Meta(max_length=KEY_USES_TOLD_MAX)]


class _SealedCounts(msgspec.Struct, forbid_unknown_fields=True):
    uses: Annotated[list[tuple[uuid.UUID, KeyVersion, MessageCount]], msgspec.Meta(max_length=KEY_USES_TOLD_MAX)]


_sealed_counts = msgspec.json.Decoder(_SealedCounts)
_last_uses = msgspec.json.Decoder(_LastUses)
_use_counts = msgspec.json.Decoder(_UseCounts)


class ReportView(Protocol):
    async def __call__(self, request: HttpRequest) -> HttpResponse: ...


def told_by_front_ends(note: Callable[[bytes], None]) -> ReportView:
    """A view of what `note` takes from the body. `note` raises msgspec.DecodeError for what does not parse."""

    async def view(request: HttpRequest) -> HttpResponse:
        if request.method != "POST":
            return problem_answer(404, "InvalidAction", "There is no such action here.")
        try:
            if principal_of(request).account_id:
                raise PrincipalError("this is no account's to say")
            await sync_to_async(note)(request.body)
        except PrincipalError as error:
            return problem_answer(401, "InvalidSecurity", str(error))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return problem_answer(400, "InvalidParameterValueException", "The report does not parse.")
        except DATABASE_AWAY as error:
            return problem_answer(503, "ServiceUnavailable", outage_text(error))
        return json_answer(200, {})

    return view


def _note_last_uses(body: bytes) -> None:
    uses = _last_uses.decode(body).uses
    note_key_uses({key: at_ms for key, at_ms in uses.items() if "\0" not in key})


def _note_use_counts(body: bytes) -> None:
    encryption_actions.note_uses(_use_counts.decode(body).uses)


def _note_sealed_counts(body: bytes) -> None:
    note_data_key_uses([DataKeyUse(*use) for use in _sealed_counts.decode(body).uses])


note_api_key_uses = told_by_front_ends(_note_last_uses)
note_encryption_key_uses = told_by_front_ends(_note_use_counts)
note_queue_key_uses = told_by_front_ends(_note_sealed_counts)
