"""Entity tags of what can be read by itself and changed: one form, one way to compare.

    ETag: "5f1d...e2"         of what stands in the answer
    ETag: "5f1d...e2.9c04"    the same, of something with members that change by themselves (a state, a last use)

A tag is strong: another answer has another tag. The part before the dot is of the members that are written. `If-Match`
asks about that part alone, because a change must not be refused for what its caller could not have overwritten.
`If-None-Match` asks about all of it. Pure.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from rest_framework.exceptions import APIException, ValidationError
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request

from api import limits

IF_MATCH, IF_NONE_MATCH = "If-Match", "If-None-Match"
_WRITTEN_CHARACTERS, _UNWRITTEN_CHARACTERS = 24, 8
_TAG = r'[ \t]*(W/)?"([!#-~]*)"[ \t]*'
_TAGS = re.compile(f"{_TAG}(?:,{_TAG})*", re.ASCII)
_ONE_TAG = re.compile(_TAG, re.ASCII)


class PreconditionFailed(APIException):
    """In the form that `api/problems.py` writes."""

    status_code = 412
    default_code = "precondition-failed"
    default_detail = "This has changed since it was read, or is there already: read it again."


class AskedTag(NamedTuple):
    text: str
    is_weak: bool


class AskedTags(NamedTuple):
    """`*` is any."""

    is_any: bool
    tags: tuple[AskedTag, ...] = ()

    def match(self, tag: str) -> bool:
        """For If-Match: the strong comparison, in which a weak tag is like no other."""
        written = _written(tag)
        return self.is_any or any(not one.is_weak and _written(f'"{one.text}"') == written for one in self.tags)

    def name(self, tag: str) -> bool:
        """For If-None-Match: the weak comparison."""
        return self.is_any or any(f'"{one.text}"' == tag for one in self.tags)


def tags_asked(request: Request, header: str) -> AskedTags | None:
    """None of a request without the header. Raises ValidationError, which names it."""
    given = request.headers.get(header)
    if given is None:
        return None
    if given.strip(" \t") == "*":
        return AskedTags(True)
    # The whole first: what is none takes time by the square of its spaces to be looked through for tags.
    pairs = _ONE_TAG.findall(given) if _TAGS.fullmatch(given) else []
    found = [AskedTag(text, bool(weak)) for weak, text in pairs]
    if not 1 <= len(found) <= limits.ETAGS_ASKED_MAX:
        text = f'must be * or up to {limits.ETAGS_ASKED_MAX} ETags in quotes: "..."'
        raise ValidationError({header: text})
    return AskedTags(False, tuple(found))


def entity_tag(shown: Mapping[str, Any], unwritten: frozenset[str] = frozenset()) -> str:
    """Of an answer; `unwritten` are its members that no request writes."""
    written = {name: value for name, value in shown.items() if name not in unwritten}
    tag = _hash(written)[:_WRITTEN_CHARACTERS]
    if unwritten:
        tag += "." + _hash({name: shown.get(name) for name in unwritten})[:_UNWRITTEN_CHARACTERS]
    return f'"{tag}"'


def _written(tag: str) -> str:
    return tag.strip('"').partition(".")[0]


def _hash(members: Mapping[str, Any]) -> str:
    ordered = {name: members[name] for name in sorted(members)}
    return hashlib.sha256(JSONRenderer().render(ordered)).hexdigest()
