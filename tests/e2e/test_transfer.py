"""`send` and `receive`: lines of any bytes go through the service and come back as they were."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from tests.support.installation import RunningInstallation

pytestmark = pytest.mark.slow


def round_trip(installation: RunningInstallation, lines: list[bytes]) -> bytes:
    name, _ = installation.new_queue()
    # The commands use the demo account: its queue of this name is made by `send`.
    installation.command("send", name, input_bytes=b"\n".join(lines) + b"\n")
    return installation.command("receive", name, "--idle", "3").stdout


def test_lines_with_odd_bytes_come_back_exactly(installation: RunningInstallation) -> None:
    chance = random.Random(1)
    odd = [b"", b"\r", b"\x00", b"\xff\xfe\x80", b"tab\tand space ", "größe \U0001f600 \uffff".encode(), b"x" * 200_000]
    odd += [bytes(chance.choices([byte for byte in range(256) if byte != 10], k=60)) for _ in range(150)]
    received = round_trip(installation, odd)
    assert received.endswith(b"\n")
    assert Counter(received.removesuffix(b"\n").split(b"\n")) == Counter(odd)


def test_receive_stops_at_its_maximum_and_leaves_the_rest(installation: RunningInstallation) -> None:
    name, _ = installation.new_queue()
    installation.command("send", name, input_bytes=b"".join(b"%d\n" % number for number in range(25)))
    first = installation.command("receive", name, "--max", "7").stdout.splitlines()
    rest = installation.command("receive", name, "--idle", "3").stdout.splitlines()
    assert len(first) == 7
    entries = [
        json.loads(one) for one in installation.command("audit", "export", "--account", "demo").stdout.splitlines()
    ]
    noted = [(one["action"], one["actor"], one["details"]) for one in entries if one["subject"] == f"queue:{name}"]
    assert [one for one in noted if one[0].startswith("messages.")] == [
        ("messages.send.begin", "operator", {}),
        ("messages.send.end", "operator", {"messages": 25}),
        ("messages.receive.begin", "operator", {}),
        ("messages.receive.end", "operator", {"messages": 7}),
        ("messages.receive.begin", "operator", {}),
        ("messages.receive.end", "operator", {"messages": 18}),
    ]
    assert sorted(map(int, [*first, *rest])) == list(range(25))


def test_receive_from_no_queue_says_so(installation: RunningInstallation) -> None:
    answer = installation.command("receive", "no-such-queue", check=False)
    assert answer.returncode == 1
    assert b"there is no queue 'no-such-queue'" in answer.stderr
