"""A client of the people's routes, with an address and a session of its own."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass, field
from typing import Any

from django.core import mail
from django.test import Client

PASSWORD = "correct horse battery"
_addresses = itertools.count(1)
_TOKEN = re.compile(r"pst[a-z]_[A-Za-z0-9_-]{43}")


def _next_address() -> str:
    number = next(_addresses)
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


@dataclass
class Visitor:
    source: str = field(default_factory=_next_address)
    session_token: str = ""
    email: str = ""
    person_id: str = ""
    account_id: str = ""

    def call(self, method: str, path: str, content: Any = None, **headers: str) -> Any:
        """Django's answer. `content` is JSON, or bytes as they are."""
        body = content if isinstance(content, bytes) else b"" if content is None else json.dumps(content).encode()
        if self.session_token:
            headers = {"Session-Token": self.session_token, **headers}
        return Client(raise_request_exception=False).generic(
            method, path, body, content_type="application/json", headers=headers, REMOTE_ADDR=self.source
        )

    def sign_in(self, email: str, password: str = PASSWORD) -> Any:
        answer = self.call("POST", "/v1/session", {"email": email, "password": password})
        if answer.status_code == 201:
            self.session_token = answer.json()["session_token"]
            self.email = email
        return answer


def new_visitor() -> Visitor:
    return Visitor()


def refused(answer: Any) -> tuple[int, str]:
    """Status and code of a problem."""
    assert answer["Content-Type"] == "application/problem+json", answer.content
    assert answer.json()["status"] == answer.status_code
    return answer.status_code, answer.json()["code"]


def mailed_token(email: str) -> str:
    """The token of the last mail to an address."""
    text = next(str(one.body) for one in reversed(mail.outbox) if one.to == [email])
    found = _TOKEN.search(text)
    assert found is not None, text
    return found[0]


def enrol(email: str, password: str = PASSWORD) -> Visitor:
    """A person who signed up, confirmed and signed in."""
    visitor = new_visitor()
    assert visitor.call("POST", "/v1/people", {"email": email, "password": password}).status_code == 202
    token = mailed_token(email)
    answer = visitor.call("POST", "/v1/people/confirmation", {"token": token, "password": password})
    assert answer.status_code == 201, answer.content
    visitor.person_id, visitor.account_id = answer.json()["person_id"], answer.json()["account_id"]
    assert visitor.sign_in(email, password).status_code == 201
    return visitor


def join(owner: Visitor, guest: Visitor, role: str) -> None:
    """The guest becomes a member of the owner's account."""
    path = f"/v1/accounts/{owner.account_id}/invitations"
    assert owner.call("POST", path, {"email": guest.email, "role": role}).status_code == 201
    accepted = guest.call("POST", "/v1/invitations/acceptance", {"token": mailed_token(guest.email)})
    assert accepted.status_code == 201, accepted.content


def audit(account_id: str = "") -> list[str]:
    """The actions noted of an account, in order."""
    from api.audit.models import AuditEntry

    return list(AuditEntry.objects.filter(account_id=account_id).order_by("id").values_list("action", flat=True))
