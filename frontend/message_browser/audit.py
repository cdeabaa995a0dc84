"""The audit trail of what the message browser does: written by the control plane, before it is done.

What cannot be noted is not done. What fails after it was noted is noted too, if it can be.

Surface: other planes may import this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from frontend.authn.principal import Principal
from frontend.errors import RequestError
from frontend.message_browser.view import BrowsedView
from frontend.queues.resolver import ResolvedQueue

if TYPE_CHECKING:
    from frontend.services import FrontendServices

FAILED = ".failed"
PURGE = "queue.purge"

_log = structlog.get_logger("frontend.message_browser")


def entry_of(action: str, queue: ResolvedQueue, seen: BrowsedView) -> dict[str, object]:
    """An action on one message, as the trail names it."""
    return {
        "action": action,
        "queue": queue.record.name,
        "message_id": seen.message_id,
        "partition": seen.partition,
        "offset": seen.offset,
    }


async def note(services: FrontendServices, caller: Principal, request_id: str, entry: dict[str, object]) -> None:
    """`entry` as api/internal/audit.py has it. Raises RequestError where the trail cannot be written."""
    await services.control.note_action(caller, request_id, entry)


async def note_failure(
    services: FrontendServices, caller: Principal, request_id: str, entry: dict[str, object], error: RequestError
) -> RequestError:
    """The error, to be raised."""
    try:
        await note(
            services, caller, request_id, {**entry, "action": f"{entry['action']}{FAILED}", "reason": error.code}
        )
    except RequestError:
        _log.warning("outcome_not_noted", **entry)
    return error
