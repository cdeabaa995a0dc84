"""The list of planted bugs: number, the rule that each breaks, how it is planted, and what provokes it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from tests.simulation import (
    planted,
    planted_clients,
    planted_clocks,
    planted_containment,
    planted_files,
    planted_groups,
    planted_leases,
    planted_levels,
    planted_queues,
    provocations,
)
from tests.simulation.faults import Faults


class Planted(NamedTuple):
    number: str
    rule: str
    plant: Callable[[], AbstractContextManager[Any]]
    # Without the fault that the bug answers wrongly there is nothing to see.
    provoke: Callable[[Faults], None] = lambda faults: None
    steps: int = 4_000


PLANTED = [
    Planted("B35", "R28", planted_clocks.forgets_the_last_stamp, provocations.wrong_clocks),
    Planted("B36", "R28", planted_clocks.expires_by_one_clock, provocations.wrong_clocks),
    Planted("B37", "R28", planted_clocks.leads_with_a_wrong_clock, provocations.wrong_leaders),
    Planted("B38", "R28", planted_clocks.time_stands_still, provocations.wrong_clocks),
    Planted("B48", "R4", planted_clocks.judges_greetings_by_the_clock, provocations.wrong_clocks_without_disks),
    Planted("B39", "R29", planted_clients.keeps_late_leases, provocations.front_ends),
    Planted("B49", "R26", planted_clients.hands_back_what_was_repeated, provocations.fifo_front_ends),
    Planted("B40", "R28", planted_clients.repeats_without_a_sequence, provocations.front_ends),
    Planted("B41", "R28", planted_clients.forgets_sequences_with_the_leader, provocations.front_ends),
    Planted("B42", "G7", planted_clients.keeps_the_budget, provocations.bursts),
    Planted("B43", "G7", planted_clients.cuts_for_its_own_burst, provocations.bursts),
    Planted("B50", "F17", planted_containment.fold_ends_the_process, provocations.poison),
    Planted("B51", "F17", planted_containment.passes_over_entries, provocations.poison),
    Planted("B52", "F17", planted_containment.never_tries_again, provocations.poison),
    Planted("B53", "R22", planted_containment.flushes_away_what_is_stopped, provocations.poison),
    Planted("B54", "R12", planted_containment.trusts_who_met_a_violation, provocations.violations),
    Planted("B55", "F15", planted_containment.unreadable_ends_the_process, provocations.unreadable_sectors),
    Planted("B56", "R20", planted_containment.unreadable_tails_are_torn, provocations.unreadable_tails),
    Planted("B57", "R22", planted_containment.carries_less_than_it_cuts, provocations.stopped_tails),
    Planted("B1", "R17", planted.truncates_on_stale_append),
    Planted("B2", "R6", planted.commits_older_epochs),
    Planted("B3", "R1", planted.votes_before_durable),
    Planted("B4", "R10", planted.votes_for_anyone),
    Planted("B5", "R15", planted.counts_learners_for_commits, provocations.moves),
    Planted("B5v", "R15", planted.counts_learners_for_votes, provocations.moves),
    Planted("B6", "R12", planted.trusts_an_empty_disk, provocations.empty_disks),
    Planted("B6a", "R4", planted.takes_older_incarnations, provocations.late_frames),
    Planted("B7", "R15", planted.changes_before_own_commit, provocations.moves),
    Planted("B8", "R8", planted_leases.leads_without_a_majority, provocations.lone_leaders, 12_000),
    Planted("B60", "R8", planted_leases.votes_in_spite_of_promises, provocations.flapping_links),
    Planted("B61", "R8", planted_leases.keeps_the_lease_while_handing_over, provocations.late_stops),
    Planted("B62", "R8", planted_leases.counts_from_the_echo, provocations.staggered_cuts),
    Planted("B63", "R8", planted_leases.counts_on_broken_promises, provocations.flapping_links),
    Planted("B64", "R12", planted_leases.trusts_an_older_directory, provocations.older_directories),
    Planted("B70", "LEVEL", planted_levels.writes_what_it_speaks, provocations.mixed_levels),
    Planted("B71", "LEVEL", planted_levels.raises_the_level_alone, provocations.mixed_levels),
    Planted("B72", "LEVEL", planted_levels.forgets_the_level_in_checkpoints, provocations.mixed_levels),
    Planted("B9", "R12", planted.counts_suspect_votes, provocations.empty_disks),
    Planted("B66", "R12", planted.counts_one_suspect_of_two, provocations.pairs_of_disks),
    Planted("B67", "R20", planted_files.reads_unchecked_manifests, provocations.spoiled_files),
    Planted("B68", "R12", planted_files.doubts_no_lost_mark, provocations.spoiled_files),
    Planted("B69", "R20", planted_files.reads_unchecked_checkpoints, provocations.spoiled_files),
    Planted("B10", "R5", planted.no_fsync, provocations.more_faults(crash_rate=0.01, power_share=0.5)),
    Planted("B11", "R5", planted.no_directory_fsync, provocations.more_faults(crash_rate=0.01, power_share=0.5)),
    Planted(
        "B12", "R21", planted.retries_fsync, provocations.more_faults(eio_rate=0.01, crash_rate=0.01, power_share=0.5)
    ),
    Planted("B13", "R20", planted.corruption_is_the_end, provocations.more_faults(rot_rate=0.5, crash_rate=0.02)),
    Planted("B14", "R23", planted.drops_what_it_does_not_know, provocations.more_faults(managers=2, crash_rate=0.01)),
    Planted("B15", "R14", planted.obeys_old_leaders),
    Planted("B16", "R9", planted.serves_when_elected),
    Planted("B17", "R13", planted.no_epoch_start),
    Planted("B18", "R28", planted.answers_repeats_before_commit, provocations.fifo),
    Planted("B19", "R28", planted.forgets_ids_in_checkpoints, provocations.fifo),
    Planted("B20", "R28", planted.remembers_ids_before_commit, provocations.fifo),
    Planted("B21", "R14", planted.counts_late_votes, provocations.late_votes),
    Planted("B22", "R31", planted_groups.takes_commits_of_zombies, provocations.consumers),
    Planted("B23", "R30", planted.dead_letters_twice, provocations.dead_letters),
    Planted("B24", "R18", planted.snapshots_roll_back, provocations.many_snapshots),
    Planted("B25", "R15", planted.changes_two_at_once, provocations.moves),
    Planted("B26", "R6", planted.answers_sends_before_commit),
    Planted("B27", "R25", planted.answers_deletes_before_commit),
    Planted("B44", "R25", planted_queues.drops_deletes_by_older_receipts),
    Planted("B65", "METERING", planted_queues.tells_the_size_of_another),
    Planted("B45", "R26", planted_queues.passes_messages_in_flight, provocations.fifo),
    Planted("B46", "R30", planted_queues.forgets_letters_under_way, provocations.dead_letters),
    Planted("B47", "R29", planted_clients.repeats_changes_of_visibility, provocations.front_ends),
    Planted("B28", "R24", planted.flushes_what_is_not_committed),
    Planted("B29", "R22", planted.recycles_wal_too_early),
    Planted("B30", "R1", planted.forgets_the_vote),
    Planted("B31", "R23", planted.makes_what_was_deleted, provocations.restless_managers),
    Planted("B32", "R31", planted_groups.grants_before_fenced, provocations.consumers),
    Planted("B33", "R31", planted_groups.takes_without_asking, provocations.consumers),
    Planted("B34", "R31", planted_groups.answers_commits_before_commit, provocations.consumers),
]
