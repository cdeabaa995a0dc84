"""Requests that nobody would send, to every operation of the control plane: an answer that is JSON or a problem, and
never a 500. The trial `fuzz` asks a whole installation (docs/reliability.md); this is the same from inside, with the
place where it broke."""

from __future__ import annotations

import os
import traceback
from collections import Counter
from typing import Any

import pytest
from django.test import Client

from tests.blackbox.fuzz_inputs import JSON, Asked, Inputs
from tests.blackbox.fuzzing import why_odd
from tests.blackbox.raw_http import Answer
from tests.support.control_plane import Caller, new_caller
from tests.support.scripted_storage import ScriptedStorage

pytestmark = pytest.mark.django_db(transaction=True)
REQUESTS = int(os.environ.get("PENSTOCK_FUZZED_REQUESTS", "400"))
SEED = int(os.environ.get("PENSTOCK_FUZZED_SEED", "1"))


def ask(caller: Caller, asked: Asked) -> Any:
    """As a front end passes it on. What Django lets through as an exception comes out."""
    principal = caller.headers(asked.method, asked.target, asked.body)
    headers = {name: value for name, value in asked.headers if name != "content-type"}
    kind = dict(asked.headers)["content-type"]
    return Client().generic(asked.method, asked.target, asked.body, kind, headers={**headers, **principal})


def test_request_of_any_kind_is_answered(storage: ScriptedStorage) -> None:
    owner, inputs = new_caller("fuzzed"), Inputs(SEED)
    inputs.kept_out = {owner.access_key_id}
    for name in ("orders", "dead", "line.fifo"):
        assert owner.request("POST", "/v1/queues", {"name": name}).status_code == 201
    statuses: Counter[int] = Counter()
    wrong: list[str] = []
    while sum(statuses.values()) < REQUESTS:
        asked = inputs.next()
        if asked.plane not in ("management", "people"):
            continue
        told = f"{asked.operation}: {asked.method} {asked.target[:200]} {asked.body[:300]!r}"
        try:
            found = ask(owner, asked)
        except Exception:
            statuses[500] += 1
            wrong.append(f"{told}\n{traceback.format_exc(limit=-3)}")
            continue
        statuses[found.status_code] += 1
        headers = {name.lower(): text for name, text in found.headers.items()}
        body = b"".join(found.streaming_content) if found.streaming else found.content
        if found.status_code >= 500 and found.status_code != 503:
            wrong.append(f"{told}: {found.status_code} {body[:200]!r}")
        elif why := why_odd(asked, Answer(found.status_code, headers, body, 0.0, 0.0)):
            wrong.append(f"{told}: {found.status_code} {why}")
        if found.status_code < 300 and body and headers["content-type"] == JSON:
            inputs.remember(found.json())
    assert not wrong, "\n\n".join(wrong)
    assert {200, 400, 404} <= statuses.keys() and statuses[200] + statuses[201] > REQUESTS / 20, statuses
