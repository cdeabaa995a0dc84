"""Parked groups of a FIFO queue: one whose message became a dead letter is held, so that what follows in it is not
worked on as if that message had been done.

    dead letter of the group moved  ->  parked  ->  unparked by a command, or the queue parks no more, or is purged

Part of the replicated state, folded with the command that removes the dead letter: no moment lies between. A parked
group takes messages and hands none out. With PARKED_GROUPS_MAX of them no more dead letters are moved: their groups are
locked by the dead letters themselves, so nothing overtakes and nothing grows.

In the checkpoint: flat (group, time_ms, offset of the dead letter)..., in the order in which they were parked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from storage_nodes.protocol.errors import ErrorCode


class Parked(NamedTuple):
    time_ms: int
    offset: int  # of the dead letter


class ParkedGroups(dict[bytes, Parked]):
    """By group, in the order in which they were parked."""

    def park(self, group: bytes, time_ms: int, offset: int) -> None:
        if group not in self:
            self[group] = Parked(time_ms, offset)

    def unpark(self, groups: list[bytes]) -> list[ErrorCode]:
        """One code each; no groups named = all of them."""
        if not groups:
            codes = [ErrorCode.OK] * len(self)
            self.clear()
            return codes
        return [ErrorCode.UNKNOWN_RECORD if self.pop(group, None) is None else ErrorCode.OK for group in groups]

    def page(self, after: bytes, count_max: int) -> list[tuple[bytes, Parked]]:
        """By name, from the first one behind `after` on."""
        return sorted((group, parked) for group, parked in self.items() if group > after)[:count_max]

    def pack(self) -> list[Any]:
        return [field for group, parked in self.items() for field in (group, *parked)]

    @classmethod
    def unpack(cls, flat: list[Any]) -> ParkedGroups:
        fields = iter(flat)
        return cls({group: Parked(*parked) for group, *parked in zip(fields, fields, fields, strict=True)})
