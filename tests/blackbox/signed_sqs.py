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
        self._url = f"http://{self.host}:{port}/"
        credentials = Credentials(key["access_key_id"], key["secret_access_key"])
        self._signer = SigV4Auth(credentials, "sqs", key["region"])
        self._account_id = key["account_id"]

    def queue_url(self, name: str) -> str:
        return f"{self._url}{self._account_id}/{name}"

    async def sqs(self, action: str, params: Mapping[str, Any], timeout_s: float = 60.0) -> Answer:
        body = json.dumps(params).encode()
        headers = {"content-type": JSON_1_0, "x-amz-target": f"AmazonSQS.{action}"}
        request = AWSRequest("POST", self._url, headers=headers, data=body)
        request.headers["host"] = f"{self.host}:{self.port}"
        request.headers["content-length"] = str(len(body))
        self._signer.add_auth(request)
        lines = ["POST / HTTP/1.1", *(f"{name}: {value}" for name, value in request.headers.items()), "", ""]
        return await self.exchange("\r\n".join(lines).encode() + body, timeout_s)
