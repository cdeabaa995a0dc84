"""Refusals of alarms: a stable code, a text for the caller, and the status of the answer."""

from __future__ import annotations

from api.absence import NOTHING_HERE


class AlarmError(Exception):
    """An operating error. `code` is one of STATUS."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = STATUS[code]
        self.code = code
        self.detail = detail


STATUS = {"invalid-request": 400, "not-found": 404, "over-limit": 409}


def invalid(detail: str) -> AlarmError:
    return AlarmError("invalid-request", detail)


def not_found() -> AlarmError:
    return AlarmError("not-found", NOTHING_HERE)
