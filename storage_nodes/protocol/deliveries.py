"""Delivery numbers: which hand-out of a message it is, and how many of them count.

    number = releases * 2**20 + receives

    receives   hand-outs that count towards `max_receives`; each one adds 1
    releases   hand-outs that were taken back without counting: each one takes 1 off `receives` and adds 1 here

So the number of a message grows with everything that happens to it, no two hand-outs have the same one (a receipt
names it), and what counts is read off it. Numbers fit 32 bits, as receipts hold them: a message whose releases reached
RELEASES_MAX counts every further one. More than a million receives (never with a `max_receives`) run over into
`releases`: the count then begins anew, the numbers go on growing.
"""

from __future__ import annotations

RELEASES_MAX = 4_000
_RECEIVES_BITS = 20
RECEIVES_MASK = (1 << _RECEIVES_BITS) - 1

assert (RELEASES_MAX << _RECEIVES_BITS) < 2**32 - (64 << _RECEIVES_BITS), "room for receives that run over"


def receives_of(number: int) -> int:
    """How often the message was received, as far as that counts."""
    return number & RECEIVES_MASK


def released(number: int) -> int:
    """The number after the hand-out `number` was taken back without counting."""
    if number >> _RECEIVES_BITS >= RELEASES_MAX:
        return number
    return number + RECEIVES_MASK if number & RECEIVES_MASK else number + RECEIVES_MASK + 1
