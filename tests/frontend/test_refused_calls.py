"""Calls that a front end refuses are counted by kind, bounded, and told to the control plane."""

from __future__ import annotations

import json

import httpx2
import pytest

from frontend import refused_calls
from frontend.key_uses import tell_key_uses
from frontend.refused_calls import OTHERS, RefusedCall, RefusedCalls
from tests.frontend.test_key_policies import allow, restricted
from tests.support.frontend_plane import ACCOUNT, QUEUE_URL, Installation


def call(number: int, account_id: str = ACCOUNT) -> RefusedCall:
    return RefusedCall(account_id, "key", "sqs:SendMessage", f"arn:{number}")


def test_calls_of_one_kind_are_one_row() -> None:
    calls = RefusedCalls()
    for source in ("::1", "::2"):
        calls.note(call(1), source)
    calls.note(call(2), "::1")
    assert calls.take(1) == [(*call(1), "::2", 2)]
    assert calls.take(5) == [(*call(2), "::1", 1)]
    assert calls.take(5) == [] and not calls._kinds


def test_kinds_of_one_account_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_calls, "REFUSED_CALLS_PER_ACCOUNT_MAX", 2)
    monkeypatch.setattr(refused_calls, "REFUSED_CALLS_HELD_MAX", 4)
    calls = RefusedCalls()
    for number in range(10):
        calls.note(call(number), "")
    calls.note(call(1, "2" * 12), "")
    calls.note(call(2, "3" * 12), "")
    found = {row[:4]: row[5] for row in calls.take(10)}
    others = (ACCOUNT, OTHERS, OTHERS, OTHERS)
    assert found == {call(0): 1, call(1): 1, others: 8, call(1, "2" * 12): 1}


def test_name_that_is_too_long_is_cut() -> None:
    """The control plane refuses a report with one that does not fit, and the other rows with it."""
    calls = RefusedCalls()
    calls.note(call(1)._replace(resource="x" * 5_000), "y" * 100)
    ((*_, resource, source, _),) = calls.take(1)
    assert (resource, source) == ("x" * 200, "y" * 45)


async def test_refused_calls_are_told_once(front: Installation) -> None:
    front.control_answer = lambda request: httpx2.Response(200, json={})
    key = restricted(front, allow("sqs:SendMessage"))
    for _ in range(2):
        assert (await front.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL}, key=key)).status == 403
    await tell_key_uses(front.plane)
    await tell_key_uses(front.plane)
    (told,) = [one for one in front.control_calls if one.url.path == "/internal/refused-calls"]
    ((account_id, key_id, action, _, _, count),) = json.loads(told.content)["calls"]
    assert (account_id, key_id, action, count) == (ACCOUNT, key.access_key_id, "sqs:ReceiveMessage", 2)
    assert front.mac_is_right(told)
