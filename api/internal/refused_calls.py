"""What front ends tell of calls that they refused by authorisation.

POST /internal/refused-calls   {"calls": [[account id, key id, action, resource, source, count], ...]}   -> 200 {}
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from api.audit.refusals import Refusal, note_refusals
from api.internal.key_uses import told_by_front_ends
from frontend.limits import REFUSED_CALLS_TOLD_MAX

Text = Annotated[str, msgspec.Meta(max_length=256)]


class _Call(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    account_id: Annotated[str, msgspec.Meta(max_length=12)]
    access_key_id: Annotated[str, msgspec.Meta(max_length=64)]
    action: Annotated[str, msgspec.Meta(max_length=50)]
    resource: Text
    source: Annotated[str, msgspec.Meta(max_length=45)]
    count: Annotated[int, msgspec.Meta(ge=1, le=2**48)]


class _RefusedCalls(msgspec.Struct, forbid_unknown_fields=True):
    calls: Annotated[list[_Call], msgspec.Meta(max_length=REFUSED_CALLS_TOLD_MAX)]


_decode = msgspec.json.Decoder(_RefusedCalls).decode


def _note(body: bytes) -> None:
    calls = [Refusal(*msgspec.structs.astuple(call)) for call in _decode(body).calls]
    note_refusals(call for call in calls if not any("\0" in text for text in call[:5]))


note_refused_calls = told_by_front_ends(_note)
