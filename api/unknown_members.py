"""What a caller is told of a member that is not taken: which ones are, and which one may have been meant."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

from api.limits import MEMBER_CHARACTERS_TOLD_MAX, UNKNOWN_MEMBERS_TOLD_MAX

_ALIKE = 0.6


def unknown_members(given: Iterable[str], known: Collection[str]) -> dict[str, list[str]]:
    """Of each member that is given and not known, as an error of DRF: the first ones, by name."""
    unknown = sorted(set(given) - set(known))[:UNKNOWN_MEMBERS_TOLD_MAX]
    return {_shown(name): [_text(name, known)] for name in unknown}


def _text(name: str, known: Collection[str]) -> str:
    if not known:
        return "is not known here: this operation takes no members"
    meant = meant_member(name, known)
    begin = "the" if meant is None else f"is {meant} meant? The"
    return f"is not known here: {begin} members are {', '.join(known)}"


def meant_member(name: str, known: Iterable[str]) -> str | None:
    """The known member that is most like this one, in any spelling: VisibilityTimeout is visibility_timeout_seconds."""
    if len(name) > MEMBER_CHARACTERS_TOLD_MAX:
        return None  # the comparison takes the square of it
    plain = {_plain(one): one for one in known}
    given = _plain(name)
    longer = [one for one in plain if given and one.startswith(given)]
    near = longer[:1] or difflib.get_close_matches(given, plain, 1, _ALIKE)
    return plain[near[0]] if near else None


def _plain(name: str) -> str:
    return "".join(char for char in name.lower() if char.isalnum())


def _shown(name: str) -> str:
    """JSON lets half a surrogate pair into a text, which no answer can hold."""
    return name[:MEMBER_CHARACTERS_TOLD_MAX].encode(errors="backslashreplace").decode()
