"""The faults that a planted bug answers wrongly: without them there is nothing to see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.simulation.faults import Faults
from tests.simulation.lost_disks import lose_pairs


def more_faults(**least: float) -> Callable[[Faults], None]:
    def apply(faults: Faults) -> None:
        for name, value in least.items():
            setattr(faults, name, max(getattr(faults, name), value))

    return apply


def lone_leaders(faults: Faults) -> None:
    faults.isolate_rate, faults.heal_rate, faults.leisure = 0.05, 0.0, 30
    faults.cut_rate = faults.crash_rate = faults.power_failure_rate = 0.0


def staggered_cuts(faults: Faults) -> None:
    """A leader is heard no more while it still hears, and then hears no more: links are cut one way at a time."""
    faults.cut_rate, faults.heal_rate, faults.leisure = 0.2, 0.05, 30
    faults.isolate_rate = faults.crash_rate = faults.power_failure_rate = 0.0
    faults.links.late = 0.0


def late_stops(faults: Faults) -> None:
    """Nodes that hand over, and messages that come late."""
    faults.stop_rate, faults.restart_rate, faults.leisure = 0.04, 0.5, 1
    faults.links.late, faults.links.late_us = 0.1, 400_000
    faults.crash_rate = faults.power_failure_rate = faults.cut_rate = 0.0


def flapping_links(faults: Faults) -> None:
    """Links that are cut for about as long as nodes wait for each other."""
    faults.isolate_rate, faults.cut_rate, faults.heal_rate, faults.leisure = 0.05, 0.03, 0.3, 30
    faults.crash_rate = faults.power_failure_rate = 0.0


def late_votes(faults: Faults) -> None:
    faults.links.duplicate, faults.links.late, faults.links.loss = 0.5, 0.2, 0.2
    faults.links.late_us = 4_000_000
    faults.crash_rate = faults.power_failure_rate = 0.0
    faults.pause_rate, faults.cut_rate, faults.heal_rate = 0.01, 0.03, 0.1


def empty_disks(faults: Faults) -> None:
    faults.wipe_rate, faults.crash_rate, faults.restart_rate = 0.05, 0.02, 0.2
    faults.isolate_rate, faults.heal_rate = 0.02, 0.05


def older_directories(faults: Faults) -> None:
    faults.back_rate, faults.crash_rate, faults.restart_rate = 0.5, 0.03, 0.2
    faults.eio_rate = faults.full_rate = faults.wipe_rate = faults.power_failure_rate = 0.0
    faults.isolate_rate, faults.heal_rate = 0.02, 0.1


def many_snapshots(faults: Faults) -> None:
    faults.tiny, faults.wipe_rate, faults.crash_rate = True, 0.03, 0.01
    faults.links.duplicate, faults.links.late = 0.4, 0.1
    faults.movers, faults.managers, faults.receives_max, faults.leisure = 2, 0, 0, 1
    faults.power_failure_rate = faults.cut_rate = faults.isolate_rate = faults.full_rate = 0.0


def restless_managers(faults: Faults) -> None:
    faults.managers, faults.leisure = 2, 1
    faults.stop_rate, faults.crash_rate, faults.restart_rate = 0.03, 0.03, 0.5
    faults.power_failure_rate = faults.cut_rate = faults.pause_rate = 0.0


def late_frames(faults: Faults) -> None:
    faults.links.late, faults.links.late_us = 0.2, 3_000_000
    faults.crash_rate, faults.restart_rate = 0.03, 0.5


def fifo(faults: Faults) -> None:
    faults.fifo, faults.isolate_rate, faults.heal_rate = True, 0.02, 0.05


def dead_letters(faults: Faults) -> None:
    faults.receives_max, faults.isolate_rate, faults.heal_rate = 1, 0.02, 0.05


def consumers(faults: Faults) -> None:
    faults.consumers, faults.leisure = 4, 30


def moves(faults: Faults) -> None:
    faults.movers, faults.leisure = 2, 1
    faults.isolate_rate, faults.heal_rate = 0.02, 0.05


def wrong_leaders(faults: Faults) -> None:
    """Clocks that stay wrong."""
    wrong_clocks(faults)
    faults.mended = False
    faults.rot_rate, faults.movers = 0.0, 0


def wrong_clocks(faults: Faults) -> None:
    faults.mended = True
    faults.jump_rate, faults.retention_ms, faults.dedup_ms = 0.02, 10_000, 6_000
    faults.stop_rate, faults.restart_rate, faults.leisure = 0.03, 0.5, 1
    faults.cut_rate = faults.power_failure_rate = faults.wipe_rate = 0.0


def wrong_clocks_without_disks(faults: Faults) -> None:
    """Nodes that lose their directory, with any clock."""
    wrong_clocks(faults)
    faults.wipe_rate, faults.crash_rate = 0.05, 0.03


def front_ends(faults: Faults) -> None:
    faults.front_ends, faults.front_end_restart_rate = 2, 0.0
    faults.isolate_rate, faults.heal_rate, faults.stop_rate, faults.restart_rate = 0.02, 0.05, 0.02, 0.5
    faults.links.client_loss = 0.0


def fifo_front_ends(faults: Faults) -> None:
    """Receives that are given up at one front end and repeated at another."""
    front_ends(faults)
    faults.fifo, faults.leisure = True, 1


def bursts(faults: Faults) -> None:
    faults.front_ends, faults.front_end_restart_rate, faults.large_bytes, faults.tight = 2, 0.0, 262_144, True
    faults.one_by_one = False
    faults.links.bytes_per_s, faults.links.piece_bytes, faults.links.socket_bytes = 4_000_000, 65_536, 20_000
    faults.pause_rate, faults.crash_rate, faults.power_failure_rate = 0.01, 0.0, 0.0


def poison(faults: Faults) -> None:
    """Entries that one node, or none, can fold; nodes that start again, and logs that are flushed."""
    faults.poison_rate, faults.violation_rate = 0.05, 0.0
    faults.crash_rate, faults.restart_rate = 0.02, 0.5


def stopped_tails(faults: Faults) -> None:
    """Replicas that stand still for long, while the write-ahead log goes on from file to file."""
    poison(faults)
    faults.crash_rate, faults.leisure = 0.002, 10
    faults.bounds = replace(faults.bounds, wal_file_bytes=700)


def violations(faults: Faults) -> None:
    faults.violation_rate, faults.poison_rate = 0.05, 0.0


def unreadable_sectors(faults: Faults) -> None:
    faults.unreadable, faults.spoil_rate, faults.rot_rate, faults.segment_rot_rate = 1.0, 0.3, 0.5, 0.01
    faults.crash_rate, faults.restart_rate = 0.02, 0.2


def unreadable_tails(faults: Faults) -> None:
    """After a loss of power the mark may not tell of the last group."""
    unreadable_sectors(faults)
    faults.spoil_rate, faults.rot_rate, faults.power_share = 0.0, 1.0, 1.0


def mixed_levels(faults: Faults) -> None:
    """Nodes of two releases, which are stopped and upgraded."""
    faults.mixed, faults.stop_rate, faults.restart_rate = 1, 0.02, 0.5
    faults.crash_rate, faults.leisure = 0.01, 1


def spoiled_files(faults: Faults) -> None:
    """Manifests, marks and checkpoints in which a byte changed; logs that are flushed often."""
    faults.spoil_rate, faults.unreadable, faults.rot_rate, faults.segment_rot_rate = 0.5, 0.0, 0.0, 0.0
    faults.crash_rate, faults.restart_rate = 0.03, 0.2
    faults.bounds = replace(faults.bounds, memtable_bytes_max=300, checkpoint_inline_bytes_max=64)


def pairs_of_disks(faults: Faults) -> None:
    """Two disks of five that are lost at a time, and leaders that are cut off."""
    empty_disks(faults)
    lose_pairs(faults)
    faults.back_rate, faults.movers, faults.managers, faults.receives_max = 0.0, 2, 0, 0
