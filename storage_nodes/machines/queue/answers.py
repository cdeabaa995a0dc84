"""Answers that several kinds of leaders give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from storage_nodes.machines.queue.effects import Answer, Refuse, Token
from storage_nodes.protocol.errors import ErrorCode


def answers_of(codes: list[ErrorCode], askers: Sequence[tuple[Token, int]]) -> Iterator[Answer]:
    """To each asker its own share of a command's codes."""
    at = 0
    for token, count in askers:
        if token is not None:
            yield Answer(token, codes[at : at + count])
        at += count


def overloaded(token: Token) -> Refuse:
    return Refuse(token, ErrorCode.OVERLOADED, "too many commands wait for their commit")
