"""SQS by hand: JSON calls that are signed once and made once, with no client that repeats them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.blackbox.raw_http import Answer, Endpoint

JSON_1_0 = "application/x-amz-json-1.0"


class SqsEndpoint(Endpoint):
    """One front end, as a caller that signs with this key."""

    def __init__(self, port: int, key: Mapping[str, Any]) -> None:
        super().__init__(port, key["bearer_token"])
        self._key = key

    def queue_url(self, name: str) -> str:
        return f"http://{self.host}:{self.port}/{self._key['account_id']}/{name}"

    async def sqs(self, action: str, params: Mapping[str, Any], timeout_s: float = 60.0) -> Answer:
        return await self.exchange(signed_request(self.port, self._key, action, params), timeout_s)


def signed_request(port: int, key: Mapping[str, Any], action: str, params: Mapping[str, Any]) -> bytes:
    """To a front end at this port of loopback."""
    body = json.dumps(params).encode()
    headers = {"content-type": JSON_1_0, "x-amz-target": f"AmazonSQS.{action}"}
    request = AWSRequest("POST", f"http://127.0.0.1:{port}/", headers=headers, data=body)
    request.headers["host"] = f"127.0.0.1:{port}"
    request.headers["content-length"] = str(len(body))
    credentials = Credentials(key["access_key_id"], key["secret_access_key"])
    SigV4Auth(credentials, "sqs", key["region"]).add_auth(request)
    lines = ["POST / HTTP/1.1", *(f"{name}: {value}" for name, value in request.headers.items()), "", ""]
    return "\r\n".join(lines).encode() + body
