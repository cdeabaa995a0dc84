"""What the README promises: up, the printed lines run as they are, status, a second up, nodes off and on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap

import pytest

from tests.support.installation import RunningInstallation, wait_until

pytestmark = pytest.mark.slow


def test_printed_boto3_lines_run_as_they_are(installation: RunningInstallation) -> None:
    block = re.search(r"(    import boto3\n(?:    .*\n)+)", installation.printed)
    assert block, installation.printed
    program = textwrap.dedent(block.group(1))
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == "first message\n"


def test_printed_curl_line_sends_a_message(installation: RunningInstallation) -> None:
    installation.command("send", "hello", input_bytes=b"")  # makes the queue of the printed lines
    line = next(line.strip() for line in installation.printed.splitlines() if line.strip().startswith("curl "))
    answer = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer.stderr
    assert '"messages"' in answer.stdout and "error" not in answer.stdout.lower(), answer.stdout
    received = installation.command("receive", "hello", "--max", "1", "--idle", "10").stdout
    assert received == b"first message\n"


def test_status_names_every_process_and_what_nodes_lead(installation: RunningInstallation) -> None:
    installation.new_queue()
    status = json.loads(installation.command("status", "--json").stdout)
    roles = {row["role"] for row in status["processes"]}
    assert roles >= {
        "storage-node",
        "metadata",
        "control-plane",
        "frontend",
        "worker",
        "usage-worker",
        "schedule",
        "supervisor",
    }
    assert len([row for row in status["processes"] if row["role"] == "storage-node"]) == installation.node_count
    assert all(row["pid"] for row in status["processes"])
    led = [partition for node in status["nodes"] for partition in node["leads"]]
    assert sorted(led) == sorted(row["partition"] for row in status["partitions"] if row["leader"])
    assert all(len(row["replicas"]) == 3 for row in status["partitions"])


def test_second_up_finds_the_first(installation: RunningInstallation) -> None:
    supervisor = installation.processes("supervisor")[0]["pid"]
    printed = installation.printed
    again = installation.up()
    assert installation.processes("supervisor")[0]["pid"] == supervisor
    key = re.search(r"AKPS[A-Z2-7]{16}", printed)
    assert key and key.group() in again, "the demo key must stay the same"


def test_stopped_node_stays_down_and_queues_go_on(installation: RunningInstallation) -> None:
    _, url = installation.new_queue()
    sqs = installation.sqs()
    installation.command("node", "stop", "2")
    try:
        row = next(row for row in installation.processes("storage-node") if row["id"] == 2)
        assert row["health"] == "stopped" and row["pid"] is None
        sqs.send_message(QueueUrl=url, MessageBody="with two of three")
        messages = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=10)["Messages"]
        assert [message["Body"] for message in messages] == ["with two of three"]
    finally:
        installation.command("node", "start", "2")
    installation.wait_healthy()


def test_dead_front_end_comes_back_by_itself(installation: RunningInstallation) -> None:
    killed = installation.kill("frontend")
    wait_until(lambda: installation.processes("frontend")[0]["pid"] not in (None, killed), interval_s=0.2)
    installation.wait_healthy()
    assert installation.sqs().list_queues() is not None
