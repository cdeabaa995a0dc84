"""The audit trail of what the message desk does: written by the control plane, before it is done.

What cannot be noted is not done. What fails after it was noted is noted too, if it can be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from frontend.authn.principal import Principal
from frontend.errors import Refusal

if TYPE_CHECKING:
    from frontend.plane import Plane

FAILED = ".failed"

_log = structlog.get_logger("frontend.desk")


async def note(plane: Plane, caller: Principal, request_id: str, entry: dict[str, object]) -> None:
    """`entry` as api/internal/audit.py has it. Raises Refusal where the trail cannot be written."""
    await plane.control.note_action(caller, request_id, entry)


async def note_failure(
    plane: Plane, caller: Principal, request_id: str, entry: dict[str, object], refusal: Refusal
) -> Refusal:
    """The refusal, to be raised."""
    try:
        await note(
            plane, caller, request_id, {**entry, "action": f"{entry['action']}{FAILED}", "reason": refusal.code}
        )
    except Refusal:
        _log.warning("outcome_not_noted", **entry)
    return refusal
