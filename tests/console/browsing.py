"""A browser without a screen: Django's client with the checks of a real one, and forms that carry their token."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

from django.core import mail
from django.test import Client

PASSWORD = "correct horse battery"
HOST = "127.0.0.1"
_addresses = itertools.count(1)
TOKEN = r"pst[a-z]_[A-Za-z0-9_-]{43}"


class Browser:
    def __init__(self) -> None:
        number = next(_addresses)
        self.source = f"10.9.{number >> 8 & 255}.{number & 255}"
        self.client = Client(enforce_csrf_checks=True)
        self.email = ""
        self.account_id = ""

    def get(self, path: str, **headers: str) -> Any:
        return self.client.get(path, headers=headers, REMOTE_ADDR=self.source)

    def post(self, path: str, form: dict[str, Any] | None = None, page: str = "/console/me", **headers: str) -> Any:
        """With the token of a form of `page`, and the id of the form that is sent once where there is one."""
        given = {**(form or {}), **self.token(page)}
        return self.client.post(path, given, headers=headers, REMOTE_ADDR=self.source)

    def token(self, page: str) -> dict[str, str]:
        text = self.get(page).content.decode()
        return dict(re.findall(r'name="(csrfmiddlewaretoken|form_id)" value="([^"]+)"', text))

    def at(self, tail: str = "") -> str:
        """A page of the account."""
        return f"/console/a/{self.account_id}/{tail}"

    def sign_in(self, email: str, password: str = PASSWORD) -> Any:
        self.email = email
        return self.post("/console/sign-in", {"email": email, "password": password}, "/console/sign-in")

    def open_link(self, token: str, account_id: str = "") -> Any:
        """Signs in as a link of the launcher does."""
        return self.post("/console/link", {"token": token, "account": account_id}, "/console/link")


def mailed_token(email: str) -> str:
    text = next(str(one.body) for one in reversed(mail.outbox) if one.to == [email])
    found = re.search(TOKEN, text)
    assert found is not None, text
    return found[0]


def person(email: str) -> Browser:
    """Signed up, confirmed and signed in, by the pages alone."""
    browser = Browser()
    form = {"email": email, "password": PASSWORD}
    assert browser.post("/console/sign-up", form, "/console/sign-up").status_code == 200
    given = {"token": mailed_token(email), "password": PASSWORD, "title": f"Account of {email}"}
    answer = browser.post("/console/confirm", given, "/console/confirm")
    assert answer.status_code == 302, answer.content
    browser.email, browser.account_id = email, answer["Location"].split("/")[3]
    return browser


owner = person


def member(owner_of: Browser, role: str) -> Browser:
    """Another person, with a role in the owner's account."""
    guest = person(f"{role}-{next(_addresses)}@example.com")
    form = {"email": guest.email, "role": role}
    assert owner_of.post(owner_of.at("people/invite"), form, owner_of.at("people")).status_code == 302
    answer = guest.post("/console/join", {"token": mailed_token(guest.email)}, "/console/join")
    assert answer.status_code == 302, answer.content
    guest.account_id = owner_of.account_id
    return guest


def make_queue(browser: Browser, name: str, **form: str) -> Any:
    return browser.post(browser.at("new-queue"), {"name": name, "kind": "standard", **form}, browser.at("new-queue"))


def queue_row(account_id: str, name: str, **more: Any) -> Any:
    """A queue that is there, without storage."""
    from api.audit.actions import OPERATOR
    from api.queues.actions import create_queue
    from api.queues.models import Queue, QueueStatus

    fifo = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
    create_queue(OPERATOR, account_id, name, {**fifo, **more}, {})
    rows = Queue.objects.filter(account_id=account_id, name=name)
    rows.update(state=QueueStatus.ACTIVE, observed_generation=1, partitions=[1])
    return rows.get()


def attach(browser: Browser, name: str, statement: dict[str, Any]) -> None:
    """A policy of this statement, to the member."""
    from api.audit.actions import OPERATOR
    from api.iam.actions.policies import attach_to_member, create_policy
    from api.people.models import Person

    create_policy(OPERATOR, browser.account_id, name, json.dumps({"Version": "2012-10-17", "Statement": [statement]}))
    attach_to_member(OPERATOR, browser.account_id, Person.objects.get(email=browser.email).pk, name)


def deny(browser: Browser, actions: str, queue: str) -> None:
    """A policy that is attached to the member."""
    name = f"no-{actions.partition(':')[2].strip('*').lower()}-{queue.strip('*')}"
    attach(browser, name, {"Effect": "Deny", "Action": actions, "Resource": f"arn:aws:sqs:*:*:{queue}"})


def deny_in_account(browser: Browser, action: str) -> None:
    """A policy that is attached to the member, about the account itself."""
    attach(browser, "no-more", {"Effect": "Deny", "Action": action, "Resource": "*"})
