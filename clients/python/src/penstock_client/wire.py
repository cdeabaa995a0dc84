"""How frames are written: msgpack where msgspec is installed, JSON by the standard library otherwise."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple


class Form(NamedTuple):
    subprotocol: str
    encode: Callable[[Any], bytes | str]
    decode: Callable[[Any], Any]


def _write_json(frame: Any) -> str:
    return json.dumps(frame, ensure_ascii=False, separators=(",", ":"))


JSON = Form("penstock.bulk.json", _write_json, json.loads)


def best_form() -> Form:
    try:
        import msgspec.msgpack as msgpack
    except ImportError:
        return JSON
    return Form("penstock.bulk.msgpack", msgpack.Encoder().encode, msgpack.Decoder().decode)


def size_bytes(frame: bytes | str) -> int:
    return len(frame.encode()) if isinstance(frame, str) else len(frame)


def frame_of(kind: str, **members: Any) -> dict[str, Any]:
    return {"type": kind, **members}
