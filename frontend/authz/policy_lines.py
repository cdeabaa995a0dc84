"""On which line of its text a member of a policy stands, for people who edit policies. Pure.

Errors and remarks name a member by its path (`$.Statement[0].Effect`). The text is one that `policy_json.py` has read:
nothing is checked here.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right

from frontend.authz.policy_json import ROOT, member_path

_SPACE = re.compile(r"[ \t\n\r]*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_SCALAR = re.compile(r"[^\s,\]}]+")


def line_of(text: str, path: str) -> int:
    """From 1. Of a member that is not there, the line of what it would stand in; of a text that is not JSON, the line
    where that shows."""
    try:
        json.loads(text)
        lines = {} if path == ROOT else _MemberLines(text).by_path
    except json.JSONDecodeError as error:
        return error.lineno
    except RecursionError:
        return 1  # refused as too deep
    while path not in lines:
        cut = max(path.rfind("."), path.rfind("["))
        if cut <= 0:
            return 1
        path = path[:cut]
    return lines[path]


class _MemberLines:
    def __init__(self, text: str) -> None:
        self._text = text
        self._breaks = [match.start() for match in re.finditer("\n", text)]
        self.by_path: dict[str, int] = {}
        start = self._skip(0)
        self._note(ROOT, start)
        self._value(start, ROOT)

    def _value(self, at: int, path: str) -> int:
        """Where the value ends."""
        first = self._text[at]
        if first == "{":
            return self._object(at, path)
        if first == "[":
            return self._list(at, path)
        match = (_STRING if first == '"' else _SCALAR).match(self._text, at)
        assert match is not None
        return match.end()

    def _object(self, at: int, path: str) -> int:
        at = self._skip(at + 1)
        while self._text[at] != "}":
            name = _STRING.match(self._text, at)
            assert name is not None
            member = member_path(path, json.loads(name[0]))
            self._note(member, at)
            at = self._skip(self._value(self._skip(self._skip(name.end()) + 1), member))
            if self._text[at] == ",":
                at = self._skip(at + 1)
        return at + 1

    def _list(self, at: int, path: str) -> int:
        at, place = self._skip(at + 1), 0
        while self._text[at] != "]":
            item = f"{path}[{place}]"
            self._note(item, at)
            at, place = self._skip(self._value(at, item)), place + 1
            if self._text[at] == ",":
                at = self._skip(at + 1)
        return at + 1

    def _skip(self, at: int) -> int:
        match = _SPACE.match(self._text, at)
        assert match is not None
        return match.end()

    def _note(self, path: str, at: int) -> None:
        """Of a name that stands twice, the second: that one is refused."""
        self.by_path[path] = bisect_right(self._breaks, at) + 1
