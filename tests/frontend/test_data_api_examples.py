"""docs/rest_and_websocket.md: its examples run in their order, and its table names every path that there is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.data_routes import described_routes, description
from tests.support.frontend_plane import Installation
from tests.support.push_socket import Socket
from tests.support.settling import settle

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "rest_and_websocket.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# In an example: something that is different each time.
ANYTHING = "..."


def blocks() -> list[tuple[str, str]]:
    return BLOCK.findall(DOCUMENT.read_text())


def mismatch(shown: Any, real: Any, place: str = "") -> str:
    """Where what is shown is not there; "" where all of it is. Members beyond those shown may be there."""
    if shown == ANYTHING:
        return ""
    if isinstance(shown, dict) and isinstance(real, dict):
        for name, value in shown.items():
            if name not in real:
                return f"{place}/{name} is missing in {real}"
            if found := mismatch(value, real[name], f"{place}/{name}"):
                return found
        return ""
    if isinstance(shown, list) and isinstance(real, list) and len(shown) == len(real):
        pairs = enumerate(zip(shown, real, strict=True))
        return next(filter(None, (mismatch(one, other, f"{place}/{n}") for n, (one, other) in pairs)), "")
    return "" if shown == real else f"{place}: {shown!r} is shown, {real!r} is there"


async def exchange(front: Installation, lines: list[str]) -> None:
    socket = Socket(front, lines[0].split("/")[3], {})
    receipt = ""
    seen: list[Any] = []
    for line in lines[1:]:
        text = line[2:].replace("TOKEN", front.key.bearer_token).replace('"RECEIPT"', json.dumps(receipt))
        frame = json.loads(text)
        if line.startswith("> "):
            socket.say(frame)
            continue
        await settle(lambda: len(socket.frames) > len(seen))
        seen.append(socket.frames[len(seen)])
        assert not mismatch(frame, seen[-1]), mismatch(frame, seen[-1])
        receipt = seen[-1].get("receipt", receipt)
    assert socket.close_code is None and socket.frames == seen
    await socket.leave()


async def test_examples_of_the_reference_run_in_their_order(front: Installation) -> None:
    front.add_queue("line", (2,))
    receipt, answer, ran = "", None, 0
    for language, text in blocks():
        first, *rest = text.splitlines()
        if language == "json":
            assert not mismatch(json.loads(text), answer), mismatch(json.loads(text), answer)
        elif first.startswith("ws "):
            await exchange(front, text.splitlines())
        else:
            method, path = first.split(" ")
            body = " ".join(rest).replace('"RECEIPT"', json.dumps(receipt))
            answer = (await front.rest(path, body.encode(), method=method)).json
            if path.endswith("/receive"):
                receipt = answer["messages"][0]["receipt"]
        ran += 1
    assert ran > 12


def paths_of_the_code() -> set[str]:
    return {f"{route.method} {path}" for path, route in described_routes().items()}


def test_committed_description_of_the_data_routes_is_fresh() -> None:
    """If this fails: python -m tests.support.data_routes"""
    assert json.loads((ROOT / "api" / "data_paths.json").read_text()) == description()


def test_openapi_has_every_data_route_with_its_body() -> None:
    document = json.loads((ROOT / "docs" / "openapi.json").read_text())
    for path, route in described_routes().items():
        operation = document["paths"][path][route.method.lower()]
        assert ("requestBody" in operation) == (route.method == "POST"), path
        assert "default" in operation["responses"], "every call may answer with a problem"
    members = document["components"]["schemas"]["SendJson"]["properties"]
    assert {"body", "messages", "group", "deduplication_id", "acks"} <= members.keys()


def test_table_names_every_path_and_no_other() -> None:
    assert set(re.findall(r"^\| `((?:GET|POST) [^`]+)`", DOCUMENT.read_text(), re.MULTILINE)) == paths_of_the_code()


@pytest.mark.parametrize(
    ("shown", "real"), [({"a": 1}, {"b": 1}), ([1], [1, 2]), ({"a": [{"b": 1}]}, {"a": [{"b": 2}]})]
)
def test_example_that_shows_something_else_is_found(shown: Any, real: Any) -> None:
    assert mismatch(shown, real)
    assert not mismatch(real, real)
