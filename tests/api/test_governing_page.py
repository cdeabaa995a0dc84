"""The calls of docs/governing.md are operations of OpenAPI, with members that these take."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
OPENAPI = json.loads((ROOT / "docs" / "openapi.json").read_text())
_HEAD = r"""curl -sS -H "[^"]*"(?:[^"]*\)")?(?: -X (\w+))? "?\$E([^ "?\n]+)[^ \n]*"""
_BODY = r"""( \\\n *)?(?: *--json '(.*?)'(?= >|\n))?"""
_CALL = re.compile(_HEAD + _BODY, re.DOTALL)


def calls() -> list[tuple[str, str, dict[str, Any]]]:
    """(method, path, body) of each curl of the page."""
    page = (ROOT / "docs" / "governing.md").read_text()
    found = []
    for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL):
        for method, path, _, body in _CALL.findall(block):
            content = json.loads(re.sub(r"'\$\w+'", "1", body)) if body else {}
            found.append((method or ("POST" if body else "GET"), path, content))
    assert len(found) == page.count("curl -sS"), "every curl of the page is read"
    return found


def test_calls_of_the_page_are_operations_with_their_members() -> None:
    for method, path, body in calls():
        templates = [one for one in OPENAPI["paths"] if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", one), path)]
        call = next(
            OPENAPI["paths"][one][method.lower()] for one in templates if method.lower() in OPENAPI["paths"][one]
        )
        schema = members_of(call)
        assert set(body) <= set(schema), f"{call['operationId']}: {set(body) - set(schema)}"


def members_of(call: dict[str, Any]) -> dict[str, Any]:
    if "requestBody" not in call:
        return {}
    schema = call["requestBody"]["content"]["application/json"]["schema"]
    named: dict[str, Any] = OPENAPI["components"]["schemas"][schema["$ref"].split("/")[-1]]
    return named["properties"]
