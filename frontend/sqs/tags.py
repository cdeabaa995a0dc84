"""Tags of messages and filters by them. Pure.

A message has the tag that its attribute `Penstock.Tag` names (a String; over REST the member `tag` is short for it).
Storage keeps the tag beside the sealed message, in the clear, because that is what receives are filtered by.

SQS has no word for a filter, so it stands among the names of message attributes a receive asks for, which no client
checks: `Penstock.Tag=red|blue` takes only messages with one of these tags, and asks for the attribute as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from frontend.errors import Refusal, invalid
from storage_nodes.limits import TAG_BYTES_MAX, TAGS_PER_ACQUIRE_MAX
from storage_nodes.protocol.records import HEADER_TAG

TAG_ATTRIBUTE = "Penstock.Tag"
_FILTER_START = f"{TAG_ATTRIBUTE}="
# Printable ASCII without the space, and without what separates tags in a filter.
_TAG = re.compile(rf"[!-{{}}~]{{1,{TAG_BYTES_MAX}}}", re.ASCII)


def tag_headers(attributes: Mapping[str, tuple[str, bytes]]) -> tuple[tuple[bytes, bytes], ...]:
    """The clear header of a message with these attributes. Raises Refusal."""
    given = attributes.get(TAG_ATTRIBUTE)
    if given is None:
        return ()
    data_type, value = given
    if data_type != "String":
        raise invalid(f"The message attribute '{TAG_ATTRIBUTE}' must have the type String.")
    return ((HEADER_TAG, check_tag(value.decode())),)


def check_tag(tag: str) -> bytes:
    if _TAG.fullmatch(tag) is None:
        raise invalid(f"A tag has 1 to {TAG_BYTES_MAX} printable ASCII characters other than space and |.")
    return tag.encode()


def check_filter(tags: Sequence[str] | None, fifo: bool = False) -> tuple[bytes, ...]:
    """The distinct tags that a receive asks for. Raises Refusal."""
    if not tags:
        return ()
    if fifo:
        raise filter_on_fifo()
    if len(tags) > TAGS_PER_ACQUIRE_MAX:
        raise invalid(f"A filter names at most {TAGS_PER_ACQUIRE_MAX} tags.")
    return tuple(dict.fromkeys(check_tag(tag) for tag in tags))


def split_filters(names: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """(names of attributes, tags of the filters among them) of what a receive asks for."""
    plain: list[str] = []
    tags: list[str] = []
    for name in names or ():
        if name.startswith(_FILTER_START):
            tags += name[len(_FILTER_START) :].split("|")
            plain.append(TAG_ATTRIBUTE)
        else:
            plain.append(name)
    return plain, tags


def filter_finds_nothing(reason: str) -> Refusal:
    """Told rather than answered with nothing: asking again does not help while things are so."""
    return Refusal("OverLimit", f"The filter finds nothing now: {reason}.")


def filter_on_fifo() -> Refusal:
    return invalid("A FIFO queue hands out its messages in order: receives from it cannot be filtered by tags.")
