"""The demo account's key, and what `up` prints: lines to copy that run as they are."""

from __future__ import annotations

import json
import shlex
from typing import Any

from deploy import management
from deploy.installation import Installation, write_private_once
from deploy.state import State, endpoint

DEMO_ACCOUNT = "demo"

BOTO3_LINES = """\
import boto3
sqs = boto3.client("sqs", endpoint_url="{endpoint}", region_name="{region}",
                   aws_access_key_id="{access_key_id}", aws_secret_access_key="{secret_access_key}")
url = sqs.create_queue(QueueName="hello")["QueueUrl"]
sqs.send_message(QueueUrl=url, MessageBody="first message")
for message in sqs.receive_message(QueueUrl=url, WaitTimeSeconds=5).get("Messages", []):
    print(message["Body"])
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
"""


def ensure_demo_key(installation: Installation, state: State) -> dict[str, Any]:
    """The key made at the first start; it is kept, so that every later `up` prints the same one."""
    file = installation.demo_key_file
    if not file.exists():
        write_private_once(file, json.dumps(management.create_key(installation, state, DEMO_ACCOUNT)))
    key: dict[str, Any] = json.loads(file.read_text())
    # The port may have been chosen anew since the key was made.
    return {**key, "endpoint": endpoint(state)}


def boto3_lines(key: dict[str, Any]) -> str:
    return BOTO3_LINES.format(**key)


def curl_line(key: dict[str, Any]) -> str:
    return (
        f"curl -sS -H 'Authorization: Bearer {key['bearer_token']}' -H 'Content-Type: application/json' "
        f'-d \'{{"messages": [{{"body": "first message"}}]}}\' {key["endpoint"]}/v1/queues/hello/messages'
    )


def introduction(installation: Installation, state: State, key: dict[str, Any], seconds: float) -> str:
    lines = "\n".join(f"    {line}" for line in boto3_lines(key).splitlines())
    return f"""
Penstock is up after {seconds:.1f} s.

  endpoint   {endpoint(state)}          (SQS on /, REST on /v1, health on /healthz)
  console    {endpoint(state)}/console
  account    {key["account_id"]} ({DEMO_ACCOUNT}), region {key["region"]}
  key        {key["access_key_id"]} / {key["secret_access_key"]}
  bearer     {key["bearer_token"]}
  data       {installation.data}

First message, with boto3 (.venv/bin/python has it):

{lines}

The same queue by REST:

    {curl_line(key)}

Stop with: ./penstock down{data_dir_flag(installation)}"""


def data_dir_flag(installation: Installation) -> str:
    return "" if installation.data == Installation().data else f" --data-dir {shlex.quote(str(installation.data))}"
