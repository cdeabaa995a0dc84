"""The live tail on a real installation: opened by a ticket, looked at without a trace, ended with the session."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.console.pictures import link_of, open_link_without_scripts
from tests.support.installation import RunningInstallation

pytestmark = pytest.mark.slow
REVOKED_S_MAX = 2.0
ANSWER_S_MAX = 30


class Visitor:
    """A browser without scripts, signed in as the owner of the account of the tests."""

    def __init__(self, installation: RunningInstallation) -> None:
        self.endpoint = installation.key["endpoint"]
        self.client = httpx2.Client(base_url=self.endpoint, timeout=ANSWER_S_MAX, follow_redirects=True)
        page = open_link_without_scripts(self.client, link_of(installation, "--account", "tests"))
        self.start = str(page.url.path)

    def post(self, path: str, page: str) -> httpx2.Response:
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', self.client.get(page).text)
        assert token is not None
        return self.client.post(path, data={"csrfmiddlewaretoken": token[1]}, headers={"Referer": self.endpoint})

    def ticket(self, queue: str) -> dict[str, str]:
        page = f"{self.start}queues/{queue}/tail"
        answer = self.post(f"{page}/ticket", page)
        assert answer.status_code == 200, answer.text
        found: dict[str, str] = answer.json()
        return found

    @contextmanager
    def tail(self, made: dict[str, str]) -> Iterator[ClientConnection]:
        address = self.endpoint.replace("http", "ws", 1) + made["socket"]
        with connect(address, origin=self.endpoint) as socket:
            socket.send(json.dumps({"type": "open", "ticket": made["ticket"]}))
            yield socket


def frame(socket: ClientConnection) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(socket.recv(ANSWER_S_MAX))
    return found


def test_tail_shows_what_comes_and_leaves_it_as_it_was(installation: RunningInstallation) -> None:
    visitor, rest = Visitor(installation), installation.rest()
    name, url = installation.new_queue(**{"Penstock.Partitions": "3"})
    rest.post(f"/v1/queues/{name}/messages", json={"body": "before"})
    made = visitor.ticket(name)
    with visitor.tail(made) as socket:
        assert frame(socket) == {"type": "live"}
        bodies = [f"m{number}" for number in range(40)]
        rest.post(f"/v1/queues/{name}/messages", json={"messages": [{"body": body} for body in bodies]})
        seen: list[str] = []
        while len(seen) < len(bodies):
            shown = frame(socket)
            assert shown["type"] == "messages" and shown["found"] == len(shown["messages"])
            seen += [one["body"] for one in shown["messages"]]
        assert sorted(seen) == sorted(bodies)
        with visitor.tail(made) as second, pytest.raises(ConnectionClosed) as refused:
            second.recv(ANSWER_S_MAX)
        assert refused.value.rcvd is not None and refused.value.rcvd.code == 4401, "a ticket is good once"
    received = installation.sqs().receive_message(QueueUrl=url, AttributeNames=["All"], MaxNumberOfMessages=10)
    counts = {one["Attributes"]["ApproximateReceiveCount"] for one in received["Messages"]}
    assert counts == {"1"}, "the receive is the first one"


def test_tail_ends_with_the_session_within_two_seconds(installation: RunningInstallation) -> None:
    visitor = Visitor(installation)
    name, _ = installation.new_queue()
    with visitor.tail(visitor.ticket(name)) as socket:
        assert frame(socket) == {"type": "live"}
        assert visitor.post("/console/sign-out", "/console/me").status_code == 200
        ended_s = time.monotonic()
        with pytest.raises(ConnectionClosed) as closed:
            while frame(socket)["type"] == "held":
                pass
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 4401
        assert time.monotonic() - ended_s < REVOKED_S_MAX
