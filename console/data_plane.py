"""How pages reach messages: by the REST API of a front end, with a pass for each request (decision 0023).

So what a page shows has gone through the same admission, throttle, decryption and audit trail as what a program asks
for. The pass names the person; whether its role and policies allow the request is looked at here in the control plane,
before (`message_guard.py`).
"""

from __future__ import annotations

import functools
import time
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any
from urllib.parse import quote

import httpx2
import msgspec
from django.db import connection

from api.secrets import internal_key
from api.settings.environment import environment
from console.message_guard import MessageGuard
from frontend.authn.page_pass import make_page_pass
from frontend.authn.principal import Principal

CONNECTIONS_MAX = 16
CONNECT_S_MAX = 1.0
# A search looks for about two seconds; storage that is about to elect a leader takes longer.
ANSWER_S_MAX = 15.0
COUNTED_AT_ONCE_MAX = 50
_TRY_AGAIN = "The message service does not answer at the moment. Queues and settings can still be viewed."


class DataPlaneError(Exception):
    """A refusal of the front end: its code, its text, its status."""

    def __init__(self, code: str, detail: str, status: int, retry_after_s: int | None = None) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.status = status
        self.retry_after_s = retry_after_s


@functools.cache
def client() -> httpx2.Client:
    env = environment()
    return httpx2.Client(
        base_url=env.frontend_url or env.endpoint,
        timeout=httpx2.Timeout(ANSWER_S_MAX, connect=CONNECT_S_MAX),
        limits=httpx2.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=CONNECTIONS_MAX),
        trust_env=False,
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),  # shared by all who look at pages
    )


class DataPlane:
    """As one person in one account."""

    def __init__(self, who: Principal, guard: MessageGuard | None = None) -> None:
        self._who = who
        self._guard = guard

    def ask(self, queue: str, what: str, content: object | None = None) -> Any:
        """POST to a path below the queue: `messages/peek`. Raises DataPlaneError, AccessDenied."""
        self._check(queue, what, content)
        return self._call("POST", f"/v1/queues/{quote(queue, safe='')}/{what}", content or {})

    def look(self, queue: str, what: str) -> Any:
        """GET. Raises DataPlaneError, AccessDenied."""
        self._check(queue, what, None)
        return self._call("GET", f"/v1/queues/{quote(queue, safe='')}/{what}", None)

    def counts(self, queues: list[str]) -> dict[str, dict[str, Any]]:
        """By name; one that cannot be counted has `error`, one that the member may not see is left out. Raises
        DataPlaneError."""
        found: dict[str, dict[str, Any]] = {}
        queues = queues if self._guard is None else self._guard.countable(queues)
        for start in range(0, len(queues), COUNTED_AT_ONCE_MAX):
            asked = {"queues": queues[start : start + COUNTED_AT_ONCE_MAX]}
            found |= self._call("POST", "/v1/message-counts", asked)["queues"]
        return found

    def _check(self, queue: str, what: str, content: object | None) -> None:
        if self._guard is not None:
            self._guard.check(queue, what, content)

    def _call(self, method: str, target: str, content: object | None) -> Any:
        body = b"" if content is None else msgspec.json.encode(content)
        now_ms = time.time_ns() // 1_000_000
        headers = {
            "Authorization": make_page_pass(internal_key(), method, target.encode(), body, self._who, now_ms),
            "Content-Type": "application/json",
        }
        # What is asked may want a connection of its own (the audit trail): none is kept while this waits.
        if not connection.in_atomic_block:
            connection.close()
        try:
            answer = client().request(method, target, content=body, headers=headers)
        except httpx2.HTTPError:
            raise DataPlaneError("service-unavailable", _TRY_AGAIN, 503) from None
        if answer.status_code != 200:
            raise _refusal(answer)
        return msgspec.json.decode(answer.content)


def _refusal(answer: httpx2.Response) -> DataPlaneError:
    try:
        problem = msgspec.json.decode(answer.content)
        code, detail = str(problem["code"]), str(problem["detail"])
    except (msgspec.DecodeError, KeyError, TypeError):
        code, detail = "service-unavailable", _TRY_AGAIN
    waits = answer.headers.get("Retry-After", "")
    return DataPlaneError(code, detail, answer.status_code, int(waits) if waits.isdigit() else None)
