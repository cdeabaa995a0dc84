"""The AWS command line as a shell script uses it: commands, JSON on stdout, exit codes, messages on stderr.

    python -m tests.clients.programs.aws_cli option       every command with --endpoint-url
    python -m tests.clients.programs.aws_cli variable     AWS_ENDPOINT_URL_SQS in the environment, nothing else

AWS_PROGRAM names the `aws` to run. Two ways, because version 1 ignores the variable in every region that Amazon has:
its customization `overridesslcommonname` then fills in Amazon's address. In a region of another name it is heeded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any, NamedTuple

from tests.clients.programs.checks import Check, new_name, run_checks, wait_until

PROGRAM = os.environ.get("AWS_PROGRAM", "aws")
COMMAND_TIMEOUT_S = 60
# Of version 1.
EXIT_SERVICE_SAID_NO = 255
EXIT_WRONG_USE = 2


class Answer(NamedTuple):
    code: int
    output: str
    errors: str


class Shell:
    """Runs `aws sqs COMMAND`, told of the endpoint in one of the two ways."""

    def __init__(self, way: str) -> None:
        self._environment = dict(os.environ)
        self._options: list[str] = []
        if way == "option":
            self._options = ["--endpoint-url", self._environment.pop("AWS_ENDPOINT_URL_SQS")]

    def run(self, *arguments: str) -> Answer:
        command = [PROGRAM, *arguments, *self._options]
        finished = subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, env=self._environment
        )
        return Answer(finished.returncode, finished.stdout, finished.stderr)

    def sqs(self, command: str, *arguments: str) -> Any:
        """What the command printed, as JSON; None where it printed nothing."""
        answer = self.run("sqs", command, *arguments, "--output", "json")
        assert answer.code == 0, answer
        return json.loads(answer.output) if answer.output.strip() else None

    def queue(self, *arguments: str) -> str:
        return str(self.sqs("create-queue", "--queue-name", new_name("cli"), *arguments)["QueueUrl"])

    def refused(self, command: str, *arguments: str) -> str:
        """stderr of a command that the service refused."""
        answer = self.run("sqs", command, *arguments)
        assert answer.code == EXIT_SERVICE_SAID_NO, answer
        return answer.errors


def check_queue_commands(shell: Shell) -> None:
    """create-queue, get-queue-url, list-queues, delete-queue."""
    url = shell.queue()
    name = url.rpartition("/")[2]
    assert shell.sqs("get-queue-url", "--queue-name", name) == {"QueueUrl": url}
    assert shell.sqs("list-queues", "--queue-name-prefix", name) == {"QueueUrls": [url]}
    shell.sqs("delete-queue", "--queue-url", url)
    assert not shell.sqs("list-queues", "--queue-name-prefix", name)


def check_attributes_and_tags(shell: Shell) -> None:
    """set-queue-attributes, get-queue-attributes, tag-queue, list-queue-tags, untag-queue."""
    url = shell.queue("--attributes", "VisibilityTimeout=9", "--tags", "made=cli")
    shell.sqs("set-queue-attributes", "--queue-url", url, "--attributes", "MessageRetentionPeriod=7200")
    asked = ("--attribute-names", "VisibilityTimeout", "MessageRetentionPeriod")
    found = shell.sqs("get-queue-attributes", "--queue-url", url, *asked)["Attributes"]
    assert found == {"VisibilityTimeout": "9", "MessageRetentionPeriod": "7200"}
    everything = shell.sqs("get-queue-attributes", "--queue-url", url, "--attribute-names", "All")["Attributes"]
    assert everything["QueueArn"].startswith("arn:aws:sqs:")
    shell.sqs("tag-queue", "--queue-url", url, "--tags", "team=blue,stage=test")
    shell.sqs("untag-queue", "--queue-url", url, "--tag-keys", "stage")
    assert shell.sqs("list-queue-tags", "--queue-url", url)["Tags"] == {"made": "cli", "team": "blue"}


def check_message_commands(shell: Shell) -> None:
    """send-message with attributes, receive-message with a long poll, change-message-visibility, delete-message."""
    url = shell.queue()
    attributes = '{"colour": {"DataType": "String", "StringValue": "grün"}}'
    sent = shell.sqs(
        "send-message", "--queue-url", url, "--message-body", "größe <&>", "--message-attributes", attributes
    )
    asked = ("--message-attribute-names", "All", "--attribute-names", "All", "--wait-time-seconds", "5")
    (message,) = shell.sqs("receive-message", "--queue-url", url, *asked)["Messages"]
    assert (message["MessageId"], message["Body"]) == (sent["MessageId"], "größe <&>")
    assert message["MD5OfBody"] == sent["MD5OfMessageBody"]
    assert message["MessageAttributes"]["colour"]["StringValue"] == "grün"
    receipt = ("--queue-url", url, "--receipt-handle", message["ReceiptHandle"])
    shell.sqs("change-message-visibility", *receipt, "--visibility-timeout", "0")
    (again,) = shell.sqs("receive-message", "--queue-url", url, *asked)["Messages"]
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"
    shell.sqs("delete-message", "--queue-url", url, "--receipt-handle", again["ReceiptHandle"])
    assert shell.sqs("receive-message", "--queue-url", url, "--visibility-timeout", "0") is None


def check_batch_commands(shell: Shell) -> None:
    """The three batch commands, each with an entry that fails; such a batch still exits 0."""
    url = shell.queue()
    entries = [{"Id": f"m{number}", "MessageBody": f"body {number}"} for number in range(4)]
    bad = {"Id": "bad", "MessageBody": "late", "DelaySeconds": 901}
    sent = shell.sqs("send-message-batch", "--queue-url", url, "--entries", json.dumps([*entries, bad]))
    assert len(sent["Successful"]) == 4 and [one["Id"] for one in sent["Failed"]] == ["bad"], sent
    asked = ("--max-number-of-messages", "10", "--wait-time-seconds", "5")
    messages = shell.sqs("receive-message", "--queue-url", url, *asked)["Messages"]
    receipts = [{"Id": f"r{n}", "ReceiptHandle": one["ReceiptHandle"]} for n, one in enumerate(messages)]
    wrong = {"Id": "bad", "ReceiptHandle": "none"}
    longer = [entry | {"VisibilityTimeout": 60} for entry in [*receipts, wrong]]
    changed = shell.sqs("change-message-visibility-batch", "--queue-url", url, "--entries", json.dumps(longer))
    deleted = shell.sqs("delete-message-batch", "--queue-url", url, "--entries", json.dumps([*receipts, wrong]))
    for answer in (changed, deleted):
        assert len(answer["Successful"]) == 4 and answer["Failed"][0]["Code"] == "ReceiptHandleIsInvalid", answer


def check_purge(shell: Shell) -> None:
    """purge-queue, and its refusal within a minute."""
    url = shell.queue()
    shell.sqs("send-message", "--queue-url", url, "--message-body", "gone")
    shell.sqs("purge-queue", "--queue-url", url)
    assert shell.sqs("receive-message", "--queue-url", url, "--wait-time-seconds", "1") is None
    assert "PurgeQueueInProgress" in shell.refused("purge-queue", "--queue-url", url)


def check_exit_codes(shell: Shell) -> None:
    """Errors: exit code 255 and the error's code on stderr; 2 for wrong use, which never reaches the service."""
    url = shell.queue()
    gone = ("--queue-url", url + "-none")
    assert "AWS.SimpleQueueService.NonExistentQueue" in shell.refused("get-queue-url", "--queue-name", "no-such-queue")
    assert "NonExistentQueue" in shell.refused("send-message", *gone, "--message-body", "x")
    receipt = ("--queue-url", url, "--receipt-handle", "none")
    assert "ReceiptHandleIsInvalid" in shell.refused("delete-message", *receipt)
    late = ("--queue-url", url, "--message-body", "x", "--delay-seconds", "901")
    assert "InvalidParameterValue" in shell.refused("send-message", *late)
    assert shell.run("sqs", "send-message", "--queue-url", url).code == EXIT_WRONG_USE


def check_paginated_list(shell: Shell) -> None:
    """list-queues pages by itself, with --page-size, --max-items and --starting-token."""
    prefix = new_name("page")
    made = sorted(shell.sqs("create-queue", "--queue-name", f"{prefix}-{number}")["QueueUrl"] for number in range(5))
    listed = shell.sqs("list-queues", "--queue-name-prefix", prefix, "--page-size", "2")
    assert sorted(listed["QueueUrls"]) == made
    first = shell.sqs("list-queues", "--queue-name-prefix", prefix, "--page-size", "2", "--max-items", "3")
    assert len(first["QueueUrls"]) == 3
    rest = ("--page-size", "2", "--starting-token", first["NextToken"])
    second = shell.sqs("list-queues", "--queue-name-prefix", prefix, *rest)
    assert sorted(first["QueueUrls"] + second["QueueUrls"]) == made


def check_long_poll(shell: Shell) -> None:
    """receive-message --wait-time-seconds waits on an empty queue, and prints nothing with exit code 0."""
    url = shell.queue()
    started = time.monotonic()
    assert shell.sqs("receive-message", "--queue-url", url, "--wait-time-seconds", "2") is None
    assert time.monotonic() - started > 1.9


def check_output_formats(shell: Shell) -> None:
    """--query with --output text, as scripts take a URL out of an answer."""
    url = shell.queue()
    name = url.rpartition("/")[2]
    answer = shell.run("sqs", "get-queue-url", "--queue-name", name, "--query", "QueueUrl", "--output", "text")
    assert (answer.code, answer.output) == (0, url + "\n"), answer


def check_fifo(shell: Shell) -> None:
    """FIFO: create-queue, send-message with group and deduplication id, receive-message in order."""
    asked = ("--attributes", "FifoQueue=true,ContentBasedDeduplication=true")
    url = shell.sqs("create-queue", "--queue-name", new_name("cli") + ".fifo", *asked)["QueueUrl"]
    sent = [
        shell.sqs("send-message", "--queue-url", url, "--message-group-id", "g", "--message-body", body)
        for body in ("one", "two", "two")
    ]
    assert sent[1]["MessageId"] == sent[2]["MessageId"] and int(sent[0]["SequenceNumber"])
    options = ("--max-number-of-messages", "10", "--attribute-names", "All", "--wait-time-seconds", "5")
    messages = shell.sqs("receive-message", "--queue-url", url, *options)["Messages"]
    assert [(one["Body"], one["Attributes"]["MessageGroupId"]) for one in messages] == [("one", "g"), ("two", "g")]
    assert "MissingParameter" in shell.refused("send-message", "--queue-url", url, "--message-body", "x")


def check_dead_letters_and_move_task(shell: Shell) -> None:
    """A redrive policy, list-dead-letter-source-queues, start-message-move-task, list-message-move-tasks."""
    target = shell.queue()
    asked = ("--queue-url", target, "--attribute-names", "QueueArn")
    arn = shell.sqs("get-queue-attributes", *asked)["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    source = shell.queue("--attributes", json.dumps({"RedrivePolicy": policy, "VisibilityTimeout": "0"}))
    assert shell.sqs("list-dead-letter-source-queues", "--queue-url", target)["queueUrls"] == [source]
    shell.sqs("send-message", "--queue-url", source, "--message-body", "poison")
    receive = ("--queue-url", source, "--wait-time-seconds", "2")
    assert len(shell.sqs("receive-message", *receive)["Messages"]) == 1
    assert shell.sqs("receive-message", *receive) is None
    assert shell.sqs("start-message-move-task", "--source-arn", arn)["TaskHandle"]

    def status() -> str:
        return str(shell.sqs("list-message-move-tasks", "--source-arn", arn)["Results"][0]["Status"])

    wait_until(lambda: status() == "COMPLETED", "the move is over", timeout_s=60)
    assert [one["Body"] for one in shell.sqs("receive-message", *receive)["Messages"]] == ["poison"]


CHECKS: list[Check] = [
    check_queue_commands,
    check_attributes_and_tags,
    check_message_commands,
    check_batch_commands,
    check_purge,
    check_exit_codes,
    check_paginated_list,
    check_long_poll,
    check_output_formats,
    check_fifo,
    check_dead_letters_and_move_task,
]


def version() -> str:
    """`aws-cli/1.46.2 Python/3.11...` -> `1.46.2`."""
    answer = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)
    return (answer.stdout or answer.stderr).split()[0].partition("/")[2]


WAYS = {"option": "--endpoint-url", "variable": "AWS_ENDPOINT_URL_SQS"}


if __name__ == "__main__":
    chosen_way = sys.argv[1]
    name = f"AWS command line ({WAYS[chosen_way]})"
    sys.exit(run_checks(name, version(), CHECKS, lambda: Shell(chosen_way)))
