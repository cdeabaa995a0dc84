"""Tags of messages and filters by them. Pure.

A message has the tag that its attribute `Penstock.Tag` names (a String; over REST the member `tag` is short for it).
Storage keeps the tag beside the sealed message, in the clear, because that is what receives are filtered by.

Surface: other planes may import this module.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from frontend.errors import RequestError, invalid
from storage_nodes.limits import TAG_BYTES_MAX, TAGS_PER_ACQUIRE_MAX
from storage_nodes.protocol.records import HEADER_TAG

TAG_ATTRIBUTE = "Penstock.Tag"
# Printable ASCII without the space, and without what separates tags in a filter.
_TAG = re.compile(rf"[!-{{}}~]{{1,{TAG_BYTES_MAX}}}", re.ASCII)


def tag_of(attributes: Mapping[str, tuple[str, bytes]]) -> bytes | None:
    """The tag of a message with these attributes. Raises RequestError."""
    given = attributes.get(TAG_ATTRIBUTE)
    if given is None:
        return None
    data_type, value = given
    if data_type != "String":
        raise invalid(f"The message attribute '{TAG_ATTRIBUTE}' must have the type String.")
    return check_tag(value.decode())


def tag_headers(attributes: Mapping[str, tuple[str, bytes]]) -> tuple[tuple[bytes, bytes], ...]:
    """The clear header of a message with these attributes. Raises RequestError."""
    tag = tag_of(attributes)
    return () if tag is None else ((HEADER_TAG, tag),)


def check_tag(tag: str) -> bytes:
    if _TAG.fullmatch(tag) is None:
        raise invalid(f"A tag has 1 to {TAG_BYTES_MAX} printable ASCII characters other than space and |.")
    return tag.encode()


def check_filter(tags: Sequence[str] | None, fifo: bool = False) -> tuple[bytes, ...]:
    """The distinct tags that a receive asks for. Raises RequestError."""
    if not tags:
        return ()
    if fifo:
        raise filter_on_fifo()
    if len(tags) > TAGS_PER_ACQUIRE_MAX:
        raise invalid(f"A filter names at most {TAGS_PER_ACQUIRE_MAX} tags.")
    return tuple(dict.fromkeys(check_tag(tag) for tag in tags))


def filter_finds_nothing(reason: str) -> RequestError:
    """Told rather than answered with nothing: asking again does not help while things are so."""
    return RequestError("OverLimit", f"The filter finds nothing now: {reason}.")


def filter_on_fifo() -> RequestError:
    return invalid("A FIFO queue hands out its messages in order: receives from it cannot be filtered by tags.")
