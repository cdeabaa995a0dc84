"""The number of a partition as receipts and tokens show it. Storage counts partitions through the installation, so
their numbers would tell each customer how many queues all of them make. Pure.

    key    = HMAC-SHA-256(receipt key, "partition-mask")
    masked = the number's eight bytes through a Feistel network of ten rounds, each
             left, right = right, left ^ first 32 bits of HMAC-SHA-256(key, round, 1 byte || right, 4 bytes)

Ten rounds, as in FF1 (NIST SP 800-38G): fewer can be told from chance by who sees enough numbers. It is a permutation:
two partitions never look alike, and one looks the same in every receipt and token of its installation. Both ways are
kept once found, so that a receipt pays for a look into a dictionary.

It hides and proves nothing: what is read is unmasked only after its MAC was found right.
"""

from __future__ import annotations

import hmac

from frontend.crypto.macs import MacKey
from frontend.limits import PARTITION_MASKS_KEPT_MAX
from storage_nodes.ids import PARTITION_ID_MAX

_ROUNDS = 10
_HALF_BITS = 32
_HALF_MASK = 2**_HALF_BITS - 1
_MASKED_MAX = 2**64 - 1


class PartitionMasks:
    """Of one installation. Who is in a hurry looks first into what is known."""

    __slots__ = ("_key", "known_masked", "known_partitions")

    def __init__(self, receipt_key: bytes) -> None:
        self._key = MacKey(hmac.digest(receipt_key, b"partition-mask", "sha256"))
        self.known_masked: dict[int, int] = {}
        self.known_partitions: dict[int, int] = {}

    def masked(self, partition: int) -> int:
        known = self.known_masked.get(partition)
        return self._note(partition, self._mask(partition))[1] if known is None else known

    def partition(self, masked: int) -> int:
        known = self.known_partitions.get(masked)
        return self._note(self._unmask(masked), masked)[0] if known is None else known

    def _note(self, partition: int, masked: int) -> tuple[int, int]:
        if len(self.known_masked) >= PARTITION_MASKS_KEPT_MAX:
            self.known_masked.clear()
            self.known_partitions.clear()
        self.known_masked[partition] = masked
        self.known_partitions[masked] = partition
        return partition, masked

    def _mask(self, partition: int) -> int:
        assert 0 <= partition <= PARTITION_ID_MAX
        left, right = partition >> _HALF_BITS, partition & _HALF_MASK
        for turn in range(_ROUNDS):
            left, right = right, left ^ self._round(turn, right)
        return left << _HALF_BITS | right

    def _unmask(self, masked: int) -> int:
        assert 0 <= masked <= _MASKED_MAX
        left, right = masked >> _HALF_BITS, masked & _HALF_MASK
        for turn in reversed(range(_ROUNDS)):
            left, right = right ^ self._round(turn, left), left
        return left << _HALF_BITS | right

    def _round(self, turn: int, half: int) -> int:
        return int.from_bytes(self._key.digest(bytes((turn,)) + half.to_bytes(4))[:4])
