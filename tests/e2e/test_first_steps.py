"""What the README promises: up, the printed lines run as they are, status, a second up, nodes off and on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap

import pytest

from storage_nodes.ids import node_name
from tests.support.installation import RunningInstallation, wait_until

pytestmark = pytest.mark.slow


def test_printed_boto3_lines_run_as_they_are(installation: RunningInstallation) -> None:
    block = re.search(r"(    import boto3\n(?:    .*\n)+)", installation.printed)
    assert block, installation.printed
    program = textwrap.dedent(block.group(1))
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == "first message\n"


def test_printed_curl_lines_make_the_queue_and_send_a_message(installation: RunningInstallation) -> None:
    lines = [line.strip() for line in installation.printed.splitlines() if line.strip().startswith("curl ")]
    answers = [subprocess.run(line, shell=True, capture_output=True, text=True, timeout=60) for line in lines]
    assert [answer.returncode for answer in answers] == [0, 0], answers
    made, sent = (answer.stdout for answer in answers)
    assert '"name":"hello"' in made and '"messages"' in sent and "error" not in sent.lower(), (made, sent)
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
    stopped = installation.node_ids()[1]
    installation.command("node", "stop", node_name(stopped))
    try:
        row = next(row for row in installation.processes("storage-node") if row["id"] == stopped)
        assert row["health"] == "stopped" and row["pid"] is None
        sqs.send_message(QueueUrl=url, MessageBody="with two of three")
        messages = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=10)["Messages"]
        assert [message["Body"] for message in messages] == ["with two of three"]
    finally:
        installation.command("node", "start", str(stopped))
    installation.wait_healthy()


def test_dead_front_end_comes_back_by_itself(installation: RunningInstallation) -> None:
    killed = installation.kill("frontend")
    wait_until(lambda: installation.processes("frontend")[0]["pid"] not in (None, killed), interval_s=0.2)
    installation.wait_healthy()
    assert installation.sqs().list_queues() is not None


def test_demo_key_that_is_rotated_is_followed_and_one_that_is_revoked_is_told(
    installation: RunningInstallation,
) -> None:
    file = installation.data / "secrets" / "demo-key.json"
    old = json.loads(file.read_text())["access_key_id"]
    installation.command("keys", "rotate", old, "--grace", "0")
    installation.command("send", "after-rotation", input_bytes=b"one\n")
    new = json.loads(file.read_text())["access_key_id"]
    assert new != old and new in installation.up()
    installation.command("keys", "revoke", new)
    wait_until(lambda: installation.command("send", "after-rotation", input_bytes=b"", check=False).returncode == 1)
    told = installation.command("send", "after-rotation", input_bytes=b"", check=False).stderr.decode()
    assert f"{new} opens nothing" in told and f"rm {file}" in told
    assert f"{new} opens nothing" in installation.up() and "pstk_" not in installation.up()
    file.unlink()
    installation.printed = installation.up()
    assert installation.command("receive", "after-rotation", "--idle", "2").stdout == b"one\n"


def test_command_of_operators_hears_in_one_line_that_postgresql_hangs(installation: RunningInstallation) -> None:
    pid = installation.processes("postgres")[0]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        answer = installation.command("keys", "list", "--account", "demo", check=False)
    finally:
        os.kill(pid, signal.SIGCONT)
    installation.wait_healthy()
    assert answer.returncode == 1
    assert re.fullmatch(rb"penstock: the database does not answer: .*\. See \./penstock status\n", answer.stderr)
