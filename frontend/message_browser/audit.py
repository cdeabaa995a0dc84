"""The audit trail of what the message desk does: written by the control plane, before it is done.

What cannot be noted is not done. What fails after it was noted is noted too, if it can be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from frontend.authn.principal import Principal
from frontend.errors import RequestError

if TYPE_CHECKING:
    from frontend.services import FrontendServices

FAILED = ".failed"

_log = structlog.get_logger("frontend.desk")


async def note(services: FrontendServices, caller: Principal, request_id: str, entry: dict[str, object]) -> None:
    """`entry` as api/internal/audit.py has it. Raises RequestError where the trail cannot be written."""
    await services.control.note_action(caller, request_id, entry)


async def note_failure(
    services: FrontendServices, caller: Principal, request_id: str, entry: dict[str, object], refusal: RequestError
) -> RequestError:
    """The refusal, to be raised."""
    try:
        await note(
            services, caller, request_id, {**entry, "action": f"{entry['action']}{FAILED}", "reason": refusal.code}
        )
    except RequestError:
        _log.warning("outcome_not_noted", **entry)
    return refusal
