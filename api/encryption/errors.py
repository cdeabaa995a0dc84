"""Refusals of the encryption app, as they are told to callers."""

from __future__ import annotations

from rest_framework.exceptions import APIException


class EncryptionKeyProblem(APIException):
    """`code` is the last part of the problem's type."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status_code = status
        self.default_code = code
