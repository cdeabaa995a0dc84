"""Refusals of billing: a stable code, a text for the caller, and the status of the answer."""

from __future__ import annotations

from api.absence import NOTHING_HERE


class BillingError(Exception):
    """An operating error. `code` is one of STATUS."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = STATUS[code]
        self.code = code
        self.detail = detail


STATUS = {
    "invalid-request": 400,
    "not-found": 404,
    "already-there": 409,
    "not-settled": 409,
    "over-limit": 409,
}


def invalid(detail: str) -> BillingError:
    return BillingError("invalid-request", detail)


def not_found() -> BillingError:
    return BillingError("not-found", NOTHING_HERE)
