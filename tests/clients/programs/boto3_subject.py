"""What the boto3 checks share: clients made from one session, an endpoint where boto3 must be told of it."""

from __future__ import annotations

from typing import Any

import boto3
import botocore
import botocore.session
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.clients.programs.checks import endpoint, new_name

SIMPLE = "AWS.SimpleQueueService."
# AWS_ENDPOINT_URL_SQS is read from this botocore on; programs on an older one give endpoint_url.
READS_ENDPOINT_FROM = (1, 31, 0)


class Subject:
    """The clients that the checks use, made from one botocore session."""

    def __init__(self, core: botocore.session.Session | None = None) -> None:
        self._session = boto3.Session(botocore_session=core) if core else boto3.Session()
        self.sqs = self.client()

    def client(self, **options: Any) -> Any:
        config = Config(retries={"mode": "standard", "max_attempts": 3})
        return self._session.client("sqs", config=config, **(endpoint_option() | options))

    def resource(self) -> Any:
        return self._session.resource("sqs", **endpoint_option())

    def queue(self, **attributes: str) -> str:
        return str(self.sqs.create_queue(QueueName=new_name(), Attributes=attributes)["QueueUrl"])

    def receive(self, url: str, **options: Any) -> list[Any]:
        asked = {"WaitTimeSeconds": 5, "MaxNumberOfMessages": 10} | options
        messages: list[Any] = self.sqs.receive_message(QueueUrl=url, **asked).get("Messages", [])
        return messages


def endpoint_option() -> dict[str, str]:
    version = tuple(int(part) for part in botocore.__version__.split(".")[:3])
    return {} if version >= READS_ENDPOINT_FROM else {"endpoint_url": endpoint()}


def protocol(sqs: Any) -> str:
    return str(sqs.meta.service_model.protocol)


def error_code(call: Any, **parameters: Any) -> str:
    try:
        call(**parameters)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    raise AssertionError("no error came")
