"""Tells the control plane now and then which keys were used: their owners see it as `last_used_at`, and of encryption
keys how many messages an hour. Tells which calls it refused, too.

What could not be told is lost: the next use of the key is told again. Counts of encryption keys are a lower bound.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from frontend.errors import RequestError
from frontend.http import new_request_id
from frontend.limits import KEY_USES_TOLD_EVERY_S, KEY_USES_TOLD_MAX, REFUSED_CALLS_TOLD_MAX

if TYPE_CHECKING:
    from frontend.services import FrontendServices

_log = structlog.get_logger("frontend")


async def tell_key_uses_forever(services: FrontendServices) -> None:
    while True:
        await asyncio.sleep(KEY_USES_TOLD_EVERY_S)
        await tell_key_uses(services)


async def tell_key_uses(services: FrontendServices) -> None:
    while uses := services.authenticator.uses.take(KEY_USES_TOLD_MAX):
        try:
            await services.control.note_key_uses(new_request_id(), uses)
        except RequestError as error:
            _log.warning("key_uses_not_told", keys=len(uses), reason=error.code)
            return
    while counts := services.queues.uses.take(KEY_USES_TOLD_MAX):
        try:
            await services.control.note_encryption_key_uses(new_request_id(), counts)
        except RequestError as error:
            _log.warning("encryption_key_uses_not_told", keys=len(counts), reason=error.code)
            return
    while calls := services.refused_calls.take(REFUSED_CALLS_TOLD_MAX):
        try:
            await services.control.note_refused_calls(new_request_id(), calls)
        except RequestError as error:
            _log.warning("refused_calls_not_told", kinds=len(calls), reason=error.code)
            return
    while sealed := services.queues.data_key_uses.take(KEY_USES_TOLD_MAX):
        try:
            await services.control.note_data_key_uses(new_request_id(), sealed)
        except RequestError as error:
            for queue, version, messages in sealed:
                services.queues.data_key_uses.note(bytes.fromhex(queue), version, messages)
            _log.warning("data_key_uses_not_told", keys=len(sealed), reason=error.code)
            return
