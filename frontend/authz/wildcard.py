"""Whether a text matches a pattern, in time linear in both. Pure.

A pattern is cut at its runs (`*`). The first piece must stand at the start and the last at the end; each one between is
looked for from where the one before it ended, and the leftmost place is always good enough: nothing is tried twice.
A piece without `?` is found by `str.find`. One with `?` is found with one bit per character of the piece (Shift-And):
one step per character of the text, however often the piece nearly fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from frontend.authz.policy_limits import PATTERNS_KEPT_MAX
from frontend.authz.template import Token, Variable, Wild

Matcher = Callable[[str], bool]


def compile_pattern(tokens: Sequence[Token]) -> Matcher:
    """The tokens are merged and hold no variable."""
    pieces: list[list[str | Wild]] = [[]]
    for token in tokens:
        assert not isinstance(token, Variable)
        if token is Wild.RUN:
            pieces.append([])
        else:
            pieces[-1].append(token)
    if len(pieces) == 1:
        return _whole(_Piece(pieces[0]))
    first, *between, last = (_Piece(piece) for piece in pieces)
    if not between and not last.length:
        return _beginning(first) if first.length else _anything
    return _runs(first, [piece for piece in between if piece.length], last)


@lru_cache(PATTERNS_KEPT_MAX)
def kept_pattern(tokens: tuple[Token, ...]) -> Matcher:
    """For tokens that take values of a request, which come again."""
    return compile_pattern(tokens)


class _Piece:
    """Texts and single wildcards, without a run."""

    __slots__ = ("_accept", "_any", "_masks", "_texts", "find", "length")

    def __init__(self, parts: Sequence[str | Wild]) -> None:
        self._texts: list[tuple[int, str]] = []
        self.length = 0
        for part in parts:
            if isinstance(part, str):
                self._texts.append((self.length, part))
                self.length += len(part)
            else:
                self.length += 1
        self.find: Callable[[str, int, int], int] = self._find_text
        if len(parts) != 1 or not isinstance(parts[0], str):
            self._prepare_masks()
            self.find = self._find_masked

    @property
    def only_text(self) -> str | None:
        """The whole piece, where it has no wildcard."""
        if not self.length:
            return ""
        text = self._texts[0][1] if self._texts else ""
        return text if len(text) == self.length else None

    def stands_at(self, text: str, start: int) -> bool:
        """`text` is long enough for it."""
        return all(text.startswith(part, start + offset) for offset, part in self._texts)

    def _find_text(self, text: str, start: int, end: int) -> int:
        return text.find(self._texts[0][1], start, end)

    def _find_masked(self, text: str, start: int, end: int) -> int:
        state = 0
        masks, any_character, accept = self._masks, self._any, self._accept
        for at in range(start, end):
            state = (state << 1 | 1) & masks.get(text[at], any_character)
            if state & accept:
                return at - self.length + 1
        return -1

    def _prepare_masks(self) -> None:
        """Bit n of a character's mask: it may be the n-th of the piece."""
        own: dict[str, int] = {}
        taken = 0
        for offset, part in self._texts:
            for at, character in enumerate(part, offset):
                own[character] = own.get(character, 0) | 1 << at
                taken |= 1 << at
        self._any = (1 << self.length) - 1 & ~taken
        self._masks = {character: bits | self._any for character, bits in own.items()}
        self._accept = 1 << self.length >> 1


def _anything(text: str) -> bool:
    return True


def _beginning(piece: _Piece) -> Matcher:
    def matches(text: str) -> bool:
        return len(text) >= piece.length and piece.stands_at(text, 0)

    text = piece.only_text
    return matches if text is None else lambda value: value.startswith(text)


def _whole(piece: _Piece) -> Matcher:
    def matches(text: str) -> bool:
        return len(text) == piece.length and piece.stands_at(text, 0)

    text = piece.only_text
    return matches if text is None else lambda value: value == text


def _runs(first: _Piece, between: Sequence[_Piece], last: _Piece) -> Matcher:
    length_min = first.length + last.length + sum(piece.length for piece in between)

    def matches(text: str) -> bool:
        if len(text) < length_min or not first.stands_at(text, 0):
            return False
        end = len(text) - last.length
        if not last.stands_at(text, end):
            return False
        position = first.length
        for piece in between:
            position = piece.find(text, position, end)
            if position < 0:
                return False
            position += piece.length
        return True

    return matches
