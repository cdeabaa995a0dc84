"""kill -9 while messages flow: what was acknowledged is delivered, what was deleted stays deleted."""

from __future__ import annotations

import threading
import time

import pytest

from tests.e2e.consumers import BATCH, Boto3Way, Collected, in_parallel, receive_all, send_all
from tests.support.installation import RunningInstallation
from tests.support.loghub import log_lines

pytestmark = pytest.mark.slow
KILLED_RUN_LINES = 3_000
RESTART_LINES = 2_000
# A consumer that held messages at the moment of the kill gives them back when their lease ends.
VISIBILITY_S = 5
IDLE_S = 20.0


def queue_with_short_leases(installation: RunningInstallation) -> Boto3Way:
    return Boto3Way(installation, *installation.new_queue(VisibilityTimeout=str(VISIBILITY_S)))


def send_through_failures(way: Boto3Way, lines: tuple[bytes, ...], acknowledged: dict[str, bytes]) -> None:
    """Send each batch until it is acknowledged: an error means unknown, and is sent again."""
    for start in range(0, len(lines), BATCH):
        batch = lines[start : start + BATCH]
        for _ in range(40):
            try:
                acknowledged |= dict(zip(way.send(batch), batch, strict=True))
                break
            except Exception:  # any refusal of a cluster without a leader; the next attempt decides
                time.sleep(0.25)
        else:
            raise AssertionError(f"lines from {start} were never acknowledged")


def test_leader_killed_under_load_loses_nothing(installation: RunningInstallation) -> None:
    lines = log_lines()[:KILLED_RUN_LINES]
    way = queue_with_short_leases(installation)
    way.send([b"which partition is it"])
    before = {row["partition"]: row for row in installation.status()["partitions"]}
    newest = before[max(before)]
    acknowledged: dict[str, bytes] = {}
    collected = Collected(KILLED_RUN_LINES + 1)
    sent_all = threading.Event()

    def produce(_: int) -> None:
        send_through_failures(way, lines, acknowledged)
        sent_all.set()

    def consume(_: int) -> None:
        while not (sent_all.is_set() and (set(collected.bodies) >= set(acknowledged) or collected.done(IDLE_S))):
            try:
                way.receive(collected.add)
            except Exception:  # as the producer: a moment without a leader
                time.sleep(0.25)

    def kill(_: int) -> None:
        while len(acknowledged) < KILLED_RUN_LINES // 4:
            time.sleep(0.01)
        installation.kill("storage-node", newest["leader"])

    in_parallel(lambda work: work[0](work[1]), [(produce, 0), (consume, 1), (consume, 2), (kill, 3)])
    missing = set(acknowledged) - set(collected.bodies)
    assert not missing, f"{len(missing)} of {len(acknowledged)} acknowledged messages never came"
    assert all(collected.bodies[message_id] == body for message_id, body in acknowledged.items())
    assert {row["partition"]: row["epoch"] for row in installation.status()["partitions"]}[newest["partition"]] > (
        newest["epoch"]
    ), "the kill hit no leader: the test proved nothing"
    installation.wait_healthy()


def test_everything_killed_at_once_comes_back_with_all(installation: RunningInstallation) -> None:
    lines = log_lines()[-RESTART_LINES:]
    way = queue_with_short_leases(installation)
    acknowledged = send_all([way], lines)
    before = Collected(RESTART_LINES)
    for _ in range(RESTART_LINES // BATCH // 2):
        way.receive(before.add)
    installation.kill_everything()
    installation.up()
    installation.wait_healthy()
    after = receive_all([way, way], RESTART_LINES - len(before.bodies))
    again = set(before.bodies) & set(after.bodies)
    assert not again, f"{len(again)} deleted messages came back"
    assert {**before.bodies, **after.bodies} == acknowledged
