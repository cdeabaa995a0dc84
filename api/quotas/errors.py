"""Refusals of the quotas app, as they are told to callers."""

from __future__ import annotations

from rest_framework.exceptions import APIException


class QuotaProblem(APIException):
    """`code` is the last part of the problem's type."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status_code = status
        self.default_code = code


def no_such_account() -> QuotaProblem:
    return QuotaProblem(404, "not-found", "There is no such account.")
