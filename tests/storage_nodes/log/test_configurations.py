"""The group's configurations in a partition's log: found again after a flush, a cut, an install and a restart (R1)."""

from __future__ import annotations

import random

import pytest

from storage_nodes.log.manifest import PartitionRow
from storage_nodes.log.node_log import ImportedLog, NodeLog, PartitionLog
from storage_nodes.log.record_batch import BatchError, build_batch, configuration_body, read_configuration, read_header
from storage_nodes.protocol.configuration import (
    Configuration,
    ConfigurationEntry,
    ConfigurationError,
    decode_configuration,
    encode_configuration,
)
from storage_nodes.protocol.records import encode_body
from tests.storage_nodes.log.faulty_disk import FaultyDisk
from tests.storage_nodes.log.writing import SMALL, append, commit, facts_of, fill_until_flush_due, flush, none_live

FOUR = Configuration((1, 2, 3), (4,))
PROMOTED = Configuration((1, 2, 3, 4))


def opened() -> tuple[NodeLog, FaultyDisk]:
    disk = FaultyDisk(random.Random(1))
    log = NodeLog.open("/node", SMALL, disk)
    log.create(1, 1, "queue-1")
    commit(log)
    return log, disk


def configure(log: NodeLog, configuration: Configuration, epoch: int = 1) -> ConfigurationEntry:
    base = log.partitions[1].log_end
    batch = build_batch(base, epoch, 5, [configuration_body(configuration)], control=True, configuration=True)
    log.append(1, batch)
    return ConfigurationEntry(base + 1, configuration)


def again(disk: FaultyDisk) -> PartitionLog:
    return NodeLog.open("/node", SMALL, disk.after_power_loss()).partitions[1]


def test_configuration_survives_its_encoding() -> None:
    assert decode_configuration(encode_configuration(FOUR)) == FOUR


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"\x93\x02\x91\x01\x90", b"\x93\x01\x90\x90", b"\x93\x01\x91\x01\x91\x01"]
)
def test_configuration_that_is_damaged_or_of_another_version_is_refused(data: bytes) -> None:
    with pytest.raises(ConfigurationError):
        decode_configuration(data)


def test_batch_that_says_it_is_a_configuration_and_is_none_is_refused() -> None:
    with pytest.raises(BatchError):
        read_configuration(build_batch(0, 1, 5, [encode_body(b"x")], control=True, configuration=True))


def test_configuration_is_in_force_when_staged_and_undone_when_cut() -> None:
    log, disk = opened()
    append(log, 1)
    first = configure(log, FOUR)
    assert log.partitions[1].configurations == (first,)
    second = configure(log, PROMOTED)
    append(log, 1)
    assert log.partitions[1].configurations == (first, second)
    before = log.partitions[1].configurations
    log.truncate(1, second.end_offset)
    assert log.partitions[1].configurations is before, "the driver sees by the object whether they changed"
    log.truncate(1, second.end_offset - 1)
    commit(log)
    assert log.partitions[1].configurations == (first,)
    assert again(disk).configurations == (first,)


def test_configuration_below_what_was_trimmed_is_kept_in_the_manifest() -> None:
    log, disk = opened()
    configure(log, FOUR)
    entry = configure(log, PROMOTED)
    fill_until_flush_due(log, 1)
    flush(log, facts_of(log, none_live))
    part = log.partitions[1]
    assert part.log_start > entry.end_offset, "its entry is gone"
    assert part.configurations == (entry,), "and the one before it is history"
    assert again(disk).configurations == (entry,)
    fill_until_flush_due(log, 1)
    flush(log, facts_of(log, none_live))
    assert again(disk).configurations == (entry,)


def test_configuration_beyond_the_checkpoint_is_kept_with_the_one_before_it() -> None:
    log, disk = opened()
    first = configure(log, FOUR)
    fill_until_flush_due(log, 1)
    second = configure(log, PROMOTED)
    commit(log)
    flush(log, facts_of(log))
    later = configure(log, FOUR)
    commit(log)
    part = log.partitions[1]
    assert part.configurations[-2:] == (second, later) and part.configuration_at(second.end_offset - 1) in (first, None)
    assert again(disk).configurations[-2:] == (second, later)
    assert part.configuration_at(later.end_offset - 1) == second


def test_configuration_of_a_snapshot_takes_the_place_of_the_own_ones() -> None:
    log, disk = opened()
    configure(log, FOUR)
    commit(log)
    entry = ConfigurationEntry(70, PROMOTED)
    incoming = log.begin_import(1)
    incoming.add([build_batch(40, 2, 5, [b"live"])])
    plan = log.plan_install(1, ImportedLog(100, [2], [0], b"state", incoming.finish(), entry))
    assert plan is not None
    log.run_install(plan)
    log.install_done(plan)
    assert log.partitions[1].configurations == (entry,) and again(disk).configurations == (entry,)
    later = configure(log, FOUR, 3)
    commit(log)
    assert again(disk).configurations == (entry, later)


def test_damaged_log_that_is_replaced_by_an_empty_one_keeps_the_committed_configuration() -> None:
    log, disk = opened()
    configure(log, FOUR)
    fill_until_flush_due(log, 1)
    flush(log, facts_of(log))
    configure(log, PROMOTED)
    commit(log)
    plan = log.plan_reset(1)
    assert plan is not None
    log.run_install(plan)
    log.install_done(plan)
    part = log.partitions[1]
    assert (part.log_end, part.suspect, part.configurations) == (0, True, (ConfigurationEntry(0, FOUR),))
    assert again(disk).configurations == (ConfigurationEntry(0, FOUR),)


def test_row_of_an_older_manifest_has_no_configurations() -> None:
    fields = [1, 1, "queue-1", 3, 2, 0, 0, (), (), 0, None, 0, (), 0, 0, False]
    assert PartitionRow(*fields).configurations == ()  # type: ignore[arg-type]


def test_configuration_batch_says_what_it_is_in_its_header() -> None:
    batch = build_batch(0, 1, 5, [configuration_body(FOUR)], control=True, configuration=True)
    assert read_header(batch).is_control and read_configuration(batch) == FOUR


@pytest.mark.parametrize("damage", ["segment", "wal"])
def test_damaged_node_that_opens_for_repair_keeps_the_committed_configuration(damage: str) -> None:
    log, disk = opened()
    configure(log, FOUR)
    fill_until_flush_due(log, 1)
    flush(log, facts_of(log))
    append(log, 1)
    commit(log)
    image = disk.after_power_loss()
    if damage == "segment":
        image.remove(log._store.segments.path(1, log.partitions[1].segments[0].number))
    else:
        file = image.open(log._wal.current.file.path)  # type: ignore[union-attr]
        file.write(0, [b"\0" * 40])
    part = NodeLog.open("/node", SMALL, image, incarnation_min=5, repair=True).partitions[1]
    for found in (part, again(image)):
        assert found.suspect
        assert [entry.configuration for entry in found.configurations] == [FOUR]
