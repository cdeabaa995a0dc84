"""A whole front end for tests: real application, keys and signatures; storage in memory, fake metadata and control
plane."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import botocore.auth
import httpx2
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from frontend.asgi import build_application
from frontend.authn.tokens import MintedKey, hash_bearer_token, mint_key
from frontend.control import ControlPlane
from frontend.crypto.keyring import Keyring
from frontend.limits.gcra import LeakyBuckets
from frontend.limits.quota_tree import QuotaTree
from frontend.metadata.records import KeyRecord
from frontend.readiness import ALIVE_PATH
from frontend.services import FrontendServices
from tests.support.fake_metadata import FakeMetadata, queue_record
from tests.support.observed_storage import ObservedStorage

ACCOUNT = "123456789012"
OTHER_ACCOUNT = "999999999999"
HOST = "localhost:9324"
REGION = "us-east-1"
START_S = 1_700_000_000.0
QUEUE_URL = f"http://{HOST}/{ACCOUNT}/orders"


class Clock:
    def __init__(self, now_s: float = START_S) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The name of an SQS error."""
        assert self.headers["content-type"] == "application/x-amz-json-1.0"
        assert self.headers["x-amzn-query-error"].partition(";")[0]
        assert "Traceback" not in self.body.decode()
        assert set(self.json) in ({"__type", "message"}, {"__type", "Message"})
        return str(self.json["__type"]).partition("#")[2]


class Installation:
    """Build inside a running event loop."""

    def __init__(
        self,
        partitions: tuple[int, ...] = (1,),
        quotas: QuotaTree | None = None,
        addresses: LeakyBuckets | None = None,
    ) -> None:
        self.clock = Clock()
        self.keyring = Keyring(bytes(range(32)))
        self.pepper = b"p" * 32
        self.internal_key = b"i" * 32
        self.storage = ObservedStorage(self.clock, (*partitions, 50))
        self.metadata = FakeMetadata()
        self.audit: list[dict[str, Any]] = []
        self.control_calls: list[httpx2.Request] = []
        self.control_alive = 200
        self.control_answer: Callable[[httpx2.Request], httpx2.Response] = self._control
        self.key = self.add_key(ACCOUNT)
        self.other_key = self.add_key(OTHER_ACCOUNT)
        self.add_queue("orders", partitions)
        self.add_queue("secret", (50,), account_id=OTHER_ACCOUNT)
        self.plane = FrontendServices(
            region=REGION,
            storage=self.storage,
            metadata=self.metadata,
            control=ControlPlane(
                "control.test:80", self.internal_key, self.clock, httpx2.MockTransport(self._answer_control)
            ),
            keyring=self.keyring,
            pepper=self.pepper,
            receipt_key=b"r" * 32,
            quotas=quotas,
            addresses=addresses,
            now_s=self.clock,
            steady_s=self.clock,
        )
        self.client_host = "127.0.0.1"
        self.application = build_application(self.plane)

    def add_key(self, account_id: str, **changes: Any) -> MintedKey:
        key = mint_key()
        fields: dict[str, Any] = {
            "access_key_id": key.access_key_id,
            "account_id": account_id,
            "name": "test",
            "secret_sealed": self.keyring.seal_secret(account_id, key.access_key_id, key.secret_access_key),
            "bearer_hash": hash_bearer_token(account_id, key.bearer_token, self.pepper),
            "active": True,
            "expires_at_ms": None,
            "version": 1,
        }
        self.metadata.keys[key.access_key_id] = KeyRecord(**{**fields, **changes})
        return key

    def add_queue(self, name: str, partitions: tuple[int, ...] = (1,), account_id: str = ACCOUNT, **more: Any) -> None:
        record = queue_record(self.keyring, account_id, name, partitions, **more)
        self.metadata.queues[(account_id, name)] = record
        for partition in partitions:
            self.storage.provide(partition, record.fifo)

    # --- requests ---

    async def sqs(self, action: str, params: Any = None, **options: Any) -> Reply:
        """A signed request of the SQS wire; `params` may be raw bytes."""
        body = params if isinstance(params, bytes) else json.dumps({} if params is None else params).encode()
        return await self.signed("POST", "/", body, f"AmazonSQS.{action}", **options)

    async def signed(
        self, method: str, path: str, body: bytes, target: str = "", key: MintedKey | None = None, **options: Any
    ) -> Reply:
        headers = sign(key or self.key, method, path, body, target, self.clock.now_s)
        headers.update(options.pop("headers", {}))
        return await self.call(method, path, headers, body, **options)

    async def rest(self, path: str, params: Any = None, token: str | None = None, method: str = "POST") -> Reply:
        body = params if isinstance(params, bytes) else json.dumps({} if params is None else params).encode()
        headers = {
            "host": HOST,
            "content-type": "application/json",
            "authorization": f"Bearer {self.key.bearer_token if token is None else token}",
        }
        return await self.call(method, path, headers, body)

    async def call(
        self,
        method: str,
        path: str,
        headers: dict[str, str] | list[tuple[bytes, bytes]],
        body: bytes = b"",
        gone: asyncio.Event | None = None,
        chunks: list[bytes] | None = None,
    ) -> Reply:
        """One HTTP request against the ASGI application. `gone` set = the client has left."""
        if isinstance(headers, dict):
            headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
        raw_path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "scheme": "http",
            "path": raw_path,
            "raw_path": raw_path.encode(),
            "query_string": query.encode(),
            "headers": headers,
            "client": (self.client_host, 40_000),
        }
        pieces = chunks if chunks is not None else [body]
        incoming = [
            {"type": "http.request", "body": piece, "more_body": place + 1 < len(pieces)}
            for place, piece in enumerate(pieces)
        ]
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            if incoming:
                return incoming.pop(0)
            await (gone or asyncio.Event()).wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self.application(scope, receive, send)
        if not sent:
            return Reply(0, {}, b"")
        assert [message["type"] for message in sent[:2]] == ["http.response.start", "http.response.body"]
        answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Reply(sent[0]["status"], answered, b"".join(message.get("body", b"") for message in sent[1:]))

    # --- control plane ---

    def _answer_control(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path == ALIVE_PATH:
            return httpx2.Response(self.control_alive)
        self.control_calls.append(request)
        answer = self.control_answer(request)
        # As from a network: not read yet.
        return httpx2.Response(answer.status_code, headers=answer.headers, stream=httpx2.ByteStream(answer.content))

    def _control(self, request: httpx2.Request) -> httpx2.Response:
        """What the control plane does with the SQS management actions, MAC included."""
        assert self.mac_is_right(request)
        if request.url.path == "/internal/audit":
            self.audit.append(json.loads(request.content))
            return httpx2.Response(200, json={})
        action = request.url.path.rpartition("/")[2]
        asked = json.loads(request.content)
        params, account_id = asked["params"], asked["account_id"]
        if action == "ListQueues":
            prefix = params.get("QueueNamePrefix", "")
            mine = [name for owner, name in self.metadata.queues if owner == account_id and name.startswith(prefix)]
            return httpx2.Response(200, json={"names": sorted(mine)})
        name = params.get("QueueName", "")
        if action == "CreateQueue":
            if name in ("orders",) and params["Attributes"]:
                return httpx2.Response(400, json={"code": "QueueNameExists", "message": "It exists."})
            self.add_queue(name, account_id=account_id, attributes=params["Attributes"])
            return httpx2.Response(200, json={"name": name})
        if action == "DeleteQueue":
            del self.metadata.queues[(account_id, name)]
        elif action == "ListDeadLetterSourceQueues":
            return httpx2.Response(200, json={"names": []})
        elif action == "SetQueueAttributes":
            self.add_queue(name, account_id=account_id, attributes=params["Attributes"])
        else:
            return httpx2.Response(200, content=request.content, headers={"x-seen": "yes"})
        return httpx2.Response(200, json={})

    def mac_is_right(self, request: httpx2.Request) -> bool:
        claim = request.headers["x-penstock-principal"].encode()
        digest = hashlib.sha256(request.content).hexdigest().encode()
        text = b"\n".join((request.method.encode(), request.url.raw_path, claim, digest))
        return hmac.new(self.internal_key, text, "sha256").hexdigest() == request.headers["x-penstock-principal-mac"]


def sign(
    key: MintedKey,
    method: str,
    path: str,
    body: bytes,
    target: str,
    now_s: float,
    content_type: str = "application/x-amz-json-1.0",
) -> dict[str, str]:
    """Headers signed by botocore, the oracle."""
    headers = {"Host": HOST, "Content-Type": content_type}
    if target:
        headers["X-Amz-Target"] = target
    request = AWSRequest(method, f"http://{HOST}{path}", data=body, headers=headers)
    signer = botocore.auth.SigV4Auth(Credentials(key.access_key_id, key.secret_access_key), "sqs", REGION)
    with at_time(now_s):
        signer.add_auth(request)
    return dict(request.headers.items())


def presign(
    key: MintedKey, method: str, path: str, body: bytes, target: str, now_s: float, expires_s: int = 3600
) -> tuple[str, dict[str, str]]:
    """(path with query, headers) presigned by botocore."""
    headers = {"Host": HOST, "Content-Type": "application/x-amz-json-1.0"}
    if target:
        headers["X-Amz-Target"] = target
    request = AWSRequest(method, f"http://{HOST}{path}", headers=headers)
    credentials = Credentials(key.access_key_id, key.secret_access_key)
    signer = botocore.auth.SigV4QueryAuth(credentials, "sqs", REGION, expires=expires_s)
    # Given a body, botocore would move it into the query; of the signature only its hash is wanted.
    signer.payload = lambda _: hashlib.sha256(body).hexdigest()
    with at_time(now_s):
        signer.add_auth(request)
    return request.url.removeprefix(f"http://{HOST}"), dict(request.headers.items())


def at_time(now_s: float) -> Any:
    """botocore signs with the clock of the test."""
    import datetime

    moment = datetime.datetime.fromtimestamp(now_s, datetime.UTC).replace(tzinfo=None)
    return mock.patch("botocore.auth.get_current_datetime", lambda *_, **__: moment)
