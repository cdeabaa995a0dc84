"""Which entries of the audit trail a request asks for: the same words on REST and on the page."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from api.audit.selectors import OUTCOMES, AuditQuery
from api.clock import WRITTEN_TIME, parse_time

_TEXTS = ("action", "subject", "actor", "outcome")
_TIMES = ("since", "until")
ASKED = (*_TEXTS, *_TIMES)


class WrongQuery(ValueError):
    """`name` is the part that is wrong."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


def query_of(given: Mapping[str, str]) -> AuditQuery:
    """Parts that are absent or empty are left open. Raises WrongQuery."""
    texts = {name: given.get(name, "") for name in _TEXTS}
    if any("\0" in text for text in texts.values()):
        raise WrongQuery(next(name for name in _TEXTS if "\0" in texts[name]), "holds a character that is not allowed")
    if texts["outcome"] not in ("", *OUTCOMES):
        raise WrongQuery("outcome", f"must be one of {', '.join(OUTCOMES)}")
    return AuditQuery(**texts, since=_time(given, "since"), until=_time(given, "until"))


def _time(given: Mapping[str, str], name: str) -> datetime | None:
    text = given.get(name, "").strip()
    if not text:
        return None
    try:
        return parse_time(text)
    except ValueError:
        raise WrongQuery(name, f"must be {WRITTEN_TIME}") from None
