"""The demo account's key, and what `up` prints: lines to copy that run as they are."""

from __future__ import annotations

import json
import shlex
import sys
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path
from typing import Any

from deploy import limits, management
from deploy.installation import ROOT, Installation
from deploy.make_secrets import write_private, write_private_once
from deploy.state import State, endpoint, internal_endpoint

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
        made = management.create_key(installation, state, DEMO_ACCOUNT)
        made.pop("account_created", None)
        write_private_once(file, json.dumps(made))
    key: dict[str, Any] = json.loads(file.read_text())
    # The port may have been chosen anew since the key was made.
    return {**key, "endpoint": endpoint(state)}


def is_demo_key(installation: Installation, access_key_id: str) -> bool:
    try:
        return bool(json.loads(installation.demo_key_file.read_text())["access_key_id"] == access_key_id)
    except FileNotFoundError:
        return False


def replace_demo_key(installation: Installation, key: dict[str, Any]) -> None:
    """It was rotated: from now on `up` prints the new one, and `send` and `receive` use it."""
    write_private(installation.demo_key_file, json.dumps(key))


def is_refused(state: State, key: dict[str, Any]) -> bool:
    """Whether the front end refuses the key. An endpoint that does not answer refuses nothing."""
    request = urllib.request.Request(
        f"{internal_endpoint(state)}/v1/queues?page_size=1", headers={"Authorization": f"Bearer {key['bearer_token']}"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        opener.open(request, timeout=limits.HEALTH_TIMEOUT_S).close()
    except urllib.error.HTTPError as error:
        error.close()
        return error.code == HTTPStatus.UNAUTHORIZED
    except OSError:
        return False
    return False


def refused_text(installation: Installation, access_key_id: str) -> str:
    """Why the demo account's commands do not work any more, and the way back."""
    return (
        f"the demo account's key {access_key_id} opens nothing: it was revoked, rotated or has expired, or the account "
        f"is suspended. For another key: rm {shlex.quote(str(installation.demo_key_file))}, then "
        "./penstock up"
    )


def boto3_lines(key: dict[str, Any]) -> str:
    return BOTO3_LINES.format(**key)


def curl_queue_line(key: dict[str, Any]) -> str:
    return (
        f"curl -sS -H 'Authorization: Bearer {key['bearer_token']}' -H 'Content-Type: application/json' "
        f'-d \'{{"name": "hello"}}\' {key["endpoint"]}/v1/queues'
    )


def curl_line(key: dict[str, Any]) -> str:
    return (
        f"curl -sS -H 'Authorization: Bearer {key['bearer_token']}' -H 'Content-Type: application/json' "
        f'-d \'{{"messages": [{{"body": "first message"}}]}}\' {key["endpoint"]}/v1/queues/hello/messages'
    )


def introduction(installation: Installation, state: State, key: dict[str, Any], seconds: float | None) -> str:
    """What `up` prints; `seconds` is how long the start took, None where everything ran before."""
    head = f"""
Penstock is up{"" if seconds is None else f" after {seconds:.1f} s"}.

  endpoint   {endpoint(state)}          (SQS on /, REST on /v1, health on /healthz)
  console    {endpoint(state)}/console          (sign in: ./penstock console-link --account {DEMO_ACCOUNT})"""
    if is_refused(state, key):
        return f"""{head}
  data       {installation.data}

Of the examples: {refused_text(installation, key["access_key_id"])}

Stop with: ./penstock down"""
    lines = "\n".join(f"    {line}" for line in boto3_lines(key).splitlines())
    return f"""{head}
  account    {key["account_id"]} ({DEMO_ACCOUNT}), region {key["region"]}
  key        {key["access_key_id"]} / {key["secret_access_key"]}
  bearer     {key["bearer_token"]}
  data       {installation.data}

First message, with boto3 ({shlex.quote(interpreter())} has it):

{lines}

The same queue by REST; the first line makes it where it is not there:

    {curl_queue_line(key)}
    {curl_line(key)}

Stop with: ./penstock down"""


def interpreter() -> str:
    """The Python that has boto3: of the virtual environment, wherever PENSTOCK_VENV says that it is."""
    path = Path(sys.executable)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
