"""What a message's value looks like: `client:counter:padding`."""

from __future__ import annotations

from storage_nodes.protocol.records import encode_body
from tests.blackbox.history import Value


def text_of(value: Value, size_bytes: int) -> str:
    head = f"{value[0]}:{value[1]}:"
    return head + "x" * (size_bytes - len(head))


def body_of(value: Value, size_bytes: int) -> bytes:
    return encode_body(text_of(value, size_bytes).encode())


def value_of(text: bytes | str) -> Value:
    """The inverse. Bytes that nobody here wrote become a value nobody sent, so that the checker flags them."""
    plain = text.decode(errors="replace") if isinstance(text, bytes) else text
    client, _, rest = plain.partition(":")
    counter, _, padding = rest.partition(":")
    if not counter.isdigit() or padding.strip("x"):
        return (f"altered {plain[:40]!r}", 0)
    return (client, int(counter))
