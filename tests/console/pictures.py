"""What the browser tests and the screenshots share: an installation with something in it, and a browser on it."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2

from tests.support.installation import RunningInstallation, wait_until

# An errand of the workers writes mails; on a machine with much else to do it takes its time.
MAIL_S_MAX = 60
PASSWORD = "correct horse battery"
# Longer than all pictures take.
IN_FLIGHT_S = 3_600
DESKTOP = {"width": 1280, "height": 860}
PHONE = {"width": 390, "height": 844}
DEVICE = {
    "protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True,
    "isUserVerified": True, "automaticPresenceSimulation": True,
}  # fmt: skip
WEBHOOK_URL = "https://hooks.example.com/penstock"
_TOKEN = re.compile(r"console/[a-z-]+#(pst[a-z]_[A-Za-z0-9_-]{43})")


def chromium_path() -> str | None:
    """The system's Chromium; None where there is none."""
    return next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)


@contextmanager
def browsing() -> Iterator[Any]:
    """A Chromium without a window."""
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=arguments)
        try:
            yield browser
        finally:
            browser.close()


def new_account(installation: RunningInstallation, name: str) -> str:
    """Its name. A first key creates an account."""
    installation.command("keys", "create", "--account", name)
    return name


def link_of(installation: RunningInstallation, *who: str) -> str:
    """The first key of the tests creates their account; other accounts are there before (`new_account`)."""
    assert installation.key
    return str(json.loads(installation.command("console-link", *who, "--json").stdout)["url"])


def open_link(page: Any, url: str) -> None:
    """Signs in with a link of the launcher."""
    page.goto(url)
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.wait_for_url(lambda at: urlsplit(at).path != "/console/link")


def by_name(url: str) -> str:
    """Under the name that browsers give passkeys to."""
    return url.replace("//127.0.0.1:", "//localhost:")


def with_device(page: Any) -> tuple[Any, str]:
    """The browser's session for its tools, and the id of a virtual device that holds passkeys."""
    tools = page.context.new_cdp_session(page)
    tools.send("WebAuthn.enable")
    device = tools.send("WebAuthn.addVirtualAuthenticator", {"options": DEVICE})
    return tools, str(device["authenticatorId"])


def open_link_without_scripts(client: httpx2.Client, url: str) -> httpx2.Response:
    """The page that the sign-in leads to."""
    plain, _, link_token = url.partition("#")
    form_token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', client.get(plain).text)
    assert form_token is not None
    account_id = parse_qs(urlsplit(plain).query).get("account", [""])[0]
    form = {"csrfmiddlewaretoken": form_token[1], "token": link_token, "account": account_id}
    return client.post(plain.partition("?")[0], data=form, headers={"Referer": plain})


def mail_token(installation: RunningInstallation, email: str, known: str = "") -> str:
    """The token of the last mail to an address, which an errand writes; `known` is that of a mail before it."""
    folder = Path(installation.data) / "mail"

    def texts() -> list[str]:
        files = sorted(folder.glob("*"), key=lambda path: path.stat().st_mtime) if folder.exists() else []
        found = [path.read_text().replace("=\n", "").replace("=3D", "=") for path in files]
        return [text for text in found if email in text and not (known and known in text)]

    wait_until(lambda: bool(texts()), MAIL_S_MAX, 0.1)
    found = _TOKEN.search(texts()[-1])
    assert found is not None, texts()[-1]
    return found[1]


def url_of(installation: RunningInstallation, path: str) -> str:
    return f"{installation.key['endpoint']}{path}"


def account_of(page: Any) -> str:
    """The id of the account whose page is open."""
    return urlsplit(page.url).path.split("/")[3]


def fill(installation: RunningInstallation, webhook_url: str = WEBHOOK_URL) -> None:
    """Queues with messages of all states, a dead-letter queue with dead messages, tags, a schedule."""
    sqs, rest = installation.sqs(), installation.rest()
    dead_url = sqs.create_queue(QueueName="orders-dead")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead_url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    redrive = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    attributes = {"RedrivePolicy": redrive, "VisibilityTimeout": "300"}
    tags = {"team": "checkout", "stage": "production"}
    orders = sqs.create_queue(QueueName="orders", Attributes=attributes, tags=tags)["QueueUrl"]
    sqs.create_queue(QueueName="customer-events.fifo", Attributes={"FifoQueue": "true"})
    for name in ("thumbnails", "invoices-mail", "search-index", "webhooks", "exports"):
        sqs.create_queue(QueueName=name)
    for number in range(4):
        sqs.send_message(QueueUrl=orders, MessageBody=json.dumps({"order": 900 + number, "coupon": "SPRING"}))

    def dead() -> bool:
        sqs.receive_message(QueueUrl=orders, MaxNumberOfMessages=10, VisibilityTimeout=0)
        found = rest.post("/v1/queues/orders-dead/messages/peek", json={"limit": 10}).json()["messages"]
        return len(found) >= 4

    wait_until(dead, 30, 0.1)
    for number in range(12):
        order = {"order": 1000 + number, "customer": f"c-{number % 5}", "lines": [{"sku": "A-1", "count": 2}]}
        body = json.dumps(order)
        kind = {"kind": {"DataType": "String", "StringValue": "order"}}
        sqs.send_message(QueueUrl=orders, MessageBody=body, MessageAttributes=kind)
    sqs.receive_message(QueueUrl=orders, MaxNumberOfMessages=2, VisibilityTimeout=IN_FLIGHT_S)
    sqs.send_message(QueueUrl=orders, MessageBody='{"order": 2000}', DelaySeconds=600)
    later = int(time.time() * 1000) + 3_600_000
    rest.post("/v1/queues/orders/messages", json={"body": '{"report": "hourly"}', "deliver_at_ms": later})
    schedule = {"name": "nightly-report", "cron": "0 3 * * *", "time_zone": "Europe/Berlin", "body": '{"run": 1}'}
    rest.post("/v1/queues/orders/schedules", json=schedule)
    rest.post("/v1/queues/exports/pause")
    rest.put("/v1/webhooks/on-call", json={"url": webhook_url}).raise_for_status()
    rest.post("/v1/webhooks/on-call/test").raise_for_status()
    fill_access(rest)


def fill_access(rest: Any) -> None:
    """Policies, a group, a restricted key, an encryption key with a queue, a deleted queue, a request for a quota."""
    send = {"Sid": "send", "Effect": "Allow", "Action": ["sqs:SendMessage", "sqs:GetQueue*"]}
    office = {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}
    statement = {**send, "Resource": "arn:aws:sqs:*:*:orders-*", "Condition": office}
    for name, one in (("send-orders", statement), ("no-purge", _deny("sqs:PurgeQueue"))):
        rest.post("/v1/policies", json={"name": name, "policy": {"Version": "2012-10-17", "Statement": [one]}})
    key = rest.post("/v1/keys", json={"name": "checkout"}).json()["access_key_id"]
    rest.put(f"/v1/keys/{key}/policies/send-orders")
    rest.post("/v1/groups", json={"name": "on-call"})
    rest.put("/v1/groups/on-call/policies/no-purge")
    rest.post("/v1/encryption-keys", json={"name": "payments", "description": "Cards and refunds"})
    rest.post("/v1/queues", json={"name": "refunds", "encryption_key": "alias/payments"})
    rest.patch("/v1/account", json={"deletion_grace_days": 7}).raise_for_status()
    rest.post("/v1/queues", json={"name": "imports"})
    rest.delete("/v1/queues/imports").raise_for_status()
    rest.post("/v1/quota-requests", json={"name": "queues", "value": 250_000, "reason": "One queue per shop"})


def _deny(action: str) -> dict[str, str]:
    return {"Effect": "Deny", "Action": action, "Resource": "*"}
