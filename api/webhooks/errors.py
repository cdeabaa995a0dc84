"""Refusals of webhooks: a stable code, a text for the caller, and the status of the answer."""

from __future__ import annotations

from api.absence import NOTHING_HERE


class WebhookError(Exception):
    """An operating error. `code` is one of WEBHOOK_STATUS."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = WEBHOOK_STATUS[code]
        self.code = code
        self.detail = detail


WEBHOOK_STATUS = {"invalid-request": 400, "not-found": 404, "over-limit": 409, "webhook-in-use": 409}


def no_such_webhook() -> WebhookError:
    return WebhookError("not-found", NOTHING_HERE)
