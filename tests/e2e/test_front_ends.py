"""Two front ends behind one port that speaks TLS, seen from outside: who serves, what happens when one dies, and that
no call depends on which of them took it."""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import botocore.exceptions
import httpx2
import psutil
import pytest

from tests.console.pictures import open_link_without_scripts
from tests.support.certificates import CertificateAuthority
from tests.support.installation import RunningInstallation, free_port, running, wait_until

pytestmark = pytest.mark.slow


class TwoFrontEnds:
    def __init__(self, installation: RunningInstallation, authority: CertificateAuthority, redirect_port: int) -> None:
        self.installation = installation
        self.authority = authority
        self.redirect_port = redirect_port
        self.endpoint = f"https://localhost:{installation.port}"

    def client(self) -> httpx2.Client:
        """One connection, kept."""
        headers = {"Authorization": f"Bearer {self.installation.key['bearer_token']}"}
        limits = httpx2.Limits(max_connections=1)
        context = self.authority.client_context()
        return httpx2.Client(base_url=self.endpoint, verify=context, headers=headers, timeout=20, limits=limits)

    def clients_of_both(self) -> dict[int, httpx2.Client]:
        """A client for each front end, by its pid."""
        found: dict[int, httpx2.Client] = {}
        for _ in range(60):
            client = self.client()
            found.setdefault(self.server_of(client), client)
            if len(found) == 2:
                return found
        raise AssertionError("one front end got 60 connections in a row")

    def server_of(self, client: httpx2.Client) -> int:
        """The front end that a connection goes to."""
        answer = client.post("/v1/message-counts", json={"queues": ["absent"]})
        assert answer.status_code == 200, answer.text
        _, port = answer.extensions["network_stream"].get_extra_info("client_addr")[:2]
        for pid in [row["pid"] for row in self.installation.processes("frontend") if row["pid"]]:
            with suppress(psutil.NoSuchProcess):
                clients = [one.raddr for one in psutil.Process(pid).net_connections("tcp")]
                if port in [client.port for client in clients if client]:
                    return int(pid)
        raise AssertionError("no front end has this connection")

    def metrics(self, name: str) -> dict[str, float]:
        state = json.loads((self.installation.data / "run" / "state.json").read_text())
        text = httpx2.get(f"http://127.0.0.1:{state['ports'][f'{name}-metrics']}/metrics").text
        samples = re.findall(r"^(penstock_[a-z_]+) ([0-9.e+]+)$", text, re.MULTILINE)
        return {name: float(value) for name, value in samples}

    @property
    def internal(self) -> str:
        state = json.loads((self.installation.data / "run" / "state.json").read_text())
        return f"http://127.0.0.1:{state['ports']['frontend-internal']}"


@pytest.fixture(scope="module")
def two() -> Iterator[TwoFrontEnds]:
    with tempfile.TemporaryDirectory() as folder:
        authority = CertificateAuthority(Path(folder))
        certificate, key = authority.issue(hosts=("localhost",))
        redirect_port = free_port()
        options = ["--front-ends", "2", "--tls-certificate", str(certificate), "--tls-key", str(key)]
        options += ["--redirect-port", str(redirect_port)]
        with running(1, options=options, trusted=authority.file) as installation:
            yield TwoFrontEnds(installation, authority, redirect_port)


def test_endpoint_is_https_and_boto3_that_verifies_uses_it(two: TwoFrontEnds) -> None:
    assert two.installation.key["endpoint"] == two.endpoint and two.endpoint in two.installation.printed
    _, url = two.installation.new_queue()
    assert url.startswith(f"{two.endpoint}/")
    sqs = two.installation.sqs()
    for number in range(20):
        sqs.send_message(QueueUrl=url, MessageBody=f"m{number}")
    found: set[str] = set()
    while len(found) < 20:
        for message in sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=2)["Messages"]:
            found.add(message["Body"])
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def test_each_front_end_is_known_to_status_doctor_and_metrics_and_to_the_shares_of_quotas(two: TwoFrontEnds) -> None:
    rows = two.installation.processes("frontend")
    assert [(row["id"], row["health"]) for row in rows] == [(1, "healthy"), (2, "healthy")]
    assert len({row["pid"] for row in rows}) == 2
    assert {row["address"] for row in rows} == {f"127.0.0.1:{two.installation.port}"}
    wait_until(lambda: all(two.metrics(name)["penstock_front_ends"] == 2 for name in ("frontend", "frontend-2")), 10)
    counted = two.metrics("frontend-2")
    for name in ("connections_gave_way_total", "connections_refused_total", "inner_certificate_refused"):
        assert counted[f"penstock_{name}"] == 0
    told = two.installation.command("doctor", check=False).stdout.decode()
    assert "for localhost, until" in told and "are up" in told


def test_receipt_and_page_and_commands_do_not_depend_on_the_front_end(two: TwoFrontEnds) -> None:
    name, _ = two.installation.new_queue()
    one, other = two.clients_of_both().values()
    sent = one.post(f"/v1/queues/{name}/messages", json={"body": "x"})
    assert sent.status_code == 200, sent.text
    got = other.post(f"/v1/queues/{name}/messages/receive", json={"wait_seconds": 5}).json()["messages"]
    receipts = [message["receipt"] for message in got]
    done = one.post(f"/v1/queues/{name}/messages/ack", json={"receipts": receipts})
    assert done.status_code == 200 and done.json()["done"] == 1, done.text
    other.post(f"/v1/queues/{name}/messages", json={"body": "on the page"})
    # A page asks a front end with a pass, and whichever of them it is opens it.
    link = json.loads(two.installation.command("console-link", "--account", "tests", "--json").stdout)
    assert link["url"].startswith(two.endpoint)
    with httpx2.Client(verify=two.authority.client_context(), follow_redirects=True, timeout=20) as browser:
        assert open_link_without_scripts(browser, link["url"]).status_code == 200
        account_id = two.installation.key["account_id"]
        for _ in range(6):
            page = browser.get(f"{two.endpoint}/console/a/{account_id}/queues/{name}/messages/list")
            assert page.status_code == 200 and "on the page" in page.text, page.text
        assert all(cookie.secure for cookie in browser.cookies.jar)
    # The commands are the demo account's.
    two.installation.command("send", name, input_bytes=b"by the shell\n")
    assert two.installation.command("receive", name, "--max", "1").stdout == b"by the shell\n"


def test_policy_that_wants_encryption_allows_https_and_refuses_plain_http(two: TwoFrontEnds) -> None:
    import boto3

    _, url = two.installation.new_queue()
    sqs = two.installation.sqs()
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    insecure = {"Bool": {"aws:SecureTransport": "false"}}
    deny = {"Effect": "Deny", "Principal": "*", "Action": "sqs:*", "Resource": arn, "Condition": insecure}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [deny]})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
    key = two.installation.key
    plain = boto3.client(
        "sqs", endpoint_url=two.internal, region_name=key["region"], aws_access_key_id=key["access_key_id"],
        aws_secret_access_key=key["secret_access_key"],
    )  # fmt: skip

    def is_refused() -> bool:
        try:
            plain.send_message(QueueUrl=url, MessageBody="x")
        except botocore.exceptions.ClientError as error:
            return "AccessDenied" in error.response["Error"]["Code"]
        return False

    wait_until(is_refused, 10)
    sqs.send_message(QueueUrl=url, MessageBody="x")


def test_plain_http_is_told_to_use_https_and_pages_are_sent_there(two: TwoFrontEnds) -> None:
    answer = httpx2.get(f"http://127.0.0.1:{two.installation.port}/")
    assert answer.status_code == 400 and "use https" in answer.text
    sent_on = httpx2.get(f"http://localhost:{two.redirect_port}/console?a=b")
    assert sent_on.status_code == 308 and sent_on.headers["location"] == f"{two.endpoint}/console?a=b"


def test_new_certificate_is_taken_by_both_without_a_restart(two: TwoFrontEnds) -> None:
    pids = [row["pid"] for row in two.installation.processes("frontend")]
    two.authority.issue(hosts=("localhost",))
    names = ("frontend", "frontend-2")
    wait_until(lambda: all(two.metrics(name)["penstock_tls_certificate_loads_total"] == 2 for name in names), 20, 0.2)
    assert two.clients_of_both()
    (two.authority.folder / "server.pem").write_text("garbage")
    wait_until(lambda: all(two.metrics(name)["penstock_tls_certificate_refused"] == 1 for name in names), 20, 0.2)
    assert two.clients_of_both(), "the old one stays in use"
    assert "certificate_refused" in (two.installation.data / "logs" / "frontend-2.log").read_text()
    two.authority.issue(hosts=("localhost",))
    wait_until(lambda: all(two.metrics(name)["penstock_tls_certificate_refused"] == 0 for name in names), 20, 0.2)
    assert [row["pid"] for row in two.installation.processes("frontend")] == pids


def test_clients_of_the_other_front_end_go_on_when_one_is_killed(two: TwoFrontEnds) -> None:
    name, _ = two.installation.new_queue()
    clients = two.clients_of_both()
    killed = two.installation.kill("frontend", 2)
    kept = []
    for server, client in clients.items():
        try:
            assert client.post(f"/v1/queues/{name}/messages", json={"body": "x"}).status_code == 200
        except httpx2.TransportError:
            continue
        # One that saw its connection end has made a new one without a word.
        kept += [server] if two.server_of(client) == server else []
    assert len(kept) == 1, "those of the other do not notice"
    began_s = time.monotonic()
    for _ in range(10):
        with two.client() as fresh:
            assert fresh.post(f"/v1/queues/{name}/messages", json={"body": "x"}).status_code == 200
    assert time.monotonic() - began_s < 10, "new connections reach the other at once"

    def is_back() -> bool:
        row: dict[str, Any] = next(row for row in two.installation.processes("frontend") if row["id"] == 2)
        return row["health"] == "healthy" and row["pid"] not in (None, killed) and row["restarts"] >= 1

    wait_until(is_back, 60, 0.3)
    assert len(two.clients_of_both()) == 2, "it has its share of the connections again"
