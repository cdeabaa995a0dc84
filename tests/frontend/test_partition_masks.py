"""Receipts and tokens show partitions masked: two queues' tell nothing of how many were made between them."""

from __future__ import annotations

import base64
import itertools
import random

import pytest

from frontend.crypto import partition_masks
from frontend.crypto.message_tokens import MessageToken, MessageTokens, ScheduleCursor, SearchCursor
from frontend.crypto.partition_masks import PartitionMasks
from frontend.crypto.receipts import Receipt, ReceiptMaker, make_schedule_id, read_schedule_id
from storage_nodes.ids import PARTITION_ID_MAX

KEY, OWNER = b"r" * 32, b"owner"
GOLDEN = [16082724122153216532, 17613631624516610692, 17373722456532251590]


def _shown(token: str) -> int:
    """What stands where the partition does."""
    return int.from_bytes(base64.urlsafe_b64decode(token)[1:9])


def test_every_receipt_and_token_shows_the_mask_and_reads_back_the_partition() -> None:
    receipts, tokens, masks = ReceiptMaker(KEY), MessageTokens(KEY), PartitionMasks(KEY)
    for partition in (0, 1, 7, 70_001, 2**40 + 1, PARTITION_ID_MAX):
        masked = masks.masked(partition)
        assert masked != partition and masks.partition(masked) == partition
        timed, untimed = (receipts.make(OWNER, partition, 5, 1, 2, received_s) for received_s in (1_700_000_000, 0))
        schedule_id = make_schedule_id(receipts, OWNER, partition, 5)
        message = tokens.make(OWNER, MessageToken(partition, 5))
        search = tokens.cursor(OWNER, SearchCursor(partition, 5, 9), b"search")
        listing = tokens.schedule_cursor(OWNER, ScheduleCursor(partition, 5, 9), b"listing")
        assert {_shown(one) for one in (timed, untimed, schedule_id, message, search, listing)} == {masked}
        # By a front end that has masked none of them before, too.
        for reads, opens in ((receipts, tokens), (ReceiptMaker(KEY), MessageTokens(KEY))):
            assert reads.read(OWNER, timed) == Receipt(partition, 5, 1, 2, 1_700_000_000)
            assert reads.read(OWNER, untimed) == Receipt(partition, 5, 1, 2)
            assert read_schedule_id(reads, OWNER, schedule_id).partition == partition
            assert opens.read(OWNER, message) == (partition, 5)
            assert opens.read_cursor(OWNER, search, b"search") == (partition, 5, 9)
            assert opens.read_schedule_cursor(OWNER, listing, b"listing") == (partition, 5, 9)


def test_masks_of_partitions_in_a_row_look_like_chance() -> None:
    masks = PartitionMasks(KEY)
    masked = [masks.masked(partition) for partition in range(1, 4_001)]
    assert len(set(masked)) == len(masked), "a permutation"
    steps = list(itertools.pairwise(masked))
    bits = [(one ^ other).bit_count() for one, other in steps]
    assert 31.8 < sum(bits) / len(bits) < 32.2, "each of 64 bits differs every second time"
    assert 0.45 < sum(one < other for one, other in steps) / len(steps) < 0.55, "they do not grow"
    assert len({(other - one) % 2**64 for one, other in steps}) == len(steps), "no step is repeated"
    for shift in (0, 16, 32, 48):
        # Of 4,000 draws of 65,536 about 3,880 differ.
        assert 3_830 < len({number >> shift & 0xFFFF for number in masked}) < 3_930


def test_masks_of_two_installations_differ_and_stay_what_they_are() -> None:
    """Were they to change, receipts of before an upgrade would name other partitions."""
    assert [PartitionMasks(KEY).masked(partition) for partition in (0, 1, 70_001)] == GOLDEN
    assert PartitionMasks(b"s" * 32).masked(1) != PartitionMasks(KEY).masked(1)


def test_masks_that_are_kept_are_bounded_and_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_masks, "PARTITION_MASKS_KEPT_MAX", 10)
    masks, drawn = PartitionMasks(KEY), random.Random(7)
    numbers = [drawn.randrange(PARTITION_ID_MAX + 1) for _ in range(100)]
    masked = [masks.masked(number) for number in numbers]
    assert [masks.partition(one) for one in masked] == numbers
    assert [masks.masked(number) for number in numbers] == masked
    assert len(masks.known_masked) <= 10 and len(masks.known_partitions) <= 10
