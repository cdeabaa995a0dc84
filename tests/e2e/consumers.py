"""Producers and consumers of the end-to-end tests, one class a way in, all with the same two methods."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from websockets.sync.client import ClientConnection, connect

from tests.support.installation import RunningInstallation

BATCH = 10
IDLE_S = 4.0


class Received(Protocol):
    def __call__(self, message_id: str, body: bytes) -> None: ...


class Collected:
    """What consumers got, by message id: the body, and how often it came."""

    def __init__(self, wanted: int) -> None:
        self.bodies: dict[str, bytes] = {}
        self.deliveries = 0
        self.last = time.monotonic()
        self._wanted = wanted
        self._lock = threading.Lock()

    def add(self, message_id: str, body: bytes) -> None:
        with self._lock:
            self.bodies.setdefault(message_id, body)
            self.deliveries += 1
            self.last = time.monotonic()

    def done(self, idle_s: float = IDLE_S) -> bool:
        """All there; or nothing came for so long that nothing will."""
        return len(self.bodies) >= self._wanted or time.monotonic() - self.last > idle_s


class Boto3Way:
    def __init__(self, installation: RunningInstallation, name: str, url: str) -> None:
        self._sqs = installation.sqs()
        self._url = url

    def send(self, lines: Sequence[bytes]) -> list[str]:
        """Send one batch; the message ids. Raises where the service did not acknowledge all."""
        entries = [{"Id": str(i), "MessageBody": line.decode()} for i, line in enumerate(lines)]
        answer = self._sqs.send_message_batch(QueueUrl=self._url, Entries=entries)
        assert not answer.get("Failed"), answer["Failed"]
        ids = {entry["Id"]: entry["MessageId"] for entry in answer["Successful"]}
        return [ids[str(i)] for i in range(len(lines))]

    def receive(self, received: Received) -> int:
        answer = self._sqs.receive_message(QueueUrl=self._url, MaxNumberOfMessages=BATCH, WaitTimeSeconds=1)
        messages = answer.get("Messages", [])
        for message in messages:
            received(message["MessageId"], message["Body"].encode())
        if messages:
            entries = [{"Id": str(i), "ReceiptHandle": one["ReceiptHandle"]} for i, one in enumerate(messages)]
            self._sqs.delete_message_batch(QueueUrl=self._url, Entries=entries)
        return len(messages)

    def close(self) -> None:
        self._sqs.close()


class RestWay:
    def __init__(self, installation: RunningInstallation, name: str, url: str) -> None:
        self._http = installation.rest()
        self._path = f"/v1/queues/{name}/messages"

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        answer = self._http.post(path, json=body)
        assert answer.status_code == 200, (answer.status_code, answer.text)
        return answer.json()

    def send(self, lines: Sequence[bytes]) -> list[str]:
        answer = self._post(self._path, {"messages": [{"body": line.decode()} for line in lines]})
        return [message["id"] for message in answer["messages"]]

    def receive(self, received: Received) -> int:
        messages = self._post(f"{self._path}/receive", {"max_messages": BATCH, "wait_seconds": 1})["messages"]
        for message in messages:
            received(message["id"], message["body"].encode())
        if messages:
            self._post(f"{self._path}/ack", {"receipts": [message["receipt"] for message in messages]})
        return len(messages)

    def close(self) -> None:
        self._http.close()


class WebsocketWay(RestWay):
    """Sends by REST, is pushed to over a websocket: credit is given ahead, so messages come without being asked for."""

    CREDIT = 100

    def __init__(self, installation: RunningInstallation, name: str, url: str) -> None:
        super().__init__(installation, name, url)
        endpoint = installation.key["endpoint"].replace("http://", "ws://")
        self._subscribe_url = f"{endpoint}/v1/queues/{name}/subscribe"
        self._headers = {"Authorization": f"Bearer {installation.key['bearer_token']}"}
        self._open = contextlib.ExitStack()
        self._socket: ClientConnection | None = None
        self._used_credit = 0

    def _connection(self) -> ClientConnection:
        if self._socket is None:
            self._socket = self._open.enter_context(connect(self._subscribe_url, additional_headers=self._headers))
            assert json.loads(self._socket.recv(timeout=10))["type"] == "ready"
            self._tell(type="credit", n=self.CREDIT)
        return self._socket

    def _tell(self, **frame: Any) -> None:
        assert self._socket is not None
        self._socket.send(json.dumps(frame))

    def receive(self, received: Received) -> int:
        try:
            frame = json.loads(self._connection().recv(timeout=1))
        except TimeoutError:
            return 0
        assert frame["type"] == "message", frame
        received(frame["id"], frame["body"].encode())
        self._tell(type="ack", ids=[frame["receipt"]])
        self._used_credit += 1
        if self._used_credit == self.CREDIT // 2:
            self._tell(type="credit", n=self._used_credit)
            self._used_credit = 0
        return 1

    def close(self) -> None:
        self._open.close()
        super().close()


class Way(Protocol):
    def send(self, lines: Sequence[bytes]) -> list[str]: ...

    def receive(self, received: Received) -> int: ...

    def close(self) -> None: ...


def send_all(ways: Sequence[Way], lines: Sequence[bytes]) -> dict[str, bytes]:
    """Send in batches, each way taking every n-th; what was acknowledged, by message id."""
    acknowledged: dict[str, bytes] = {}

    def send_share(index: int) -> list[tuple[list[str], Sequence[bytes]]]:
        starts = range(index * BATCH, len(lines), BATCH * len(ways))
        return [(ways[index].send(lines[start : start + BATCH]), lines[start : start + BATCH]) for start in starts]

    for share in in_parallel(send_share, range(len(ways))):
        for ids, batch in share:
            acknowledged |= dict(zip(ids, batch, strict=True))
    return acknowledged


def receive_all(ways: Sequence[Way], wanted: int) -> Collected:
    """Competing consumers until everything came or nothing comes any more."""
    collected = Collected(wanted)

    def consume(way: Way) -> None:
        while not collected.done():
            way.receive(collected.add)

    in_parallel(consume, ways)
    return collected


def in_parallel(work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    chosen = list(items)
    with ThreadPoolExecutor(len(chosen)) as pool:
        return list(pool.map(work, chosen))
