"""Why a message became a dead letter, as REST and push show it, and SQS clients that ask for it by name."""

from __future__ import annotations

from storage_nodes.protocol.messages import DeadSource, DeathReason


def death_json(death: DeadSource) -> dict[str, object]:
    """Times are ms since the epoch; it died when its last lease ended."""
    try:
        reason = DeathReason(death.reason).name.lower()
    except ValueError:  # a node of a later version moved it
        reason = "other"
    answer: dict[str, object] = {
        "reason": reason,
        "receives": death.receives,
        "max_receives": death.receives_max,
        "first_received_ms": death.first_received_ms,
        "died_ms": death.died_ms,
    }
    if death.note:
        answer["note"] = death.note
    return answer
